"""Rendering a service into a revision: the files and the pod that serve one target, draft and configuration.

A revision is named by the digest of what was rendered. So that a new operator version rolls no fleet, each
renderer is a version of its own (`v1`, ...), and a revision that is already in the cluster is rendered again
by the version, and with the images, that its `Record` names, until the user changes the spec.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tandem.api.types import Access, Cache, Rollout, ServiceSpec, Storage
from tandem.digest import digest
from tandem.render import v1
from tandem.render.inputs import Inputs, JobPod, Rendered
from tandem.render.v1.sources import Role, folders
from tandem.settings import Profile

RENDERERS: dict[str, Callable[[Inputs], Rendered]] = {"v1": v1.render}
LATEST = "v1"
KEPT = 32
"""Revisions that are kept, of some 100 KB each."""
RECORD_FILE = "record.json"


class Record(BaseModel):
    """How a revision was rendered; kept in its ConfigMap as `record.json`."""

    model_config = ConfigDict(frozen=True)

    renderer: str
    """Key of `RENDERERS`."""
    serving_image: str
    """Image with Tandem's models and entry point."""
    profile: Profile
    """The profile, as it was."""
    spec: ServiceSpec
    """The spec, as it was; `replicas` means nothing here."""
    fetched: dict[Role, str] = Field(default_factory=dict)
    """Folders in the cache volume of the models that were downloaded."""

    @property
    def inputs_hash(self) -> str:
        """Hash of the part of the spec that shapes a revision."""
        return inputs_hash(self.spec)


@dataclass(frozen=True)
class Revision:
    """One rendered revision."""

    digest: str
    """Ten hexadecimal digits: the revision's name in status, labels and child names."""
    files: Mapping[str, str]
    """Data of the revision's ConfigMap: file name to text."""
    pod: Mapping[str, Any]
    """PodSpec of the server; its volume `revision` is added by the builder, which knows the name."""
    worker: Mapping[str, Any] | None
    """PodSpec of the pods beside it, likewise; None where a replica is one pod."""
    nodes: int
    """Pods of a replica."""
    metadata: Mapping[str, Mapping[str, str]]
    """The user's labels and annotations of these pods."""
    preflight: JobPod
    """Checks the revision's models; the volume `revision` likewise."""
    builds: Mapping[Role, JobPod]
    """Build the engines, by the role of the model; likewise."""


def inputs_hash(spec: ServiceSpec) -> str:
    """Hash of the part of `spec` that shapes a revision.

    Fields at their default do not count, so that a field added by a later version changes no hash.
    """
    return digest(shaping(spec).model_dump(mode="json", exclude_defaults=True), 16)


def asks_for(spec: ServiceSpec) -> str:
    """Hash of what the servers of `spec` are: equal ones need no other revision.

    `inputs_hash` without what only a claim that is made has. That stays in a revision's name, since revisions that
    serve have theirs.
    """
    claim = Cache(claim_name=spec.storage.cache.claim_name)
    return inputs_hash(spec.model_copy(update={"storage": Storage(cache=claim)}))


def shaping(spec: ServiceSpec) -> ServiceSpec:
    """`spec` without what shapes no pod: their number and who decides it, how they take each other's place, and who
    may connect."""
    return spec.model_copy(
        update={
            "replicas": 1,
            "autoscaling": None,
            "rollout": Rollout(),
            "serving": spec.serving.model_copy(update={"access": Access()}),
        },
    )


@dataclass(frozen=True)
class _Keyed:
    text: str
    record: Record = field(compare=False)


def render(record: Record) -> Revision:
    """Render as `record` says. Pure: equal records give equal bytes.

    The last ones are kept, since a reconcile asks twice for the same one, and that takes most of its time.

    Raises:
        KeyError: `record.renderer` is not known (made by a newer operator).
    """
    return copy.deepcopy(_render(_Keyed(record.model_dump_json(), record)))


@lru_cache(maxsize=KEPT)
def _render(keyed: _Keyed) -> Revision:
    record = keyed.record
    rendered = RENDERERS[record.renderer](
        Inputs(
            spec=record.spec,
            profile=record.profile,
            serving_image=record.serving_image,
            folders=folders(record.spec, record.fetched),
        )
    )
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
        files={**rendered.files, RECORD_FILE: text},
        pod=rendered.pod,
        worker=rendered.worker,
        nodes=rendered.nodes,
        metadata=rendered.metadata,
        preflight=rendered.preflight,
        builds=rendered.builds,
    )
