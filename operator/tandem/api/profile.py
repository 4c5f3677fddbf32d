"""Profiles: what an image can run. Administrators write them, services name them, and revisions keep theirs.

Like the resource's types this one only ever grows: no field changes its meaning or its default, since the record of a
revision holds what is not at its default.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tandem.api.bounds import PARALLEL_SIZE
from tandem.api.decoding import DecodingType, Dialect, Mode
from tandem.api.wire import StrictWire

ImageName = Annotated[str, Field(pattern=r"^[^\s]*$")]


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
    tensorrt_llm_version: str = ""
    """Version of TensorRT-LLM in the image, e.g. 1.2.1; empty: it has none."""
    verified: bool = False
    """Whether tests ran this image: Tandem's own, or yours where the profile is. Services of others are warned."""
    modes: list[Mode]
    """Serving stacks that the image has."""
    decoding_types: dict[Mode, list[DecodingType]]
    """Decoding types that the image can run, by mode."""
    gpus: bool = True
    """Whether models run on GPUs; false: on the CPU, and `placement.gpu` means nothing."""
    max_tensor_parallel_size: Annotated[int, Field(ge=1, le=1024)] = PARALLEL_SIZE
    """Most GPUs of one model."""
    engine_backend: Literal["python", "tensorrtllm"] = "tensorrtllm"
    """BLS: Triton backend of the engines."""
    engine_source: str = ""
    """BLS with engine backend python: folder in the image with the Triton model (`1/model.py`) that is the engine."""
    engine_env: dict[str, str] = Field(default_factory=dict)
    """Environment that the engine's model needs."""
    engine_parameters: dict[str, str | int] = Field(default_factory=dict)
    """Parameters of the engine: of its Triton model in mode BLS (engine backend python), arguments of `LLM` in mode
    LLMAPI."""
    engine_check: str = ""
    """Python module in the image that says which checkpoints the engine runs, and what they take of a GPU's memory
    (`check` and `memory` of reference_engine.torch_backend.checkpoints); the preflight asks it. Empty: none."""
    engine_calls: Literal["Single", "Together", "Collected"] = "Single"
    """BLS: how the engines, which are decoupled, take the sequences that run at once. Single: each in calls of its
    own, which in-flight batching merges. Together: many in a call, answered in one response where its parameter
    `one_response` is true. Collected: many in a call, each answered by itself, as TensorRT-LLM's backend does; a
    model of Tandem's makes one response of them."""
    llm_args: Dialect = Dialect.NONE
    """LLMAPI: dialect of tensorrt_llm.LLM's arguments, by the first release that speaks it."""
    llm_package: str = "tensorrt_llm"
    """LLMAPI: Python package in the image with `LLM` and `SamplingParams`."""
    counts_draft_tokens: bool = True
    """Whether the engine reports how many tokens it drafted; without, acceptance rates are Unknown."""
    resources: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Resource requests and limits of the server container, GPUs left out."""

    @property
    def own_engine_on_gpus(self) -> bool:
        """Whether the engine is a Python model that computes on GPUs."""
        return self.engine_backend == "python" and self.gpus

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.engine_backend == "python" and Mode.BLS in self.modes and not self.engine_source:
            raise ValueError("engineBackend python needs engineSource")
        if Mode.LLMAPI in self.modes and not self.llm_args:
            raise ValueError("mode LLMAPI needs llmArgs: the dialect of the image's tensorrt_llm")
        for kind in self.decoding_types.get(Mode.LLMAPI, []):
            if self.llm_args not in kind.traits.dialects:
                raise ValueError(f"decodingTypes.LLMAPI has {kind}, which llmArgs {self.llm_args} has not: remove it")
        return self
