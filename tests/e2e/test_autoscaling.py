"""Autoscaling on the real kubelet: load on a served pair brings replicas, and they go again when it ends.

All of it is what users get: the metrics server of the chart behind the API server, the real HPA, the scheduler.
"""

import asyncio
import json
import math
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from cluster.errors import ClusterError

from .completions import DIGITS, KNOWN, MAX_TOKENS, PROMPTS, complete, stream
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
HELD_SECONDS = 20  # the HPA looks every 5 s here, and may go down at once (AT_ONCE)
PAUSE_SECONDS = 0.2  # of a client between two completions: the pods, the HPA and its metrics share two cores
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
"""Else the clients of a process share one, which stays with its pod while any of them is open."""
METRICS = (
    "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/speculativeinferenceservices.serving.tandem.dev/" + NAME
)


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


@contextmanager
def steady(site: Site, prompts: Sequence[str], seconds: float) -> Iterator[None]:
    """A completion is begun every so many seconds, whether or not those before are done: an open loop."""
    over, address = threading.Event(), site.address(NAME)

    async def send() -> None:
        async with asyncio.TaskGroup() as group:
            sent, started = [], time.monotonic()
            for number, prompt in enumerate(cycle(prompts), 1):
                sent.append(group.create_task(complete(address, prompt, 7)))
                if await asyncio.to_thread(over.wait, started + number * seconds - time.monotonic()):
                    break
            for each in sent:
                each.cancel()

    with ThreadPoolExecutor(1) as thread:
        sending = thread.submit(lambda: asyncio.run(send()))
        try:
            yield
        finally:
            over.set()
            sending.result()


def seconds_alone(site: Site) -> float:
    """How long a completion takes that the draft guesses, beside no other."""
    took = []
    with triton.InferenceServerClient(site.address(NAME)) as connection:
        for _ in range(9):
            started = time.monotonic()
            stream(connection, KNOWN[0], 7)
            took.append(time.monotonic() - started)
    return statistics.median(took)


def metric(site: Site, name: str) -> float:
    """What autoscalers are told now; NaN while nothing is known."""
    try:
        value = str(json.loads(site.run("get", "--raw", f"{METRICS}/{name}"))["items"][0]["value"])
    except ClusterError:
        return math.nan
    return float(value[:-1]) / 1000 if value.endswith("m") else float(value)


def replicas(site: Site) -> int:
    """What the HPA wrote through /scale."""
    return int(site.get("sis", NAME)["spec"]["replicas"])


def told_of(site: Site, acceptance: tuple[float, float], replicas: int) -> dict[str, Any] | None:
    """The status once it tells of a draft of which between so much comes true, and of so many replicas."""
    status: dict[str, Any] = site.get("sis", NAME)["status"]
    least, most = acceptance
    guessed = least <= status.get("speculation", {}).get("acceptanceRate", -1) <= most
    return status if guessed and status.get("autoscaling", {}).get("desiredReplicas") == replicas else None


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


@pytest.mark.timeout(1800)
def test_load_brings_replicas_that_share_it_and_they_go_with_it(site: Site, scaled: str) -> None:
    assert replicas(site) == 1
    with load(site, STREAMS):
        wait_for("more replicas", lambda: replicas(site) > 1, 240)
        site.wait_condition(scaled, "Ready", "True")
        before = tokens_by_pod(site)
        wait_for("new pods to take their share", lambda: shared(before, tokens_by_pod(site)), 240)
        told = wait_for("the status to tell of it", lambda: told_of_demand(site), 240)
        assert 1 < told["speculation"]["meanAcceptedLength"] <= 7
        site.wait_condition(scaled, "SpeculationActive", "True")
        site.wait_condition(scaled, "ScalingActive", "True")
    wait_for("one replica without load", lambda: replicas(site) == 1, 240)


def told_of_demand(site: Site) -> dict[str, Any] | None:
    """The status when it tells of two replicas that demand asks for; a minute before, of the queue that one had."""
    told = told_of(site, (0.2, 1), 2)
    return told if told and "tokens/s are requested" in told["autoscaling"]["message"] else None


def shared(before: dict[str, float], now: dict[str, float]) -> bool:
    """Whether each pod made at least a third of what it would make if all made the same."""
    made = [now[name] - before.get(name, 0.0) for name in now]
    return len(made) > 1 and min(made) >= sum(made) / len(made) / 3 > 0


