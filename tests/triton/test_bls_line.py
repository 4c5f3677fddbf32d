"""Requests that wait too long are refused, wherever they stand in line. On the real server, with one place."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tritonclient.utils import InferenceServerException

from triton import bls_client as bls
from triton.bls_client import inputs, stream, unary
from triton.bls_servers import calls_in_flight, hangs, let_go
from triton.harness import TritonServer
from triton.stand_in import TARGET_HANGS
from triton.waits import eventually, metric

IN_LINE = 0.5
HANGING = inputs("def f", seed=TARGET_HANGS, max_tokens=1)
PLAIN = inputs("def g")
BLS, UNARY = "speculative_bls", "tensorrt_llm_bls"
ASK = {BLS: stream, UNARY: unary}
REFUSED = 'tandem_requests_refused_total{reason="queue_timeout"}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    limits = {"queue_timeout_seconds": IN_LINE, "max_running_sequences": 1}
    made = bls.repository(tmp_path_factory.mktemp("line"), "stand-in", **limits)
    with (made / UNARY / "config.pbtxt").open("a") as config:
        config.write('\nparameters { key: "max_running_sequences" value { string_value: "1" } }')
    with TritonServer(made) as running:
        yield running


@pytest.mark.parametrize(
    ("holds", "waits", "line"),
    [
        (BLS, BLS, "a stream in the BLS"),
        (BLS, UNARY, "a unary request in the BLS"),
        (UNARY, UNARY, "a unary request in the unary model"),
    ],
)
def test_who_waits_too_long_is_refused(server: TritonServer, holds: str, waits: str, line: str) -> None:
    before = metric(server, REFUSED)
    with ThreadPoolExecutor(1) as threads:
        held = threads.submit(ASK[holds], server.grpc_url, HANGING, holds)
        hangs(server)
        began = time.monotonic()
        with pytest.raises(InferenceServerException) as refused:
            ASK[waits](server.grpc_url, PLAIN, waits)
        assert time.monotonic() - began >= IN_LINE, line
        assert calls_in_flight(server) == 1, "it did not wait for the other one's end"
        assert "requests wait 0.5 s at most (queueTimeoutSeconds): send" in str(refused.value)
        # A stream's errors have no code in Triton's protocol.
        assert refused.value.status() == ("StatusCode.UNAVAILABLE" if waits == UNARY else None)
        let_go(server)
        assert held.result()
    assert ASK[waits](server.grpc_url, PLAIN, waits), "there is a place again"
    eventually(lambda: metric(server, REFUSED) == before + 1, "counted once")


PROMPT = {"name": "text_input", "datatype": "BYTES", "shape": [1, 1], "data": ["def g"]}
LENGTH = {"name": "max_tokens", "datatype": "INT32", "shape": [1, 1], "data": [8]}
GENERATE = {"text_input": "def g", "max_tokens": 8}


def test_what_http_clients_are_told(server: TritonServer) -> None:
    """Triton 24.10 knows 503 at /infer alone."""
    codes: dict[str, int] = {}
    with ThreadPoolExecutor(1) as threads:
        held = threads.submit(stream, server.grpc_url, HANGING)
        hangs(server)
        for path, body in {
            f"{UNARY}/infer": {"inputs": [PROMPT, LENGTH]},
            f"{UNARY}/generate": GENERATE,
            f"{BLS}/generate_stream": GENERATE | {"stream": True},
        }.items():
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"{server.http_url}/v2/models/{path}", json.dumps(body).encode(), timeout=240)
            assert "send the request again to another replica or later" in refused.value.read().decode(), path
            codes[path] = refused.value.code
        let_go(server)
        assert held.result()
    assert codes == {f"{UNARY}/infer": 503, f"{UNARY}/generate": 400, f"{BLS}/generate_stream": 400}
