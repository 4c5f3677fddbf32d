"""Sources that make a HorizontalPodAutoscaler: they differ in who answers for the custom metric."""

from typing import Any

from tandem.api.types import Autoscaling, SpeculativeInferenceService
from tandem.autoscaling.source import REPLICAS_NEEDED, ScalingSource, behavior, scale_target
from tandem.settings import Settings


class HorizontalPodAutoscaler(ScalingSource):
    """Reads the metric of our object from the cluster's custom metrics API."""

    api_version, kind, plural = "autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"
    conditions = ("ScalingActive", "AbleToScale")

    def spec(self, service: SpeculativeInferenceService, scaling: Autoscaling, settings: Settings) -> dict[str, Any]:
        """The same for every source of this kind. At least one replica: an HPA sees no demand without pods."""
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
            "minReplicas": max(1, scaling.min_replicas),
            "maxReplicas": scaling.max_replicas,
            "metrics": [metric],
            "behavior": behavior(scaling),
        }


class Embedded(HorizontalPodAutoscaler):
    """`tandem metrics run` answers, which the APIService of the custom metrics API points at."""

    needs_api_service = True


class PrometheusAdapter(HorizontalPodAutoscaler):
    """The Prometheus adapter answers, from the series of `tandem metrics run`: charts/tandem/files has its rules."""
