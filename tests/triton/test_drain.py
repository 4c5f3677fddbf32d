"""The entry point over the real server. SIGTERM while a long stream runs: the stream ends as if nothing were. A model
that dies: the container ends, rather than stay ready and serve nobody."""

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from triton import bls_client as bls
from triton.bls_client import Stream, ids, inputs
from triton.pod import Pod, ended
from triton.stand_in import SLOW_TOKENS
from triton.waits import eventually, metric

TOKENS = 240
"""Of 50 ms."""
SECONDS = 120
"""What only a server takes that never ends."""


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    made = Pod(bls.repository(tmp_path / "repository", "stand-in", max_draft_len=4))
    with made:
        yield made


def test_a_long_stream_survives_sigterm(pod: Pod) -> None:
    with Stream(pod.grpc_url) as call:
        call.send(inputs("a long story", max_tokens=TOKENS, stream=True, seed=SLOW_TOKENS, end_id=-1))
        responses = [call.receive()[0]]
        eventually(lambda: metric(pod, "tandem_requests_running") == 1, "the gauge tells of it")
        pod.terminate()
        eventually(lambda: "SIGTERM: finishing requests" in pod.log, "the signal has come")
        assert metric(pod, "tandem_requests_running") == 1, "and the stream goes on"
        last = False
        while not last:
            response, last = call.receive()
            responses += [response] if response else []
    assert len(ids(responses)) == TOKENS
    assert ended(pod, SECONDS) == 0
    assert "no request is left" in pod.log


def model(pod: Pod, name: str) -> psutil.Process:
    """The process of a model."""
    below = psutil.Process(pod.pid).children(recursive=True)
    return next(process for process in below if f"/{name}/" in " ".join(process.cmdline()))


def test_a_model_that_dies_takes_its_server_along(pod: Pod) -> None:
    """Else Triton stays ready, the stream waits for ever, and the page says for ever that it runs."""
    with Stream(pod.grpc_url) as call:
        call.send(inputs("a long story", max_tokens=TOKENS, stream=True, seed=SLOW_TOKENS, end_id=-1))
        call.receive()
        model(pod, "speculative_bls").kill()
        with pytest.raises(InferenceServerException, match=r"UNAVAILABLE|closed|reset|not healthy"):
            while not call.receive()[1]:
                pass
    code = ended(pod, SECONDS)
    # Killed while it holds a lock in shared memory (once in 80 times), Triton aborts first, by a lock_exception.
    assert code in (1, 128 + signal.SIGABRT)
    assert code != 1 or "a model has died" in pod.log


def test_an_idle_server_stops_at_once(pod: Pod) -> None:
    pod.terminate()
    assert ended(pod, SECONDS) == 0
    assert "no request is left" in pod.log
    with triton.InferenceServerClient(pod.grpc_url) as client, pytest.raises(InferenceServerException):
        client.is_server_ready()
