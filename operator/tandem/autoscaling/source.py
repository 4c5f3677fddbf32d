"""What an autoscaling source is, and what the objects of all of them share."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from tandem.api import API_VERSION, KIND
from tandem.api.conditions import SpecReason
from tandem.api.types import Autoscaling, SpeculativeInferenceService
from tandem.settings import Settings

KubernetesVersion = tuple[int, int]
"""Major and minor."""
REPLICAS_NEEDED = "tandem_replicas_needed"
"""Custom metric of our kind, and series of the metrics server: the replicas that the load needs, a fraction.

Every source holds it against 1 for each replica. The autoscaler rounds it up, and keeps its own tolerance of 10 %. A
smaller one is the user's to write: Kubernetes 1.35 is the first that takes it (HPAConfigurableTolerance), and older
ones refuse the object.
"""
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


class ScalingSource(ABC):
    """Who brings the metric to the autoscaler, and by which object: it writes our /scale."""

    api_version: str
    """API group and version of the object."""
    kind: str
    plural: str
    """The kind's name in URLs and in RBAC."""
    conditions: tuple[str, ...]
    """Types of the object's own conditions that say whether it works: the worst is shown as `ScalingActive`."""
    install: str = ""
    """What to install, or to write instead, where the cluster lacks the kind; empty: every cluster has it."""
    needs_api_service: bool = False
    """Whether it reads the cluster's custom metrics API, and Tandem's own metrics server must answer there."""
    no_metrics: str = ""
    """What to write where the settings give it nothing to read (`spec` is None); empty: that cannot be."""

    @abstractmethod
    def spec(
        self, service: SpeculativeInferenceService, scaling: Autoscaling, settings: Settings
    ) -> dict[str, Any] | None:
        """The object's `spec`; None where there are no metrics that it could read."""

    def refusal(self, scaling: Autoscaling, settings: Settings) -> tuple[SpecReason, str] | None:
        """Why the operator does not make what is asked for: the reason, and what to write instead."""
        return None

    def least_kubernetes(self, scaling: Autoscaling) -> KubernetesVersion | None:
        """The first release of Kubernetes that does what is asked for; None: whichever there is."""
        return None

    def goes_idle(self, scaling: Autoscaling) -> bool:
        """Whether all replicas may go where there is no demand, though `minReplicas` is more."""
        return False


def scale_target(service: SpeculativeInferenceService) -> dict[str, str]:
    """The service, as its autoscaler refers to it."""
    return {"apiVersion": API_VERSION, "kind": KIND, "name": service.name}


def behavior(scaling: Autoscaling) -> dict[str, Any]:
    """`BEHAVIOR`, with the service's own merged over it."""
    merged: dict[str, Any] = {direction: dict(rules) for direction, rules in BEHAVIOR.items()}
    for direction, rules in (scaling.behavior or {}).items():
        # What is no mapping is the API server's to refuse.
        merged[direction] = {**merged.get(direction, {}), **rules} if isinstance(rules, Mapping) else rules
    return merged
