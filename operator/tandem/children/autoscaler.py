"""Who decides the replicas: a HorizontalPodAutoscaler, or KEDA's ScaledObject, which makes one itself.

Both write our /scale, and both hold one figure against 1: the replicas that the load needs, a fraction. The
autoscaler rounds it up, and keeps its own tolerance of 10 %. A smaller one is the user's to write: Kubernetes 1.35
(HPAConfigurableTolerance) and KEDA 2.18 are the first that take it, and one that does not know it refuses the object.
"""

from collections.abc import Mapping
from typing import Any

from tandem import names
from tandem.api import API_VERSION, KIND
from tandem.api.types import Autoscaling, SpeculativeInferenceService
from tandem.children.metadata import metadata
from tandem.settings import KedaSettings, Settings

REPLICAS_NEEDED = "tandem_replicas_needed"
"""Custom metric of our kind, and series of the metrics server."""
NAMED = {"name": "tandem", "metricType": "AverageValue"}
"""KEDA's words for the same: of the trigger, and of what it is held against."""
BEHAVIOR: Mapping[str, Mapping[str, Any]] = {
    # Servers load for minutes: what was asked for must be able to help before more is.
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Percent", "value": 100, "periodSeconds": 60},
            {"type": "Pods", "value": 4, "periodSeconds": 60},
        ],
    },
    "scaleDown": {"stabilizationWindowSeconds": 240},
}
"""The autoscaler's behaviour; `autoscaling.behavior` is merged over it, field by field of each direction."""


def autoscaler(service: SpeculativeInferenceService, settings: Settings) -> dict[str, Any] | None:
    """HorizontalPodAutoscaler or ScaledObject; None where the service asks for none, or KEDA has nobody to ask."""
    wanted = service.spec.autoscaling
    if wanted is None:
        return None
    if wanted.source != "KEDA":
        return _horizontal_pod_autoscaler(service, wanted)
    triggers = [*_triggers(service, settings), *(wanted.keda.triggers if wanted.keda else ())]
    return _scaled_object(service, wanted, triggers) if triggers else None


def _horizontal_pod_autoscaler(service: SpeculativeInferenceService, wanted: Autoscaling) -> dict[str, Any]:
    """The same for Embedded and Prometheus: they differ in who answers for the custom metric."""
    ours = _reference(service)
    metric = {
        "type": "Object",
        "object": {
            "describedObject": ours,
            "metric": {"name": REPLICAS_NEEDED},
            "target": {"type": "AverageValue", "averageValue": "1"},
        },
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata(service, names.server(service.name), names.SERVER),
        "spec": {
            "scaleTargetRef": ours,
            "minReplicas": max(1, wanted.min_replicas),
            "maxReplicas": wanted.max_replicas,
            "metrics": [metric],
            "behavior": _behavior(wanted),
        },
    }


def _scaled_object(
    service: SpeculativeInferenceService, wanted: Autoscaling, triggers: list[dict[str, Any]]
) -> dict[str, Any]:
    """https://keda.sh/docs/latest/reference/scaledobject-spec/. No fallback: without figures, replicas are held."""
    keda = wanted.keda
    own: dict[str, Any] = {
        "pollingInterval": keda and keda.polling_interval,
        "cooldownPeriod": keda and keda.cooldown_period,
        "idleReplicaCount": keda and keda.idle_replica_count,
    }
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": metadata(service, names.server(service.name), names.SERVER),
        "spec": {
            "scaleTargetRef": _reference(service),
            "minReplicaCount": wanted.min_replicas,
            "maxReplicaCount": wanted.max_replicas,
            **{field: value for field, value in own.items() if value is not None},
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(wanted)}},
            "triggers": triggers,
        },
    }


def _triggers(service: SpeculativeInferenceService, settings: Settings) -> list[dict[str, Any]]:
    """The metrics server's report, or its series in Prometheus where one is named; none without either."""
    if settings.keda.prometheus_url:
        return [_prometheus(service, settings.keda)]
    return [_report(service, settings)] if settings.reports.url else []


def _report(service: SpeculativeInferenceService, settings: Settings) -> dict[str, Any]:
    """https://keda.sh/docs/latest/scalers/metrics-api/."""
    report = {
        "url": f"{settings.reports.url}/v1/services/{service.namespace}/{service.name}",
        "valueLocation": "decision.load",
        "targetValue": "1",
        "authMode": "bearer",
        **({"unsafeSsl": "true"} if settings.keda.unsafe_ssl else {}),
    }
    return {"type": "metrics-api", **NAMED, "metadata": report, **_authenticated(settings.keda.authentication)}


def _prometheus(service: SpeculativeInferenceService, keda: KedaSettings) -> dict[str, Any]:
    """https://keda.sh/docs/latest/scalers/prometheus/."""
    labels = f'namespace="{service.namespace}",{KIND.lower()}="{service.name}"'
    shown = {
        "authModes": ",".join(keda.prometheus.auth_modes),
        "customHeaders": ",".join(f"{name}={value}" for name, value in keda.prometheus.headers.items()),
    }
    query = {
        "serverAddress": keda.prometheus_url,
        "query": f"max({REPLICAS_NEEDED}{{{labels}}})",
        "threshold": "1",
        # No series is no figure; without this KEDA takes it for 0.
        "ignoreNullValues": "false",
        **{name: value for name, value in shown.items() if value},
    }
    return {"type": "prometheus", **NAMED, "metadata": query, **_authenticated(keda.prometheus.authentication)}


def _authenticated(name: str) -> dict[str, Any]:
    """By a ClusterTriggerAuthentication, if any: what it holds is KEDA's to read, and no namespace's."""
    return {"authenticationRef": {"name": name, "kind": "ClusterTriggerAuthentication"}} if name else {}


def _reference(service: SpeculativeInferenceService) -> dict[str, str]:
    return {"apiVersion": API_VERSION, "kind": KIND, "name": service.name}


def _behavior(wanted: Autoscaling) -> dict[str, Any]:
    own = wanted.behavior or {}
    merged: dict[str, Any] = {direction: dict(rules) for direction, rules in BEHAVIOR.items()}
    for direction, rules in own.items():
        # What is no mapping is the API server's to refuse.
        merged[direction] = {**merged.get(direction, {}), **rules} if isinstance(rules, Mapping) else rules
    return merged
