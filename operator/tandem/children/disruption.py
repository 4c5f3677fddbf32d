"""PodDisruptionBudget: one replica at a time may be taken away."""

from typing import Any

from tandem import names
from tandem.api.types import SpeculativeInferenceService
from tandem.children.metadata import metadata


def disruption_budget(service: SpeculativeInferenceService) -> dict[str, Any]:
    """At most one pod of all replicas is evicted before the service is whole again.

    A group falls with any of its pods, so its workers count too: a node that is drained breaks one group, and the
    next has to wait. Pods that do not answer (starting, or broken) may always go: they serve no client.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(service, names.server(service.name), names.SERVER),
        "spec": {
            "maxUnavailable": 1,
            "selector": names.replica_selector(service.name),
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
