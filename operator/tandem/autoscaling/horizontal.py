"""Sources that make a HorizontalPodAutoscaler: they differ in who answers for the custom metric."""

from typing import Any

from tandem.api.types import Autoscaling, SpeculativeInferenceService
from tandem.autoscaling.source import REPLICAS_NEEDED, KubernetesVersion, ScalingSource, behavior, scale_target
from tandem.settings import Settings

TO_ZERO: KubernetesVersion = (1, 37)
"""The first whose gate HPAScaleToZero is on by default (pkg/features/kube_features.go)."""


class HorizontalPodAutoscaler(ScalingSource):
    """Reads the metric of our object from the cluster's custom metrics API."""

    api_version, kind, plural = "autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"
    conditions = ("ScalingActive", "AbleToScale")

    def spec(self, service: SpeculativeInferenceService, scaling: Autoscaling, settings: Settings) -> dict[str, Any]:
        """The same for every source of this kind."""
        target = scale_target(service)
        metric = {
            "type": "Object",
            "object": {
                "describedObject": target,
                "metric": {"name": REPLICAS_NEEDED},
                "target": {"type": "AverageValue", "averageValue": "1"},
            },
        }
        return {
            "scaleTargetRef": target,
            "minReplicas": scaling.min_replicas,
            "maxReplicas": scaling.max_replicas,
            "metrics": [metric, *(scaling.metrics or ())],
            "behavior": behavior(scaling),
        }

    def least_kubernetes(self, scaling: Autoscaling) -> KubernetesVersion | None:
        """Before, the API server refuses minReplicas 0."""
        return TO_ZERO if scaling.min_replicas == 0 else None


class Embedded(HorizontalPodAutoscaler):
    """`tandem metrics run` answers, which the APIService of the custom metrics API points at."""

    needs_api_service = True


class PrometheusAdapter(HorizontalPodAutoscaler):
    """The Prometheus adapter answers, from the series of `tandem metrics run`: charts/tandem/files has its rules."""
