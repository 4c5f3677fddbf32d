"""HTTPRoute and InferencePool on the real API server; no gateway is here, its status is written by hand."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.core import Cluster

from .conftest import RESYNC_SECONDS, Namespace, OperatorProcess, quiet, wait_established, wait_for
from .gateway import CRDS, NAMES, POOL, ROUTE


@pytest.fixture
def definitions(cluster: Cluster) -> Iterator[None]:
    """What the test installed is removed."""
    yield
    cluster.kubectl.run("delete", "crd", *NAMES, "--ignore-not-found")


def report(namespace: Namespace, kind: str, status: str, reason: str) -> None:
    """As a gateway's controller does."""
    generation = namespace.get(kind, "svc-openai")["metadata"]["generation"]
    condition = {
        "type": "Accepted",
        "status": status,
        "reason": reason,
        "message": "by the test",
        "observedGeneration": generation,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    parent = {"parentRef": {"name": "public"}, "controllerName": "example.com/c", "conditions": [condition]}
    patch = json.dumps({"status": {"parents": [parent]}})
    namespace.run("patch", kind, "svc-openai", "--subresource=status", "--type=merge", "-p", patch)


def there(namespace: Namespace) -> list[Any]:
    return [*namespace.items("httproutes"), *namespace.items("inferencepools")]


def test_a_route_waits_for_its_definition_and_shows_what_the_gateway_reports(
    cluster: Cluster, operator: OperatorProcess, namespace: Namespace, definitions: None
) -> None:
    namespace.apply(serving={"openAI": {"route": ROUTE, "inferencePool": POOL}})
    namespace.wait("RouteAccepted", "False/InferencePoolMissing")
    namespace.wait("Ready", "True")
    cluster.kubectl.run("apply", "--server-side", "-f", str(CRDS))
    for name in NAMES:
        wait_established(cluster, name)
    namespace.wait("RouteAccepted", "Unknown/WaitingForGateway")
    assert [each["kind"] for each in there(namespace)] == ["HTTPRoute", "InferencePool"]
    for kind in ("httproutes", "inferencepools"):
        report(namespace, kind, "True", "Accepted")
    namespace.wait("RouteAccepted", "True/Accepted")
    report(namespace, "httproutes", "False", "NoMatchingListenerHostname")
    namespace.wait("RouteAccepted", "False/NoMatchingListenerHostname")
    assert "HTTPRoute svc-openai: Gateway public: by the test" in namespace.message("RouteAccepted")
    audit = quiet(cluster, namespace)
    time.sleep(2 * RESYNC_SECONDS)
    assert not audit.operator_writes(namespace), "the API server's defaults are no change"
    namespace.apply()
    wait_for("both to go", lambda: not there(namespace), log=operator.log)
    namespace.wait("Ready", "True")
    assert "RouteAccepted" not in namespace.conditions()
