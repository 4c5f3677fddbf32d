"""The status: what the operator observed."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tandem.api.bounds import MESSAGE, SCHEDULE_STEPS
from tandem.api.conditions import ConditionStatus, ConditionType
from tandem.api.types.base import Model
from tandem.api.types.speculation import DraftLenStep


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


Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Number = Annotated[float, Field(ge=0)]


class SpeculationAdvice(Model):
    """A draft length by load that would serve better (mode LLMAPI). Nothing applies it but a person, or git."""

    draft_len_schedule: Annotated[list[DraftLenStep], Field(max_length=SCHEDULE_STEPS)] | None = None
    """What to write in speculation.draftLenSchedule."""
    max_concurrency: Annotated[int, Field(ge=1)] | None = None
    """No longer written: above maxConcurrency nothing is drafted, and TensorRT-LLM's drafters go stale."""
    gain: Number
    """Tokens a second that are expected, relative to those of today: 1.12 is 12 % more."""
    message: Annotated[str, StringConstraints(max_length=MESSAGE)] = ""
    """The advice, for people."""


class SpeculationStatus(Model):
    """What speculation was worth lately. What is not known is absent, never 0."""

    acceptance_rate: Number | None = None
    """Share of the draft's tokens that the target accepted, 0 to 1."""
    mean_accepted_length: Number | None = None
    """Tokens that a step of the target gave on average, its own included: 1 is no gain."""
    draft_length: Number | None = None
    """Draft tokens a step on average."""
    speedup: Number | None = None
    """Tokens a second relative to those without speculation, at the same load: below 1, speculation harms."""
    speedup_source: Literal["Model", "Probe", "Benchmark"] | None = None
    """Model: by the costs that were fitted to the traffic. Probe: measured on requests that ran without speculation.
    Benchmark: by `tandem bench --record`, of the revision that serves."""
    samples: Annotated[int, Field(ge=0)] = 0
    """Draft-and-verify steps behind the figures."""
    observed_at: Time
    """When the figures were seen; they are written when they change materially."""
    advice: SpeculationAdvice | None = None
    """What would serve better, where anything would."""


class AutoscalingStatus(Model):
    """Why the service has, or will have, that many replicas: the last decision's reasons."""

    desired_replicas: Annotated[int, Field(ge=0)] | None = None
    """Replicas that the load asks for, within minReplicas and maxReplicas."""
    signal: Annotated[str, StringConstraints(max_length=64)]
    """What decided: Demand, InterTokenLatency, TimeToFirstToken, QueueLength, KvCache, or Hold."""
    value: Number | None = None
    """The signal's value."""
    target: Number | None = None
    """The value's target."""
    capacity_per_replica: Number | None = None
    """Tokens a second that a replica can do within the objectives, at the acceptance seen."""
    message: Annotated[str, StringConstraints(max_length=MESSAGE)] = ""
    """The decision, for people."""
    observed_at: Time
    """When it was made; it is written when the replicas or the signal change, or its numbers do materially."""


class ServiceStatus(Model):
    """What the operator observed."""

    observed_generation: int | None = None
    """metadata.generation that this status speaks of; -1 until the operator has looked at the service."""
    conditions: Annotated[
        list[Condition],
        Field(
            max_length=32,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = Field(default_factory=list)
    """Ready, what it depends on, and the state of autoscaling and speculation. Ready, Reconciling and Stalled follow
    kstatus. Every type and reason is in docs/reference/conditions.md."""
    replicas: int | None = None
    """Server pods that exist, at most spec.replicas: a rollout's additional pods do not count, for /scale. Where a
    replica is a group of pods, groups."""
    ready_replicas: int | None = None
    """Server pods that answer Triton's readiness, a rollout's too."""
    updated_replicas: int | None = None
    """Server pods of `updateRevision`."""
    selector: str | None = None
    """Label selector of the server pods (leaders where a replica is a group), for /scale."""
    url: str | None = None
    """Triton's HTTP endpoint inside the cluster; gRPC is on port 8001 of the same host."""
    openai_url: Annotated[str, StringConstraints(max_length=512)] | None = Field(default=None, alias="openAIURL")
    """Base URL of the OpenAI endpoint inside the cluster, for clients; absent where the servers have none."""
    current_revision: str | None = None
    """Revision that was last rolled out completely."""
    update_revision: str | None = None
    """Revision that the spec asks for."""
    fallback_revision: str | None = None
    """Revision before `currentRevision`, which serves again if the accepted length of that is below
    speculation.minAcceptedLength; absent once that was seen to keep it."""
    failed_revision: str | None = None
    """Revision that gave way to `currentRevision`: it did not come up in time (rollout.strategy Replace), or
    `failedAcceptedLength` was too short. It is not tried again until the spec asks for another one."""
    failed_accepted_length: Number | None = None
    """Mean accepted length by which `failedRevision` gave way: with a minimum that is not above it, it is tried
    again."""
    judged_revision: str | None = None
    """Revision whose pods `speculation`, SpeculationActive and SpeculationBeneficial are of; during a rollout
    both. Another one begins anew."""
    speculation: SpeculationStatus | None = None
    """What speculation was worth lately."""
    autoscaling: AutoscalingStatus | None = None
    """The last decision on replicas; absent without spec.autoscaling."""

    @property
    def worth(self) -> str:
        """What speculation is worth, or why that is not known and which command measures it, in a sentence: the one
        that all who show it show. Empty where there is none."""
        shown = (c.message for c in self.conditions if c.type == ConditionType.SPECULATION_BENEFICIAL)
        return next(shown, "")
