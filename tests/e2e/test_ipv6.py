"""A cluster of IPv6 alone: no pod and no Service has an address of IPv4, and all is as elsewhere."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import tritonclient.grpc as triton

from builder.build import Built
from cluster.errors import ClusterError

from .completions import PROMPTS, stream, text
from .conformance import in_cluster
from .conftest import Site, installed, wait_for

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def ipv6(images: list[Built]) -> Iterator[Site]:
    if not Path("/proc/sys/net/ipv6").exists():
        pytest.skip("this kernel has no IPv6")
    with installed("tandem-ipv6", images, ipv6=True) as made:
        yield made


def test_the_service_serves_and_is_measured(ipv6: Site) -> None:
    """Operator and metrics server reach the API server, it and the kubelet reach them, and clients the servers."""
    pods = [pod for namespace in ("default", "tandem-system") for pod in ipv6.items("pods", namespace=namespace)]
    addresses = [each["ip"] for pod in pods for each in pod["status"].get("podIPs", [])]
    services = [service["spec"]["clusterIP"] for service in ipv6.items("services", namespace="")]
    assert len(addresses) >= 4, "operator, two metrics servers, a server"
    assert {each for each in [*addresses, *services] if ":" not in each} <= {"None"}, "without an address: headless"

    with triton.InferenceServerClient(ipv6.address("quickstart")) as client:
        assert text(stream(client, PROMPTS[0], 4)) == text(stream(client, PROMPTS[0], 0))
    metric = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/speculativeinferenceservices.serving.tandem.dev"
    asked = ("get", "--raw", f"{metric}/quickstart/tandem_requests_running")
    (item,) = json.loads(wait_for("figures of the pods", lambda: asked_at(ipv6, *asked)))["items"]
    assert item["describedObject"]["name"] == "quickstart"


def test_conformance_as_a_job_of_the_chart(ipv6: Site, images: list[Built]) -> None:
    """By its service account and the names of the cluster's DNS."""
    succeeded, report = in_cluster(ipv6, images)
    assert {case["outcome"] for case in report["cases"]} == {"verified"}, report["cases"]
    assert succeeded
    assert "their sequences are gone" in report["cases"][2]["detail"], "the pods' metrics were read"
    assert report["node"]["kubelet"].startswith("v1.")
    assert report["pods"]["pods"] == 1


def asked_at(site: Site, *arguments: str) -> str:
    """What kubectl prints; empty while it fails."""
    try:
        return site.run(*arguments)
    except ClusterError:
        return ""
