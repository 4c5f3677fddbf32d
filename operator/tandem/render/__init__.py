"""Rendering a service into a revision: the files and the pod that serve one target, draft and configuration.

A revision is named by the digest of what was rendered. So that a new operator version rolls no fleet, each
renderer is a version of its own (`v1`, ...), and a revision that is already in the cluster is rendered again
by the version, and with the images, that its `Record` names, until the user changes the spec.

A renderer imports the API, the names of children, which only grow, and the engines (pyproject.toml, `importlinter`).
What an engine's object returns for a specification and a version stays the same once a renderer is released; the next
renderer asks it something else. Who asks about a spec that has no revision yet (rules, tasks, Jobs) asks
`tandem.render.latest`; no one else imports a version.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tandem.api.roles import Role
from tandem.digest import digest
from tandem.render import v1
from tandem.render.record import PodDefaults, Record, asks_for, inputs_hash, shaping
from tandem.render.rendered import JobPod, Rendered

__all__ = [
    "LATEST",
    "RECORD_FILE",
    "RENDERERS",
    "PodDefaults",
    "Record",
    "Revision",
    "asks_for",
    "inputs_hash",
    "render",
]

RENDERERS: dict[str, Callable[[Record], Rendered]] = {"v1": v1.render}
LATEST = "v1"
KEPT = 32
"""Revisions that are kept, of some 100 KB each."""
RECORD_FILE = "record.json"


@dataclass(frozen=True)
class Revision:
    """One rendered revision."""

    digest: str
    """Ten hexadecimal digits: the revision's name in status, labels and child names."""
    record: Record
    """How it was rendered."""
    files: Mapping[str, str]
    """Data of the revision's ConfigMap: file name to text."""
    pod: Mapping[str, Any]
    """PodSpec of the server, but for names; see `tandem.children.metadata`."""
    worker: Mapping[str, Any] | None
    """PodSpec of the pods beside it, likewise; None where a replica is one pod."""
    nodes: int
    """Pods of a replica."""
    metadata: Mapping[str, Mapping[str, str]]
    """The user's labels and annotations of these pods."""
    preflight: JobPod
    """Checks the revision's models; likewise."""
    builds: Mapping[Role, JobPod]
    """Build the engines, by the role of the model; likewise."""


@dataclass(frozen=True)
class _Keyed:
    text: str
    record: Record = field(compare=False)


def render(record: Record) -> Revision:
    """Render as `record` says. Pure: equal records give equal bytes.

    The last ones are kept, since rendering takes most of a reconcile's time and a service that changes is reconciled
    many times. Callers share a revision, so none may change it.

    Raises:
        KeyError: `record.renderer` is not known (made by a newer operator).
    """
    return _render(_Keyed(record.model_dump_json(), record))


@lru_cache(maxsize=KEPT)
def _render(keyed: _Keyed) -> Revision:
    record = keyed.record
    rendered = RENDERERS[record.renderer](record)
    text = record.model_copy(update={"spec": shaping(record.spec)}).model_dump_json(
        indent=1, by_alias=True, exclude_defaults=True
    )
    # The inputs count beside the outputs: the record is in the ConfigMap, which is immutable under its name.
    identity = {
        "renderer": record.renderer,
        "inputs": record.inputs_hash,
        "files": rendered.files,
        "pod": rendered.pod,
        "worker": rendered.worker,
        "metadata": rendered.metadata,
    }
    return Revision(
        digest=digest(identity),
        record=record,
        files={**rendered.files, RECORD_FILE: text},
        pod=rendered.pod,
        worker=rendered.worker,
        nodes=rendered.nodes,
        metadata=rendered.metadata,
        preflight=rendered.preflight,
        builds=rendered.builds,
    )
