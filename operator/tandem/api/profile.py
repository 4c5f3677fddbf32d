"""Profiles: what an image can run. Administrators write them, services name them, and revisions keep theirs.

Like the resource's types this one only ever grows: no field changes its meaning or its default, since the record of a
revision holds what is not at its default.
"""

from typing import Annotated, Literal

from pydantic import Field

from tandem.api.bounds import PARALLEL_SIZE
from tandem.api.wire import StrictWire

ImageName = Annotated[str, Field(pattern=r"^[^\s]*$")]


class EngineSettings(StrictWire):
    """The engine in an image. What it can do follows from kind and version (`tandem.engines`)."""

    kind: Annotated[str, Field(min_length=1)]
    """Tandem (its own engine), TensorRT-LLM or vLLM."""
    version: Annotated[str, Field(pattern=r"^([0-9]+(\.[0-9]+)*.*)?$")] = ""
    """Its version, e.g. 1.2.1; empty where the engine is Tandem's own, which has that of its image."""
    calls: Literal["", "Single", "Together", "Collected"] = ""
    """Mode BLS: how engines, which are decoupled, take the sequences that run at once. Single: each in calls of its
    own, which in-flight batching merges. Together: many in a call, answered in one response. Collected: many in a
    call, each answered by itself, as TensorRT-LLM's backend does; a model of Tandem's makes one response of them.
    Empty: as the kind does best."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment that it needs."""
    parameters: dict[str, str | bool | int | float] = Field(default_factory=dict)
    """Its parameters: of its Triton model in mode BLS, where Tandem's own runs, its arguments in mode LLMAPI."""


class Profile(StrictWire):
    """What an image can run. A profile never changes under its name."""

    name: Annotated[str, Field(min_length=1)]
    """Name that services write in `runtime.profile`."""
    description: str = ""
    """For people."""
    image: ImageName = ""
    """Image with Triton and the engine; empty: none is published, and services write `runtime.image`."""
    triton_version: str = ""
    """Release of Triton in the image, e.g. 26.07; empty: not known."""
    verified: bool = False
    """Whether tests ran this image: Tandem's own, or yours where the profile is. Services of others are warned."""
    engine: EngineSettings
    """What runs the models."""
    gpus: bool = True
    """Whether models run on GPUs; false: on the CPU, and `placement.gpu` means nothing."""
    max_tensor_parallel_size: Annotated[int, Field(ge=1, le=1024)] = PARALLEL_SIZE
    """Most GPUs of one model."""
    resources: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Resource requests and limits of the server container, GPUs left out."""
