"""An engine that fails or hangs ends its pod's container, which says why; one bad row ends nothing.

The reference engine does so as TensorRT-LLM's would (faults/engine_faults.py): Triton itself notices nothing. That
the pod is not ready after 15 s at most is proven in virtual time: `tests/unit/serving/engine/test_health.py`.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from tritonclient.utils import InferenceServerException

from triton import bls_client as bls
from triton import llmapi_client
from triton.bls_client import Array, Stream
from triton.faults.engine_faults import CUDA_ERROR, FAILS, HANGS, POISON_TEXT, ROW
from triton.harness import Options
from triton.pod import Pod, ended
from triton.waits import eventually, metric

PROMPT = "def main():"
LONG = 120
"""Seconds that only a fault takes that is never found."""
JUDGED_SECONDS = {FAILS: 6.0, HANGS: 14.0, ROW: 6.0}
"""In which an engine that is taken for broken would have ended its pod."""


NAMES = ("speculative_bls", "tensorrt_llm_bls", "tensorrt_llm_engine", "tensorrt_llm_engine")
LLM_API = ("tensorrt_llm_stream", "tensorrt_llm", "tensorrt_llm_stream", "Tandem")


@dataclass
class Site:
    """A pod of one of the modes, and how to call it."""

    pod: Pod
    fault: Path
    streaming: str
    unary: str
    engine: str
    reported: str
    inputs: Callable[..., dict[str, Array]]
    stream: dict[str, bool]

    def ask(self, prompt: str = PROMPT, max_tokens: int = 4) -> bytes:
        answer = bls.unary(self.pod.grpc_url, self.inputs(prompt, max_tokens=max_tokens), self.unary)
        text: bytes = answer["text_output"].reshape(-1)[0]
        return text

    def error(self, prompt: str = PROMPT) -> str:
        """What a request is told; "" where it is answered."""
        try:
            self.ask(prompt)
        except InferenceServerException as error:
            return f"{error.status()}: {error.message()}"
        return ""

    def breaks(self, how: str, model: str = "") -> float:
        """Have the engine fail; when that was."""
        (self.fault / (model or self.engine)).write_text(how)
        return time.monotonic()


@pytest.fixture(params=["BLS", "LLMAPI"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Of mode BLS with rows together; where each call has one: tests/e2e/test_engine_health.py."""
    fault = tmp_path / "faults"
    fault.mkdir()
    options = Options(env={}, faults=fault)
    if request.param == "LLMAPI":
        made = llmapi_client.repository(tmp_path / "models", engine="Tandem")
        names, inputs, stream = LLM_API, llmapi_client.inputs, {"streaming": True}
    else:
        made = bls.repository(tmp_path / "models", "reference", max_engine_rows=64, max_draft_len=4)
        names, inputs, stream = NAMES, bls.inputs, {"stream": True}
    with Pod(made, options) as pod:
        found = Site(pod, fault, *names, inputs, stream)
        found.ask()  # as the startup probe does
        yield found


def verdict(pod: Pod, model: str) -> dict[str, str]:
    """The container's termination message."""
    found: dict[str, str] = json.loads(pod.termination_log.read_text())["engineFailure"]
    assert found["model"] == model
    return found


def gone_by(site: Site, broken: float) -> None:
    """Not ready, and ended with 1 after that."""
    eventually(lambda: not site.pod.ready(), "unready", LONG)
    print(f"unready after {time.monotonic() - broken:.1f} s")
    assert ended(site.pod, LONG) == 1


@pytest.mark.parametrize("how", [FAILS, HANGS])
@pytest.mark.parametrize("site", ["LLMAPI"], indirect=True)
def test_an_idle_engine_that_breaks_ends_its_pod(site: Site, how: str) -> None:
    """In mode BLS: `test_two_instances_that_are_idle_end`."""
    time.sleep(4)  # the canary has been answered
    gone_by(site, site.breaks(how))
    found = verdict(site.pod, site.reported)
    if how == FAILS:
        assert (found["reason"], CUDA_ERROR in found["message"]) == ("EngineFailing", True)
    else:
        assert (found["reason"], "no call was answered" in found["message"]) == ("EngineHung", True)


