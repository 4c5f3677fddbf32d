"""What a renderer is given and what it gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tandem.api.types import ServiceSpec
from tandem.render.v1.sources import Role
from tandem.settings import Profile


@dataclass(frozen=True)
class Inputs:
    """All that a revision depends on."""

    spec: ServiceSpec
    profile: Profile
    serving_image: str
    folders: Mapping[Role, str]
    """Folder of each model in the containers."""

    @property
    def image(self) -> str:
        """Image of the server container."""
        return self.spec.runtime.image or self.profile.image


@dataclass(frozen=True)
class JobPod:
    """`pod`, the PodSpec of a task's Job, and `digest` of all that its result depends on; `folder`, which it fills,
    where it does."""

    pod: Mapping[str, Any]
    digest: str
    folder: str = ""


@dataclass(frozen=True)
class Rendered:
    """Files and pods of a revision; see `Revision` for the fields."""

    files: Mapping[str, str]
    pod: Mapping[str, Any]
    worker: Mapping[str, Any] | None
    nodes: int
    metadata: Mapping[str, Mapping[str, str]]
    preflight: JobPod
    builds: Mapping[Role, JobPod] = field(default_factory=dict)
