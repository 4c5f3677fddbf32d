"""An engine that fails as CUDA does, or hangs, in one of two replicas on a real kubelet.

Nothing in the images fails by itself: `tests/triton/faults` says how the reference engine is made to. That each mode
finds a fault, idle or with traffic, and that one bad row ends nothing: `tests/triton/test_engine_health.py`. That it
takes 15 s at most, in virtual time: `tests/unit/serving/engine/test_health.py`.
"""

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import yaml

from cluster.core import is_ready

from .completions import PROMPTS, inputs
from .conftest import QUICKSTART, REPOSITORY, Site, wait_for
from .operator_pod import operator_pod

FAULTS = REPOSITORY / "tests/triton/faults"
FILES = ("engine_faults.py", "zz_engine_faults.pth")
PACKAGES = "/opt/venv/lib/python3.11/site-packages"  # of the reference image's Python
ASKED = "/tmp/engine-faults"
LONG = 120.0
"""Seconds that only a fault takes that is never found; the busiest machine took 21 from it to an unready pod."""
EXAMPLES = {"BLS": QUICKSTART, "LLMAPI": REPOSITORY / "examples/reference-llmapi.yaml"}
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
    mode: str
    name: str

    def pods(self) -> dict[str, dict[str, Any]]:
        """The server pods by name."""
        pods = self.site.items("pods", self.site.label(self.name, "server"))
        return {pod["metadata"]["name"]: pod for pod in pods}

    def ready(self, pod: str) -> bool:
        return is_ready(self.pods()[pod])

    def fault(self, pod: str, word: str) -> float:
        """Have the target's engine in that pod fail; the moment from which on it does."""
        engine = "tensorrt_llm_engine" if self.mode == "BLS" else "tensorrt_llm_stream"
        command = f"mkdir -p {ASKED} && echo {word} > {ASKED}/{engine}"
        self.site.run("exec", pod, "-c", "triton", "--", "sh", "-c", command)
        return time.monotonic()

    def complete(self, pod: str, prompt: str, seconds: float = 30.0) -> str:
        """A completion of that very pod. Raises triton.InferenceServerException."""
        address = f"{self.pods()[pod]['status']['podIP']}:8001"
        with triton.InferenceServerClient(address) as client:
            model, asked = self._request(prompt)
            answer = client.infer(model, asked, client_timeout=seconds)
        return str(answer.as_numpy("text_output").flat[0].decode())

    def _request(self, prompt: str) -> tuple[str, list[triton.InferInput]]:
        if self.mode == "BLS":
            return "tensorrt_llm_bls", inputs(prompt, 4, stream=False)
        text = triton.InferInput("text_input", [1], "BYTES")
        text.set_data_from_numpy(np.array([prompt.encode()], np.object_))
        tokens = triton.InferInput("sampling_param_max_tokens", [1], "INT32")
        tokens.set_data_from_numpy(np.array([16], np.int32))
        return "tensorrt_llm", [text, tokens]

    def condition(self) -> dict[str, Any]:
        return self.site.conditions(self.name).get("EngineHealthy", {})

    def events(self) -> list[str]:
        """Messages of the Events that an engine failed, the newest last."""
        found = [e for e in self.site.items("events") if e["reason"] == "EngineFailed" and e["type"] == "Warning"]
        own = [e for e in found if e["involvedObject"]["name"] == self.name]
        return [str(e["message"]) for e in sorted(own, key=lambda e: str(e["metadata"]["creationTimestamp"]))]

    def counted(self) -> float:
        """`tandem_engine_failures_total` of this service, as the operator tells it."""
        url = f"http://{operator_pod(self.site)['status']['podIP']}:8080/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        own = [
            line for line in lines if line.startswith("tandem_engine_failures_total{") and f'"{self.name}"' in line
        ]
        return sum(float(line.rpartition(" ")[2]) for line in own)


def container(pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(c for c in pod["status"]["containerStatuses"] if c["name"] == "triton")
    return found


@pytest.fixture(scope="module")
def faults(site: Site) -> Iterator[None]:
    """The ConfigMap that pods mount into their Python."""
    files = [f"--from-file={FAULTS / file}" for file in FILES]
    site.run("create", "configmap", "engine-faults", *files)
    yield
    site.run("delete", "configmap", "engine-faults")


@pytest.fixture
def pair(site: Site, faults: None, mode: str) -> Iterator[Pair]:
    raw = yaml.safe_load(EXAMPLES[mode].read_text())
    name = f"faulty-{mode.lower()}"
    raw["metadata"]["name"] = name
    raw["spec"] |= {"replicas": 2, "podTemplate": {"spec": TEMPLATE}}
    site.run("apply", "-f", "-", stdin=json.dumps(raw))
    site.wait_condition(name, "Ready", "True")
    yield Pair(site, mode, name)
    site.run("delete", "sis", name)


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
def asked(pair: Pair, pod: str, *, traffic: bool) -> Iterator[list[str]]:
    """Where there is `traffic`, someone who asks that pod all the time; the errors that came."""
    over, errors = threading.Event(), []

    def client() -> None:
        while not over.is_set():
            try:
                pair.complete(pod, PROMPTS[1])
            except triton.InferenceServerException as error:
                errors.append(str(error))
            over.wait(0.3)

    threads = [threading.Thread(target=client)] if traffic else []
    for thread in threads:
        thread.start()
    try:
        yield errors
    finally:
        over.set()
        for thread in threads:
            thread.join()


CASES = [
    # mode, fault, traffic, reason, what the engine's own error holds
    ("BLS", "hangs", True, "EngineHung", ""),
    ("LLMAPI", "fails", False, "EngineFailing", "an illegal memory access was encountered"),
]


@pytest.mark.parametrize(("mode", "word", "traffic", "reason", "error"), CASES, ids=str)
def test_a_dead_engine_is_replaced_without_a_hand(
    pair: Pair, word: str, traffic: bool, reason: str, error: str
) -> None:
    broken, other = sorted(pair.pods())
    before, events, counted = pair.pods(), len(pair.events()), pair.counted()
    with served(pair, other):
        with asked(pair, broken, traffic=traffic):
            began = pair.fault(broken, word)
            wait_for("the pod to be unready", lambda: not pair.ready(broken), LONG)
            took = time.monotonic() - began
        wait_for("it to serve again", lambda: pair.ready(broken), 240)
        assert pair.complete(broken, PROMPTS[0])
    print(f"{pair.mode}, {word}, traffic {traffic}: unready after {took:.1f} s")
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
    assert error in message
    shown = pair.condition()
    assert (shown["status"], shown["reason"]) == ("False", reason)
    assert shown["message"].startswith(message)
    pair.site.wait_condition(pair.name, "Ready", "True")
