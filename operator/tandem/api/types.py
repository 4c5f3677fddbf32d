"""Pydantic models of a `SpeculativeInferenceService`, the single source of its CRD.

Field names are the camelCase of TensorRT-LLM's and Triton's own terms. v1alpha1 only ever grows: no
field changes its meaning or goes away. Each field's docstring is its description in the CRD. Rules that
need only the object are CEL (`cel`), so that they hold at admission with the operator down.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel


@dataclass(frozen=True)
class Rule:
    """A CEL validation rule of the object it is attached to.

    `message` says what to write instead, since it is all that a refused user sees.
    Syntax: https://kubernetes.io/docs/reference/using-api/cel/
    """

    rule: str
    message: str


class Model(BaseModel):
    """Base of all API types: camelCase on the wire, docstrings as descriptions, immutable."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        frozen=True,
        extra="ignore",
    )
    cel: ClassVar[tuple[Rule, ...]] = ()


class Mode(StrEnum):
    """Which serving stack runs the models."""

    LLMAPI = "LLMAPI"
    BLS = "BLS"


class DecodingType(StrEnum):
    """How draft tokens are made. `None` serves the target alone: the baseline to compare with."""

    DRAFT_TARGET = "DraftTarget"
    NONE = "None"


class Runtime(Model):
    """The serving stack."""

    mode: Mode
    """LLMAPI: TensorRT-LLM's LLM API inside one Triton model. BLS: draft and target as two Triton models
    with Tandem's batched, streaming speculative BLS over them. Never guessed."""
    profile: Annotated[str, StringConstraints(min_length=1, max_length=63)]
    """Name of a profile of the operator's settings: image, versions and abilities. Upgrading a service is
    naming another profile."""
    image: Annotated[str, StringConstraints(max_length=512)] = ""
    """Container image that replaces the profile's."""


Uri = Annotated[str, StringConstraints(min_length=1, max_length=1024)]


class ModelReference(Model):
    """Where a model comes from."""

    cel = (
        Rule(
            "self.uri.matches('^file:///[A-Za-z0-9._/-]+$')",
            "this version of Tandem serves models that are in the image: write uri: file:///path/of/the/model"
            " (letters, digits, '.', '_', '-' and '/')",
        ),
        Rule(
            "!self.uri.contains('/../') && !self.uri.endsWith('/..')",
            "uri must not contain '..': write the model's path without it",
        ),
    )
    uri: Uri
    """`file:///path`: a folder in the serving image with config.json, *.safetensors and tokenizer.json."""

    @property
    def path(self) -> str:
        """The model's folder in the serving container."""
        return self.uri.removeprefix("file://").rstrip("/")


ParallelSize = Annotated[int, Field(ge=1, le=64)]


class Target(Model):
    """The large model, whose output it is."""

    model: ModelReference
    """Checkpoint of the target."""
    tensor_parallel_size: ParallelSize = 1
    """GPUs that share each layer of the target."""


class Draft(Model):
    """The small model that guesses tokens."""

    model: ModelReference
    """Checkpoint of the draft; its tokenizer must equal the target's."""
    tensor_parallel_size: ParallelSize = 1
    """GPUs that share each layer of the draft."""


class Adaptive(Model):
    """Draft length by what it is worth: acceptance, and what draft and verification cost at the load."""

    enabled: bool = True
    """false: always `maxDraftLen`, or what the request asks for."""
    min_draft_len: Annotated[int, Field(ge=0, le=32)] = 0
    """Fewest draft tokens a step; 0 lets speculation turn itself off where the target alone is faster."""


class Speculation(Model):
    """How tokens are guessed and accepted."""

    cel = (
        Rule(
            "self.adaptive.minDraftLen <= self.maxDraftLen",
            "adaptive.minDraftLen must not be above maxDraftLen: lower it or raise maxDraftLen",
        ),
    )
    decoding_type: DecodingType
    """DraftTarget: a draft model proposes, the target verifies. None: the target alone."""
    max_draft_len: Annotated[int, Field(ge=1, le=32)] = 4
    """Draft tokens a step: the default, and the upper bound, of every request's `num_draft_tokens`."""
    adaptive: Adaptive = Field(default_factory=Adaptive, json_schema_extra={"default": {}})
    """BLS: the draft length follows acceptance and load, between `minDraftLen` and `maxDraftLen`."""


NodeLabelKey = Annotated[str, StringConstraints(min_length=1, max_length=317)]
LabelValue = Annotated[str, StringConstraints(max_length=63)]


class Toleration(Model):
    """A taint that the pods tolerate, as in a PodSpec."""

    key: Annotated[str, StringConstraints(max_length=317)] | None = None
    """Taint key; absent, with operator Exists, matches all."""
    operator: Literal["Equal", "Exists"] | None = None
    """Relation of key and value; Equal when absent."""
    value: LabelValue | None = None
    """Taint value that matches."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect that matches; all when absent."""
    toleration_seconds: Annotated[int, Field(ge=0)] | None = None
    """Seconds that a NoExecute taint is tolerated; for ever when absent."""


