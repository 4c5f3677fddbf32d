"""Autoscaling: who may change the number of replicas, within which bounds, towards which objectives."""

import re
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from tandem.api.bounds import REPLICAS
from tandem.api.types.base import Model, Passthrough, Rule

Duration = Annotated[str, StringConstraints(max_length=16, pattern=r"^[0-9]{1,6}(\.[0-9]{1,3})?(ms|s)$")]
"""A time, such as 500ms or 1.5s."""
_UNITS = {"ms": 1e-3, "s": 1.0}


def seconds(duration: Duration) -> float:
    """A duration in seconds.

    Raises:
        ValueError: it is none.
    """
    found = re.fullmatch(r"([0-9.]+)(ms|s)", duration)
    if not found:
        raise ValueError(f"{duration!r} is no duration: write 500ms or 1.5s")
    return float(found[1]) * _UNITS[found[2]]


AutoscalingSource = Literal["Embedded", "Prometheus", "KEDA"]
"""Each has an object in `tandem.autoscaling`, with all that differs between them."""


class Objectives(Model):
    """What a replica must keep under load. Absent ones do not bound it."""

    cel = (
        Rule(
            "!has(self.timeToFirstToken) || self.timeToFirstToken.matches('[1-9]')",
            "objectives.timeToFirstToken is 0, which no server keeps: write a time such as 500ms, or remove it",
        ),
        Rule(
            "!has(self.interTokenLatency) || self.interTokenLatency.matches('[1-9]')",
            "objectives.interTokenLatency is 0, which no server keeps: write a time such as 50ms, or remove it",
        ),
    )

    time_to_first_token: Duration | None = None
    """The first token of 95% of the requests comes within this."""
    inter_token_latency: Duration | None = None
    """Average time between tokens of a request while others run."""
    queue_length: Annotated[int, Field(ge=1, le=10000)] | None = None
    """Requests that wait in front of each replica."""


_TRIGGER_TYPE = {"type": "string", "maxLength": 63, "description": "KEDA's name of the scaler, such as prometheus."}
Trigger = Annotated[
    dict[str, Any],
    Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True, "properties": {"type": _TRIGGER_TYPE}}),
]
"""A trigger, checked by KEDA; `type` is declared for the rule that looks at it."""


_METRIC_TYPE = {
    "type": "string",
    "maxLength": 63,
    "description": "Object, of an object of this namespace; or External.",
}
OwnMetric = Annotated[
    dict[str, Any],
    Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True, "properties": {"type": _METRIC_TYPE}}),
]
"""A metric, checked by the API server; `type` is declared for the rule that looks at it."""


class Keda(Model):
    """What a ScaledObject gets in addition to Tandem's trigger."""

    cel = (
        Rule(
            "!has(self.idleReplicaCount) || self.idleReplicaCount == 0",
            "keda.idleReplicaCount can only be 0 (KEDA's rule): write 0, or remove it",
        ),
    )
    triggers: Annotated[list[Trigger], Field(max_length=8)] = Field(default_factory=list)
    """Triggers of your own, as KEDA spells them. One that sees demand while there is no pod (a queue, a gateway's
    request rate; not cpu or memory) makes minReplicas 0 possible. Their credentials are a TriggerAuthentication of
    this namespace."""
    polling_interval: Annotated[int, Field(ge=1, le=3600)] | None = None
    """Seconds between KEDA's looks at the triggers while there is no pod; absent: KEDA's 30."""
    cooldown_period: Annotated[int, Field(ge=0, le=86400)] | None = None
    """Seconds without demand before the last pod goes; absent: KEDA's 300."""
    idle_replica_count: Annotated[int, Field(ge=0, le=REPLICAS)] | None = None
    """Replicas while no trigger is active, KEDA's idleReplicaCount; absent: minReplicas."""


class Autoscaling(Model):
    """A HorizontalPodAutoscaler (or KEDA) that scales by what speculation makes of each replica."""

    cel = (
        Rule(
            "self.minReplicas <= self.maxReplicas",
            "autoscaling.maxReplicas is below minReplicas: write a maxReplicas of at least minReplicas",
        ),
        Rule(
            "(self.minReplicas > 0 && !(has(self.keda) && has(self.keda.idleReplicaCount)))"
            # KEDA refuses cpu and memory alone, but not beside Tandem's trigger, which sees no demand at zero either.
            " || (self.source == 'KEDA' && has(self.keda) && has(self.keda.triggers)"
            " && self.keda.triggers.exists(t, has(t.type) && !(t.type in ['cpu', 'memory'])))"
            " || (self.source != 'KEDA' && has(self.metrics))",
            "autoscaling.minReplicas 0 and keda.idleReplicaCount 0 need a source that sees demand while there is"
            " no pod: write source: KEDA and keda.triggers of another type than cpu and memory, autoscaling.metrics"
            " (Kubernetes 1.37 or newer), or minReplicas: 1 without idleReplicaCount",
        ),
        Rule(
            "self.minReplicas > 0 || !has(self.keda) || !has(self.keda.idleReplicaCount)",
            "keda.idleReplicaCount must be below minReplicas (KEDA's rule): remove it, minReplicas 0 does the same",
        ),
        Rule(
            "!has(self.keda) || self.source == 'KEDA'",
            "autoscaling.keda is for source KEDA: write source: KEDA, or remove keda",
        ),
        Rule(
            "!has(self.metrics) || self.metrics.all(m, has(m.type) && m.type in ['Object', 'External'])",
            "autoscaling.metrics are of type Object or External: pods' own (Pods, Resource) see no demand where there"
            " are none; write type: External, or Object with an object of this namespace",
        ),
        Rule(
            "!has(self.metrics) || self.source != 'KEDA'",
            "autoscaling.metrics are the HorizontalPodAutoscaler's: with source KEDA write keda.triggers, or remove"
            " metrics",
        ),
    )
    min_replicas: Annotated[int, Field(ge=0, le=REPLICAS)] = 1
    """Fewest replicas. 0 needs what sees demand while there is no pod: source KEDA with a trigger, or `metrics` on
    Kubernetes 1.37 or newer."""
    max_replicas: Annotated[int, Field(ge=1, le=REPLICAS)]
    """Most replicas."""
    objectives: Objectives = Field(default_factory=Objectives, json_schema_extra={"default": {}})
    """What a replica must keep. Without any, replicas follow the load that `serving.maxBatchSize` sequences make."""
    source: AutoscalingSource = "Embedded"
    """Who brings the metric to the autoscaler. Embedded: Tandem's own metrics server (`tandem metrics run`).
    Prometheus: the Prometheus adapter, with the chart's rules. KEDA: a ScaledObject instead of an HPA."""
    keda: Keda | None = None
    """Source KEDA: what its ScaledObject gets in addition to Tandem's trigger."""
    metrics: Annotated[list[OwnMetric], Field(min_length=1, max_length=8)] | None = None
    """Sources Embedded and Prometheus: metrics of your own in addition to Tandem's, as the HPA spells them. The one
    that asks for most replicas counts. One that is there without pods (a queue, a gateway's request rate) makes
    minReplicas 0 possible on Kubernetes 1.37 or newer."""
    behavior: Passthrough | None = None
    """The HPA's `behavior`, merged over Tandem's: down no sooner than 240 s after the highest recommendation."""