def one_is_enough(site: Site, apart: float) -> dict[str, Any] | None:
    """The status after half a minute of texts that the draft guesses; None where another replica was added."""
    with steady(site, KNOWN, apart):
        # Either metrics server may answer, and knows what it read itself.
        wait_for("figures", lambda: metric(site, "tandem_tokens_per_second") > 0.8 * MAX_TOKENS / apart, 240)
        wait_for("figures of drafts", lambda: metric(site, "tandem_acceptance_rate") > 0.9)
        begun, told = time.monotonic(), None
        while replicas(site) == 1:
            told = told or told_of(site, (0.9, 1), 1)
            if told and time.monotonic() > begun + 30:
                return told
            assert time.monotonic() < begun + 240, "the status does not tell of it"
            time.sleep(0.5)
        return None


@pytest.mark.timeout(1800)
def test_acceptance_that_collapses_raises_replicas_at_the_same_rate(site: Site, scaled: str) -> None:
    """As many completions, as long as before, of texts that the draft does not guess: each takes five times as long.

    No objective is set: demand and what a replica can do decide alone. Whoever took no notice of acceptance would see
    a queue, and add replicas for that: what the status says of a replica's capacity tells the two apart.
    """
    site.apply(NAME, **SPEC | {"autoscaling": SPEC["autoscaling"] | {"objectives": {}}})
    # A quarter of a place is in use, then five quarters: one replica of two places is enough for half a one, with the
    # reserve for chance. A machine that becomes twice as slow or as fast meanwhile is still between the two; where it
    # became slower than that, its speed is measured again.
    for _ in range(3):
        apart = 4 * seconds_alone(site)
        if guessed := one_is_enough(site, apart):
            break
        wait_for("one replica without load", lambda: replicas(site) == 1, 240)
    assert guessed, "one replica is enough for a quarter of a place"
    asked = MAX_TOKENS / apart
    with steady(site, DIGITS, apart):
        wait_for("more replicas", lambda: replicas(site) > 1, 240)
        told = wait_for("the status to tell of it", lambda: told_of(site, (0, 0.3), 2), 240)
        assert told["autoscaling"]["signal"] == "Demand"
        assert told["autoscaling"]["value"] < 2 * asked, "no more is asked for than before, but for what waits"
        could = guessed["autoscaling"]["capacityPerReplica"]  # how much more depends on what else the machine does
        assert told["autoscaling"]["capacityPerReplica"] < could, "of which a replica can do less"
        site.wait_condition(scaled, "SpeculationActive", "True")
    with steady(site, KNOWN, apart):
        wait_for("one replica to be enough again", lambda: replicas(site) == 1, 240)


@pytest.mark.timeout(1800)
def test_without_figures_replicas_stay(site: Site, scaled: str) -> None:
    """Two replicas without load, of which the autoscaler may take one at once: it does when there are figures."""
    site.apply(NAME, **SPEC | {"autoscaling": SPEC["autoscaling"] | {"minReplicas": 2}})
    wait_for("two replicas", lambda: replicas(site) == 2, 240)
    site.wait_condition(scaled, "Ready", "True")
    site.run("scale", "-n", "tandem-system", "deployment/tandem-metrics", "--replicas=0")
    try:
        site.wait_condition(scaled, "ScalingActive", "False")
        site.apply(NAME, **SPEC | {"autoscaling": SPEC["autoscaling"] | {"minReplicas": 1}})
        wait_for("the autoscaler to be told", lambda: fewest(site) == 1)
        until = time.monotonic() + HELD_SECONDS
        while time.monotonic() < until:
            assert replicas(site) == 2
            time.sleep(0.5)
        site.wait_condition(scaled, "ScalingActive", "False")
        site.wait_condition(scaled, "Ready", "True")
        assert len(site.server_pods(NAME)) == 2
    finally:
        site.run("scale", "-n", "tandem-system", "deployment/tandem-metrics", "--replicas=2")
    site.wait_condition(scaled, "ScalingActive", "True")
    wait_for("one replica without load", lambda: replicas(site) == 1, 240)


def fewest(site: Site) -> int:
    """What the service's HPA takes for the least."""
    (autoscaler,) = site.items("horizontalpodautoscalers", site.label(NAME))
    return int(autoscaler["spec"]["minReplicas"])


def test_the_quickstart_is_not_scaled(site: Site) -> None:
    assert "autoscaling" not in QUICKSTART.read_text()
    assert not site.items("horizontalpodautoscalers", site.label("quickstart"))
