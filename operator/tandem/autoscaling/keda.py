"""Source KEDA: a ScaledObject, of which KEDA makes a HorizontalPodAutoscaler itself.

KEDA 2.18 is the first that takes a `tolerance` in `behavior`; one that does not know it refuses the object.
"""

from typing import Any

from tandem.api import KIND
from tandem.api.conditions import SpecReason
from tandem.api.types import Autoscaling, SpeculativeInferenceService
from tandem.autoscaling import triggers
from tandem.autoscaling.source import REPLICAS_NEEDED, ScalingSource, behavior, scale_target
from tandem.settings import KedaSettings, Settings

NAMED = {"name": "tandem", "metricType": "AverageValue"}
"""Name of Tandem's trigger, and what its value is held against: 1 for each replica."""


class KedaSource(ScalingSource):
    """KEDA asks the metrics server, or a Prometheus that scrapes it, and the triggers of the user's own."""

    api_version, kind, plural = "keda.sh/v1alpha1", "ScaledObject", "scaledobjects"
    # Ready is KEDA's view of the object, HPAActive that of the HorizontalPodAutoscaler that KEDA makes.
    conditions = ("Ready", "HPAActive")
    install = "autoscaling.source KEDA makes one; install https://keda.sh, or write source: Embedded"
    no_metrics = (
        "autoscaling.source is KEDA, and there is no metrics server for it: run one (Helm values:"
        " metricsServer.enabled, and no namespaces), name a Prometheus that scrapes one (keda.prometheusUrl), or"
        " write autoscaling.keda.triggers"
    )

    def spec(
        self, service: SpeculativeInferenceService, scaling: Autoscaling, settings: Settings
    ) -> dict[str, Any] | None:
        """No fallback: without metrics, replicas stay as they are; a fallback would start services that are at zero
        (docs/how-to/keda.md).

        https://keda.sh/docs/latest/reference/scaledobject-spec/
        """
        keda = scaling.keda
        wanted = [*_triggers(service, settings), *(keda.triggers if keda else ())]
        if not wanted:
            return None
        own: dict[str, Any] = {
            "pollingInterval": keda and keda.polling_interval,
            "cooldownPeriod": keda and keda.cooldown_period,
            "idleReplicaCount": keda and keda.idle_replica_count,
        }
        return {
            "scaleTargetRef": scale_target(service),
            "minReplicaCount": scaling.min_replicas,
            "maxReplicaCount": scaling.max_replicas,
            **{field: value for field, value in own.items() if value is not None},
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior(scaling)}},
            "triggers": wanted,
        }

    def refusal(self, scaling: Autoscaling, settings: Settings) -> tuple[SpecReason, str] | None:
        """See `tandem.autoscaling.triggers`."""
        return triggers.refusal(scaling.keda.triggers if scaling.keda else (), settings.keda.allowed_triggers)

    def goes_idle(self, scaling: Autoscaling) -> bool:
        """By `keda.idleReplicaCount`, which can only be 0."""
        return scaling.keda is not None and scaling.keda.idle_replica_count is not None


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
    return {"authenticationRef": {"name": name, "kind": triggers.CLUSTER_WIDE}} if name else {}
