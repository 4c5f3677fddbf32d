"""What a renderer gives: of any version."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tandem.api.roles import Role


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
