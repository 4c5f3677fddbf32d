"""What a renderer is given: of any version, and kept with the revision, so that it can be rendered again.

Frozen as the renderers are: the hash of the inputs is a part of every revision's name.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tandem.api.profile import Profile
from tandem.api.roles import Role
from tandem.api.types import Access, Cache, OpenAi, Rollout, ServiceSpec, Storage, UserIds
from tandem.digest import digest
from tandem.engines import Engine, engine_of


class PodDefaults(BaseModel):
    """What the administrator gave to all pods when the revision was rendered first."""

    model_config = ConfigDict(frozen=True)

    user_ids: UserIds = "Fixed"
    init_resources: dict[str, Any] = Field(default_factory=dict)
    """Requests and limits of init containers."""
    image_pull_secrets: tuple[str, ...] = ()
    """Names of the Secrets."""


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
    pods: PodDefaults = Field(default_factory=PodDefaults)

    @property
    def engine(self) -> Engine:
        """What runs the models."""
        return engine_of(self.spec, self.profile)

    @property
    def inputs_hash(self) -> str:
        """Hash of the part of the spec that shapes a revision."""
        return inputs_hash(self.spec)


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
    """`spec` without what shapes no server: their number and who decides it, how they take each other's place, what
    speculation must be worth, who may connect, how and at which port of the Service, and what Jobs have.

    A deadline above the default leaves servers longer to start.
    """
    deadline = max(spec.rollout.progress_deadline_seconds, Rollout().progress_deadline_seconds)
    outside = {"port": OpenAi().port, "route": None, "inference_pool": None}
    open_ai = spec.serving.open_ai.model_copy(update=outside)
    return spec.model_copy(
        update={
            "replicas": 1,
            "autoscaling": None,
            "rollout": Rollout(progress_deadline_seconds=deadline),
            "jobs": None,
            "speculation": spec.speculation.model_copy(update={"min_accepted_length": None}),
            "serving": spec.serving.model_copy(update={"access": Access(), "open_ai": open_ai}),
        },
    )