class Placement(Model):
    """Where the pods run."""

    node_selector: Annotated[dict[NodeLabelKey, LabelValue], Field(max_length=32)] = Field(default_factory=dict)
    """Labels that a node must carry."""
    tolerations: Annotated[list[Toleration], Field(max_length=32)] = Field(default_factory=list)
    """Taints that the pods tolerate."""


class Serving(Model):
    """Limits of each replica's server."""

    max_batch_size: Annotated[int, Field(ge=1, le=1024)] = 16
    """Sequences that a replica runs at once; further requests wait."""
    request_timeout_seconds: Annotated[int, Field(ge=1, le=86400)] = 600
    """Longest time that a request may take; pods that stop finish their streams within it."""


class ServiceSpec(Model):
    """What the user asks for."""

    cel = (
        Rule(
            "self.speculation.decodingType != 'DraftTarget' || has(self.draft)",
            "decodingType DraftTarget needs a draft model: write spec.draft.model.uri,"
            " or speculation.decodingType: None to serve the target alone",
        ),
        Rule(
            "self.speculation.decodingType == 'DraftTarget' || !has(self.draft)",
            "only decodingType DraftTarget takes a draft model: remove spec.draft,"
            " or write speculation.decodingType: DraftTarget",
        ),
    )
    runtime: Runtime
    """The serving stack."""
    target: Target
    """The large model, whose output it is."""
    draft: Draft | None = None
    """The small model that guesses tokens; exactly when decodingType needs one."""
    speculation: Speculation
    """How tokens are guessed and accepted."""
    placement: Placement = Field(default_factory=Placement, json_schema_extra={"default": {}})
    """Where the pods run."""
    serving: Serving = Field(default_factory=Serving, json_schema_extra={"default": {}})
    """Limits of each replica's server."""
    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """Replicas of the server. An autoscaler, or `kubectl scale`, writes it through /scale; the operator
    never decides it."""


ConditionStatus = Literal["True", "False", "Unknown"]


class Condition(Model):
    """One aspect of the state, as meta/v1 Condition."""

    type: Annotated[str, StringConstraints(max_length=316)]
    """Aspect, in CamelCase."""
    status: ConditionStatus
    """Whether the aspect holds."""
    reason: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    """Programmatic cause of the last transition, in CamelCase."""
    message: Annotated[str, StringConstraints(max_length=32768)]
    """For people: details, and what to do next."""
    observed_generation: int = 0
    """metadata.generation that the condition speaks of."""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When `status` changed last."""


class ServiceStatus(Model):
    """What the operator observed."""

    observed_generation: int | None = None
    """metadata.generation that this status speaks of."""
    conditions: Annotated[
        list[Condition],
        Field(
            max_length=32,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = Field(default_factory=list)
    """Ready and the reasons behind it: SpecAccepted, ModelsReady, PairCompatible, Available; Reconciling
    and Stalled only while they are True."""
    replicas: int | None = None
    """Server pods that exist."""
    ready_replicas: int | None = None
    """Server pods that answer Triton's readiness."""
    updated_replicas: int | None = None
    """Server pods of `updateRevision`."""
    selector: str | None = None
    """Label selector of the server pods, for /scale."""
    url: str | None = None
    """Triton's HTTP endpoint inside the cluster; gRPC is on port 8001 of the same host."""
    current_revision: str | None = None
    """Revision that was last rolled out completely."""
    update_revision: str | None = None
    """Revision that the spec asks for."""


class SpeculativeInferenceService(Model):
    """A large target model served with speculative decoding on NVIDIA Triton: a draft guesses tokens,
    the target verifies them in one pass."""

    cel = (
        Rule(
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 40",
            "metadata.name must be a DNS-1035 label of at most 40 characters (children add suffixes):"
            " lower-case letters, digits and '-', starting with a letter",
        ),
    )
    metadata: dict[str, Any] = Field(default_factory=dict)
    spec: ServiceSpec
    """What the user asks for."""
    status: ServiceStatus = Field(default_factory=ServiceStatus)
    """What the operator observed."""

    @property
    def name(self) -> str:
        """metadata.name."""
        return str(self.metadata["name"])

    @property
    def namespace(self) -> str:
        """metadata.namespace."""
        return str(self.metadata["namespace"])

    @property
    def uid(self) -> str:
        """metadata.uid; empty for a manifest that was never applied."""
        return str(self.metadata.get("uid", ""))

    @property
    def generation(self) -> int:
        """metadata.generation; 0 for a manifest that was never applied."""
        return int(self.metadata.get("generation", 0))
