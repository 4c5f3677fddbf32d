"""A cluster of IPv6 alone: no pod and no Service has an address of IPv4, and all is as elsewhere."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import tritonclient.grpc as triton

from builder.build import Built

from .completions import PROMPTS, stream, text
from .conftest import Site, installed
from .test_conformance import conformance


@pytest.fixture(scope="module")
def ipv6(images: list[Built]) -> Iterator[Site]:
    with installed("tandem-ipv6", images, ipv6=True) as made:
        yield made


def test_the_service_serves_and_is_measured(ipv6: Site, tmp_path: Path) -> None:
    """Operator and metrics server reach the API server, it and the kubelet reach them, and clients the servers."""
    pods = [pod for namespace in ("default", "tandem-system") for pod in ipv6.items("pods", namespace=namespace)]
    addresses = [each["ip"] for pod in pods for each in pod["status"].get("podIPs", [])]
    services = [service["spec"]["clusterIP"] for service in ipv6.items("services", namespace="")]
    assert len(addresses) >= 4, "operator, two metrics servers, a server"
    assert {each for each in [*addresses, *services] if ":" not in each} <= {"None"}, "without an address: headless"

    with triton.InferenceServerClient(ipv6.address("quickstart")) as client:
        assert text(stream(client, PROMPTS[0], 4)) == text(stream(client, PROMPTS[0], 0))
    ipv6.wait_condition("quickstart", "SpeculationActive", "True", 60)
    assert ipv6.conditions("quickstart")["MetricsAvailable"]["reason"] == "Reported"
    code, report = conformance(ipv6, tmp_path / "report", "quickstart")
    assert code == 0
    assert "their sequences are gone" in report["cases"][2]["detail"], "the pods' metrics came through the API server"
