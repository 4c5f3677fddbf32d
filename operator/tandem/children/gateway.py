"""HTTPRoute and InferencePool: how a gateway reaches the OpenAI endpoint.

Defaults of the API server are written out: in atomic lists they look like somebody else's change.
"""

from typing import Any

from tandem import names
from tandem.api import ports
from tandem.api.types import SpeculativeInferenceService
from tandem.children.metadata import metadata

POOL = "InferencePool"
POOL_GROUP = "inference.networking.k8s.io"
BASE = "/v1"
"""All that is routed: figures and probes are the cluster's own."""


def http_route(service: SpeculativeInferenceService) -> dict[str, Any] | None:
    """https://gateway-api.sigs.k8s.io/reference/spec/#httproute. None where the service asks for none."""
    openai = service.spec.serving.open_ai
    if not openai.enabled or openai.route is None:
        return None
    route = openai.route
    rule: dict[str, Any] = {
        "matches": [{"path": {"type": "PathPrefix", "value": f"{route.path or ''}{BASE}"}}],
        "backendRefs": [_backend(service)],
        # Gateways have time limits of their own, which end streams.
        "timeouts": {"request": f"{service.spec.serving.request_timeout_seconds}s"},
    }
    if route.path:
        rewritten = {"type": "ReplacePrefixMatch", "replacePrefixMatch": BASE}
        rule["filters"] = [{"type": "URLRewrite", "urlRewrite": {"path": rewritten}}]
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": metadata(service, names.openai(service.name), names.SERVER),
        "spec": {
            "parentRefs": [each.model_dump(by_alias=True, exclude_none=True) for each in route.parent_refs],
            **({"hostnames": list(route.hostnames)} if route.hostnames else {}),
            "rules": [rule],
        },
    }


def inference_pool(service: SpeculativeInferenceService) -> dict[str, Any] | None:
    """https://gateway-api-inference-extension.sigs.k8s.io/api-types/inferencepool. None where the service asks for
    none."""
    openai = service.spec.serving.open_ai
    if not openai.enabled or openai.inference_pool is None:
        return None
    picker = openai.inference_pool.endpoint_picker_ref
    return {
        "apiVersion": f"{POOL_GROUP}/v1",
        "kind": POOL,
        "metadata": metadata(service, names.openai(service.name), names.SERVER),
        "spec": {
            "selector": {"matchLabels": names.selector(service.name)},
            "targetPorts": [{"number": ports.OPENAI}],
            "endpointPickerRef": {
                "group": "",
                "kind": "Service",
                "name": picker.name,
                "port": {"number": picker.port},
                "failureMode": picker.failure_mode,
            },
        },
    }


def _backend(service: SpeculativeInferenceService) -> dict[str, Any]:
    openai = service.spec.serving.open_ai
    if openai.inference_pool:
        return {"group": POOL_GROUP, "kind": POOL, "name": names.openai(service.name), "weight": 1}
    name = names.endpoint(service.name)
    return {"group": "", "kind": "Service", "name": name, "port": openai.port, "weight": 1}
