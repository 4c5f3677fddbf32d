"""The status: what the operator observed."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tandem.api.types.base import Model

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
    """Ready and the reasons behind it: SpecAccepted, ModelsReady, EnginesReady, PairCompatible, Available;
    Reconciling and Stalled only while they are True."""
    replicas: int | None = None
    """Server pods that exist; where a replica is a group of pods, groups."""
    ready_replicas: int | None = None
    """Of them, those that answer Triton's readiness."""
    updated_replicas: int | None = None
    """Of them, those of `updateRevision`."""
    selector: str | None = None
    """Label selector of the server pods (leaders where a replica is a group), for /scale."""
    url: str | None = None
    """Triton's HTTP endpoint inside the cluster; gRPC is on port 8001 of the same host."""
    current_revision: str | None = None
    """Revision that was last rolled out completely."""
    update_revision: str | None = None
    """Revision that the spec asks for."""
