"""An engine that hangs in one of two replicas on a real kubelet.

Nothing in the images fails by itself: `tests/triton/faults` says how the reference engine is made to. That each mode
finds each fault, idle or with traffic, and that one bad row ends nothing: `tests/triton/test_engine_health.py`. That
it takes 15 s at most, in virtual time: `tests/unit/serving/engine/test_health.py`. That the engine's own error is
shown: `tests/integration/test_engine_health.py`.
"""

import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest
import tritonclient.grpc as triton

from cluster.core import is_ready

from .completions import PROMPTS, inputs
from .conftest import REPOSITORY, Site, wait_for
from .operator_pod import operator_pod

FAULTS = REPOSITORY / "tests/triton/faults"
FILES = ("engine_faults.py", "zz_engine_faults.pth")
PACKAGES = "/opt/venv/lib/python3.11/site-packages"  # of the reference image's Python
ASKED = "/tmp/engine-faults"
LONG = 120.0
"""Seconds that only a fault takes that is never found; the busiest machine took 21 from it to an unready pod."""
NAME = "faulty"
TEMPLATE = {
    "volumes": [{"name": "faults", "configMap": {"name": "engine-faults"}}],
    "containers": [
        {
            "name": "triton",
            "volumeMounts": [
                {"name": "faults", "subPath": file, "mountPath": f"{PACKAGES}/{file}", "readOnly": True}
                for file in FILES
            ],
        }
    ],
}


@dataclass(frozen=True)
class Pair:
    """A service of two replicas whose engines can be made to fail."""

    site: Site

    def pods(self) -> dict[str, dict[str, Any]]:
        """The server pods by name."""
        pods = self.site.items("pods", self.site.label(NAME, "server"))
        return {pod["metadata"]["name"]: pod for pod in pods}

    def ready(self, pod: str) -> bool:
        return is_ready(self.pods()[pod])

    def fault(self, pod: str) -> float:
        """Have the target's engine in that pod hang; the moment from which on it does."""
        command = f"mkdir -p {ASKED} && echo hangs > {ASKED}/tensorrt_llm_engine"
        self.site.run("exec", pod, "-c", "triton", "--", "sh", "-c", command)
        return time.monotonic()

    def complete(self, pod: str, prompt: str) -> str:
        """A completion of that very pod. Raises triton.InferenceServerException."""
        address = f"{self.pods()[pod]['status']['podIP']}:8001"
        with triton.InferenceServerClient(address) as client:
            asked = inputs(prompt, 4, stream=False)
            answer = client.infer("tensorrt_llm_bls", asked, client_timeout=LONG)
        return str(answer.as_numpy("text_output").flat[0].decode())

    def condition(self) -> dict[str, Any]:
        return self.site.conditions(NAME).get("EngineHealthy", {})

    def events(self) -> list[str]:
        """Messages of the Events that an engine failed, the newest last."""
        found = [e for e in self.site.items("events") if e["reason"] == "EngineFailed" and e["type"] == "Warning"]
        own = [e for e in found if e["involvedObject"]["name"] == NAME]
        return [str(e["message"]) for e in sorted(own, key=lambda e: str(e["metadata"]["creationTimestamp"]))]

    def counted(self) -> float:
        """`tandem_engine_failures_total` of this service, as the operator tells it."""
        url = f"http://{operator_pod(self.site)['status']['podIP']}:8080/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        own = [line for line in lines if line.startswith("tandem_engine_failures_total{") and f'"{NAME}"' in line]
        return sum(float(line.rpartition(" ")[2]) for line in own)


def container(pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(c for c in pod["status"]["containerStatuses"] if c["name"] == "triton")
    return found


@pytest.fixture
def pair(site: Site) -> Iterator[Pair]:
    """With the ConfigMap that its pods mount into their Python."""
    site.run("create", "configmap", "engine-faults", *[f"--from-file={FAULTS / file}" for file in FILES])
    site.apply(NAME, replicas=2, podTemplate={"spec": TEMPLATE})
    site.wait_condition(NAME, "Ready", "True")
    yield Pair(site)
    site.run("delete", "sis", NAME)
    site.run("delete", "configmap", "engine-faults")


@contextmanager
def served(pair: Pair, pod: str) -> Iterator[None]:
    """Someone completes at that pod all the time, and all of it succeeds."""
    over, failed, done = threading.Event(), [], []

    def client() -> None:
        while not over.is_set():
            try:
                done.append(pair.complete(pod, PROMPTS[0]))
            except triton.InferenceServerException as error:
                failed.append(str(error))
            over.wait(1.0)

    thread = threading.Thread(target=client)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert failed == []
    assert len(done) > 2


@contextmanager
def asked(pair: Pair, pod: str) -> Iterator[None]:
    """Someone asks that pod all the time, whatever comes of it."""
    over = threading.Event()

    def client() -> None:
        while not over.wait(0.3):
            with suppress(triton.InferenceServerException):
                pair.complete(pod, PROMPTS[1])

    thread = threading.Thread(target=client)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_dead_engine_is_replaced_without_a_hand(pair: Pair) -> None:
    broken, other = sorted(pair.pods())
    before, events, counted = pair.pods(), len(pair.events()), pair.counted()
    with served(pair, other):
        with asked(pair, broken):
            began = pair.fault(broken)
            wait_for("the pod to be unready", lambda: not pair.ready(broken), LONG)
            took = time.monotonic() - began
        wait_for("it to serve again", lambda: pair.ready(broken))
        assert pair.complete(broken, PROMPTS[0])
    print(f"unready after {took:.1f} s")
    after = pair.pods()
    assert after.keys() == before.keys(), "no pod was replaced"
    assert container(after[broken])["restartCount"] == container(before[broken])["restartCount"] + 1
    assert container(after[other])["restartCount"] == container(before[other])["restartCount"]
    assert container(after[broken])["lastState"]["terminated"]["exitCode"] == 1

    wait_for("the Event", lambda: len(pair.events()) > events)
    assert len(pair.events()) == events + 1, "one for each failure"
    assert pair.counted() == counted + 1
    message = pair.events()[-1]
    assert broken in message
    shown = pair.condition()
    assert (shown["status"], shown["reason"]) == ("False", "EngineHung")
    assert shown["message"].startswith(message)
    pair.site.wait_condition(NAME, "Ready", "True")
