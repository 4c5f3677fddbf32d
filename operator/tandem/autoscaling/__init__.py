"""The autoscaling sources: one object for each value of `autoscaling.source`, with all that differs between them.

Pure. Whoever would ask which source a service has asks the source's object instead. Everything that builds, reads or
judges an autoscaler may import it; it imports the API types and the settings alone.
"""

from collections.abc import Mapping

from tandem.api.types import Autoscaling, AutoscalingSource
from tandem.autoscaling.horizontal import Embedded, PrometheusAdapter
from tandem.autoscaling.keda import KedaSource
from tandem.autoscaling.source import REPLICAS_NEEDED, KubernetesVersion, ScalingSource

__all__ = ["REPLICAS_NEEDED", "SOURCES", "KubernetesVersion", "ScalingSource", "source_of"]

SOURCES: Mapping[AutoscalingSource, ScalingSource] = {
    "Embedded": Embedded(),
    "Prometheus": PrometheusAdapter(),
    "KEDA": KedaSource(),
}
"""By the value of `autoscaling.source`."""


def source_of(scaling: Autoscaling) -> ScalingSource:
    """The source that a service asks for."""
    return SOURCES[scaling.source]
