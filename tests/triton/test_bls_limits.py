"""What one request may take from the others: places, time. On the real server, with room for two sequences."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from triton import bls_client as bls
from triton.bls_client import inputs, stream, unary
from triton.bls_servers import ask_engine, calls_in_flight, hangs, let_go
from triton.harness import TritonServer
from triton.stand_in import COUNT_SEED, TARGET_HANGS
from triton.waits import eventually, metric

TIMEOUT = 2
HANGING = inputs("def f", seed=TARGET_HANGS, max_tokens=1)
PLAIN = inputs("def g")
UNWANTED = 77
"""A seed."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    made = bls.repository(tmp_path_factory.mktemp("limits"), "stand-in")
    for model in ("speculative_bls", "tensorrt_llm_bls"):
        with (made / model / "config.pbtxt").open("a") as config:
            for name in ("max_running_sequences", "max_waiting_sequences"):
                config.write(f'\nparameters {{ key: "{name}" value {{ string_value: "1" }} }}')
    with TritonServer(made) as running:
        yield running


@pytest.fixture
def idle(server: TritonServer) -> Iterator[None]:
    yield
    eventually(lambda: metric(server, "tandem_requests_running") == 0, "nothing is left")


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("model", ["speculative_bls", "tensorrt_llm_bls"])
def test_a_full_line_refuses_and_the_others_are_served(server: TritonServer, model: str) -> None:
    ask = stream if model == "speculative_bls" else unary
    with ThreadPoolExecutor(2) as threads:
        held = threads.submit(ask, server.grpc_url, HANGING, model)
        hangs(server)
        waits = threads.submit(ask, server.grpc_url, PLAIN, model)
        eventually(lambda: metric(server, "tandem_requests_waiting") == 1, "one waits")
        with pytest.raises(InferenceServerException, match="no room for 1 more") as refused:
            ask(server.grpc_url, PLAIN, model)
        # A stream's errors have no code in Triton's protocol.
        assert refused.value.status() == ("StatusCode.UNAVAILABLE" if model == "tensorrt_llm_bls" else None)
        let_go(server)
        assert held.result()
        assert waits.result()


def test_a_request_s_time_ends(tmp_path: Path) -> None:
    """With an engine's call that would take longer, which is ended too."""
    with TritonServer(bls.repository(tmp_path, "stand-in", request_timeout_seconds=TIMEOUT)) as server:
        began = time.monotonic()
        with pytest.raises(InferenceServerException, match=f"took longer than {TIMEOUT} s and was ended") as ended:
            unary(server.grpc_url, HANGING)
        assert time.monotonic() - began >= TIMEOUT
        assert ended.value.status() == "StatusCode.UNAVAILABLE"
        eventually(lambda: calls_in_flight(server) == 0, "the engine's call is over")


@pytest.mark.usefixtures("idle")
def test_a_client_that_leaves_the_line_costs_no_engine_call(server: TritonServer) -> None:
    def begun() -> int:
        """The engine tells it itself: metrics may be late."""
        return ask_engine(server, COUNT_SEED, about=UNWANTED)

    unwanted = bls.infer_inputs(inputs("def g", seed=UNWANTED))
    with ThreadPoolExecutor(1) as threads, triton.InferenceServerClient(server.grpc_url) as client:
        held = threads.submit(unary, server.grpc_url, HANGING)
        hangs(server)
        call = client.async_infer("tensorrt_llm_bls", unwanted, lambda result, error: None)
        eventually(lambda: metric(server, "tandem_requests_waiting") == 1, "one waits")
        call.cancel()
        let_go(server)
        assert held.result()
        eventually(lambda: metric(server, "tandem_requests_waiting") == 0, "the line is empty")
        unary(server.grpc_url, PLAIN)  # it comes after whoever was in line
        assert begun() == 0
        client.infer("tensorrt_llm_bls", unwanted)
        assert begun() > 0, "else nothing is counted"
