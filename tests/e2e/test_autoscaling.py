"""Autoscaling on the real kubelet: load on a served pair brings replicas, and they go again when it ends.

All of it is what users get: the metrics server of the chart behind the API server, the real HPA, the scheduler. What
becomes of figures, and of replicas without any, is in `tests/integration/test_metrics_server.py`.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from cluster.errors import ClusterError

from .completions import PROMPTS, stream
from .conftest import QUICKSTART, Site, wait_for

NAME = "scaled"
AT_ONCE = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 4, "periodSeconds": 5}]}
SPEC: dict[str, Any] = {
    "autoscaling": {
        "maxReplicas": 2,  # what a node of 2 cores has room for beside the quickstart
        "objectives": {"queueLength": 1},
        "behavior": {"scaleUp": AT_ONCE, "scaleDown": AT_ONCE},
    },
    "serving": {"maxBatchSize": 2},
    "speculation": {"decodingType": "DraftTarget", "maxDraftLen": 7, "adaptive": {"enabled": False}},
}
STREAMS = 6
WAIT_SECONDS = 480  # of each step: a busy machine's second replica loads for minutes
PAUSE_SECONDS = 0.2  # of a client between two completions: the pods, the HPA and its metrics share two cores
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
"""Else the clients of a process share one, which stays with its pod while any of them is open."""


@pytest.fixture(scope="module")
def scaled(site: Site) -> Iterator[str]:
    site.apply(NAME, **SPEC)
    site.wait_condition(NAME, "Ready", "True")
    yield NAME
    site.run("delete", "sis", NAME)


@contextmanager
def load(site: Site, streams: int) -> Iterator[None]:
    """So many clients, each of which connects anew for every completion: a new connection may go to a new pod."""
    over, failed, address = threading.Event(), [], site.address(NAME)

    def client() -> None:
        while not over.wait(PAUSE_SECONDS):
            try:
                with triton.InferenceServerClient(address, channel_args=OWN_CONNECTION) as connection:
                    stream(connection, PROMPTS[0], 6)
            except (AssertionError, InferenceServerException) as error:
                failed.append(error)
                return

    clients = [threading.Thread(target=client) for _ in range(streams)]
    for each in clients:
        each.start()
    try:
        yield
    finally:
        over.set()
        for each in clients:
            each.join()
    assert not failed, failed


def replicas(site: Site) -> int:
    """What the HPA wrote through /scale."""
    return int(site.get("sis", NAME)["spec"]["replicas"])


def reported(site: Site, replicas: int) -> dict[str, Any] | None:
    """The status once it has an acceptance rate of traffic, and so many replicas that the load asks for."""
    status: dict[str, Any] = site.get("sis", NAME)["status"]
    accepted = 0.2 <= status.get("speculation", {}).get("acceptanceRate", -1) <= 1
    return status if accepted and status.get("autoscaling", {}).get("desiredReplicas") == replicas else None


def tokens_by_pod(site: Site) -> dict[str, float]:
    """Tokens that each server pod has generated, from its own metrics; without those that do not answer."""
    found = {}
    for pod in site.items("pods", site.label(NAME, "server")):
        name = pod["metadata"]["name"]
        try:
            page = site.run("get", "--raw", f"/api/v1/namespaces/default/pods/{name}:8002/proxy/metrics")
        except ClusterError:
            continue  # it starts, or goes
        values = [line.split()[-1] for line in page.splitlines() if line.startswith("tandem_generation_tokens_total")]
        found[name] = float(values[0]) if values else 0.0
    return found


@pytest.mark.timeout(4 * WAIT_SECONDS + 600)
def test_load_brings_replicas_that_share_it_and_they_go_with_it(site: Site, scaled: str) -> None:
    assert replicas(site) == 1
    with load(site, STREAMS):
        wait_for("more replicas", lambda: replicas(site) > 1, WAIT_SECONDS)
        site.wait_condition(scaled, "Ready", "True")
        before = tokens_by_pod(site)
        wait_for("new pods to take their share", lambda: shared(before, tokens_by_pod(site)), WAIT_SECONDS)
        status = wait_for("the status to report it", lambda: reported(site, replicas=2), WAIT_SECONDS)
        assert 1 < status["speculation"]["meanAcceptedLength"] <= 7
        site.wait_condition(scaled, "SpeculationActive", "True")
        site.wait_condition(scaled, "ScalingActive", "True")
    wait_for("one replica without load", lambda: replicas(site) == 1, WAIT_SECONDS)


def shared(before: dict[str, float], now: dict[str, float]) -> bool:
    """Whether each pod made at least a third of what it would make if all made the same."""
    made = [now[name] - before.get(name, 0.0) for name in now]
    return len(made) > 1 and min(made) >= sum(made) / len(made) / 3 > 0


def test_the_quickstart_is_not_scaled(site: Site) -> None:
    assert "autoscaling" not in QUICKSTART.read_text()
    assert not site.items("horizontalpodautoscalers", site.label("quickstart"))
