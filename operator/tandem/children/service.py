"""Service in front of the Triton pods."""

from typing import Any

from tandem import names
from tandem.api import ports
from tandem.api.types import SpeculativeInferenceService
from tandem.children.metadata import metadata


def endpoint(service: SpeculativeInferenceService) -> dict[str, Any]:
    """One virtual address for HTTP, gRPC and metrics of all ready pods, whatever their revision."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(service, names.endpoint(service.name), names.SERVER),
        "spec": {
            "type": "ClusterIP",
            "selector": names.selector(service.name),
            "ports": [
                {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}
                for name, port in ports.SERVER.items()
            ],
        },
    }


def url(service: SpeculativeInferenceService) -> str:
    """HTTP address of the service inside the cluster."""
    return f"http://{names.endpoint(service.name)}.{service.namespace}.svc:{ports.HTTP}"
