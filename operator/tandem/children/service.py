"""Service in front of the Triton pods."""

from typing import Any

from tandem import names
from tandem.api import ports
from tandem.api.types import SpeculativeInferenceService
from tandem.children.metadata import metadata
from tandem.render import Revision


def endpoint(service: SpeculativeInferenceService) -> dict[str, Any]:
    """One virtual address for HTTP, gRPC, metrics and the OpenAI endpoint of all ready pods, whatever their
    revision."""
    openai = service.spec.serving.open_ai
    numbers = {**ports.SERVER, **({"openai": openai.port} if openai.enabled else {})}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(service, names.endpoint(service.name), names.SERVER),
        "spec": {
            "type": "ClusterIP",
            "selector": names.selector(service.name),
            "ports": [
                {"name": name, "port": port, "targetPort": name, "protocol": "TCP"} for name, port in numbers.items()
            ],
        },
    }


def url(service: SpeculativeInferenceService) -> str:
    """HTTP address of the service inside the cluster."""
    return f"http://{names.endpoint(service.name)}.{service.namespace}.svc:{ports.HTTP}"


def openai_url(service: SpeculativeInferenceService, revision: Revision | None) -> str | None:
    """Base URL of the OpenAI endpoint inside the cluster, as OpenAI's clients take it; None where the servers of
    `revision` have none: older ones serve on without."""
    openai = service.spec.serving.open_ai
    containers = revision.pod["containers"] if revision else []
    if not any(port["name"] == "openai" for each in containers for port in each.get("ports", ())):
        return None
    scheme = "https" if openai.tls_secret else "http"
    return f"{scheme}://{names.endpoint(service.name)}.{service.namespace}.svc:{openai.port}/v1"