@pytest.mark.parametrize("how", [FAILS, HANGS])
def test_requests_end_with_unavailable(site: Site, how: str) -> None:
    """Those in flight, in streams, and those that come: from the verdict on at once, by the engine's own error."""
    errors: list[str] = []
    over = threading.Event()

    def keep_asking() -> None:
        while not over.wait(0.1):
            errors.append(site.error())

    with Stream(site.pod.grpc_url, site.streaming) as call, ThreadPoolExecutor(1) as threads:
        call.send(site.inputs(PROMPT, max_tokens=800, **site.stream))
        call.receive()
        broken = site.breaks(how)
        threads.submit(keep_asking)
        try:
            with pytest.raises(InferenceServerException) as raised:
                while not call.receive()[1]:
                    pass
            gone_by(site, broken)
        finally:
            over.set()
    told = [error for error in errors if "send the request to another replica" in error]
    assert told, errors
    assert all("UNAVAILABLE" in error for error in told)
    if how == HANGS:
        assert "the engine hangs" in str(raised.value), "the stream, too"
    else:
        assert any(CUDA_ERROR in error for error in told)


def test_a_row_that_always_fails_ends_nothing(site: Site) -> None:
    site.breaks(ROW)
    before = site.ask(max_tokens=24)
    end = time.monotonic() + JUDGED_SECONDS[ROW]
    while time.monotonic() < end:  # nobody else asks for seconds, then somebody does
        assert "illegal memory access" in site.error(f"# {POISON_TEXT}")
        time.sleep(0.2)
    assert site.ask(max_tokens=24) == before
    assert site.pod.ready()
    assert site.pod.code() is None
    failures = 'tandem_engine_call_failures_total{call="request",engine="target"}'
    eventually(lambda: metric(site.pod, failures) > 10, "counted")
    assert metric(site.pod, 'tandem_engine_call_failures_total{call="canary",engine="target"}') == 0


@pytest.mark.parametrize("how", [FAILS, HANGS])
def test_two_instances_that_are_idle_end(tmp_path: Path, how: str) -> None:
    """One of the BLS's finds that its engine is broken, all end."""
    (tmp_path / "faults").mkdir()
    changes = {"max_engine_rows": 64, "max_draft_len": 4, "bls_instance_count": 2}
    made = bls.repository(tmp_path / "models", "reference", **changes)
    with Pod(made, Options(env={}, faults=tmp_path / "faults")) as pod:
        site = Site(pod, tmp_path / "faults", *NAMES, bls.inputs, {"stream": True})
        site.ask()
        calls = f'nv_inference_request_success{{model="{site.engine}",version="1"}}'
        before = metric(pod, calls)
        eventually(lambda: metric(pod, calls) >= before + 2, "the canary, of whom asks nothing else, is answered")
        gone_by(site, site.breaks(how))
        found = verdict(pod, "tensorrt_llm_engine")
        if how == FAILS:
            assert (found["reason"], CUDA_ERROR in found["message"]) == ("EngineFailing", True)
        else:
            assert (found["reason"], "no call was answered" in found["message"]) == ("EngineHung", True)


@pytest.mark.parametrize("how", [FAILS, HANGS])
def test_a_draft_that_breaks_ends_nothing(tmp_path: Path, how: str) -> None:
    """The target alone goes on."""
    (tmp_path / "faults").mkdir()
    made = bls.repository(tmp_path / "models", "reference", max_engine_rows=64, max_draft_len=4)
    with Pod(made, Options(env={}, faults=tmp_path / "faults")) as pod:
        site = Site(pod, tmp_path / "faults", *NAMES, bls.inputs, {"stream": True})
        before = site.ask(max_tokens=24)
        end = site.breaks(how, "tensorrt_llm_draft_engine") + JUDGED_SECONDS[how]
        while time.monotonic() < end:
            assert site.ask(max_tokens=24) == before
            time.sleep(0.2)
        assert pod.ready()
        assert pod.termination_log.read_text() == ""
