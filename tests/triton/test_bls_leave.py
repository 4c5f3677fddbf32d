"""What ends engine calls: clients that leave, `stop`, and stop words; on the real Triton server, over a stand-in."""

import json
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tandem_serving.requests.active import LINGER_SECONDS
from triton import bls_client as bls
from triton.bls_client import Array, ids, inputs, stream, text, words
from triton.bls_servers import TEXTS, ask_engine, calls_in_flight, serve
from triton.harness import Options, TritonServer
from triton.stand_in import (
    AHEAD_HANGS,
    COUNT_CALLS,
    COUNT_HUNG,
    DRAFT_HANGS,
    IDLE_TIME,
    SLOW_TOKENS,
    TARGET_HANGS,
    VERIFICATION_HANGS,
)
from triton.waits import eventually, metric

TARGET, DRAFT = bls.ENGINES
LONG: dict[str, Any] = {"max_tokens": 1500, "seed": SLOW_TOKENS, "end_id": -1}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    for running in serve(tmp_path_factory.mktemp("faulty"), "stand-in", 64, separate=True):
        stream(running.grpc_url, inputs("def f"))  # a draft engine that has not answered yet is asked less
        yield running


@pytest.mark.parametrize("k", [0, 4])
def test_a_client_that_leaves_frees_the_engine(faulty: TritonServer, k: int) -> None:
    with bls.Stream(faulty.grpc_url) as call:
        call.send(inputs("def f", stream=True, num_draft_tokens=k, **LONG))
        call.receive()
        eventually(lambda: metric(faulty, "tandem_requests_running") == 1, "it runs")
    eventually(lambda: calls_in_flight(faulty) == 0, "no call in flight")
    eventually(lambda: metric(faulty, "tandem_requests_running") == 0, "nothing running")


@contextmanager
def streaming(server: TritonServer, tensors: dict[str, Array]) -> Iterator[None]:
    with bls.Stream(server.grpc_url) as call:
        call.send(tensors)
        yield


@contextmanager
def waiting_for_one_response(server: TritonServer, tensors: dict[str, Array]) -> Iterator[None]:
    with triton.InferenceServerClient(server.grpc_url) as client:
        call = client.async_infer("tensorrt_llm_bls", bls.infer_inputs(tensors), lambda result, error: None)
        yield
        call.cancel()


@contextmanager
def streaming_over_http(server: TritonServer, tensors: dict[str, Array]) -> Iterator[None]:
    """Leaves after the first chunk: before that Triton writes nothing, and does not learn that a client has left."""
    fields = {"text_input": "def f", "max_tokens": 64, "end_id": -1, "stream": True, "seed": tensors["seed"].item()}
    asked = f"{server.http_url}/v2/models/speculative_bls/generate_stream"
    with urllib.request.urlopen(asked, json.dumps(fields).encode(), timeout=240) as answer:
        assert answer.readline().startswith(b"data:")
        yield


CLIENTS: list[tuple[str, Callable[..., Any], dict[str, Array]]] = [
    ("a stream", streaming, inputs("def f", stream=True)),
    ("several prompts, which share the call", streaming, inputs("def f", "def g", "def h", stream=True)),
    ("one response", waiting_for_one_response, inputs("def f")),
]


def stops(
    server: TritonServer,
    client: Callable[..., Any],
    tensors: dict[str, Array],
    fault: int,
    name: str,
    leaves_when: int = COUNT_CALLS,
) -> None:
    """That an engine's calls end when their client leaves, which alone ends them: within 200 ms on a quiet machine.

    It leaves when the engine has such calls as `leaves_when` asks for.
    """
    seeds = {"seed": np.full((len(tensors["text_input"]), 1), fault, np.uint64)}
    with client(server, tensors | seeds):
        eventually(lambda: bool(ask_engine(server, leaves_when, name)), "the calls run")
        left = time.monotonic()
    eventually(lambda: not calls_in_flight(server, name), "the calls are over")
    took = time.monotonic() - ask_engine(server, IDLE_TIME, name) / 1000 - left
    print(f"{name} stopped after {1000 * took:.0f} ms")


@pytest.mark.parametrize(("fault", "name"), [(DRAFT_HANGS, DRAFT), (TARGET_HANGS, TARGET)])
@pytest.mark.parametrize(("what", "client", "tensors"), CLIENTS, ids=[what for what, *_ in CLIENTS])
def test_an_engine_stops_when_its_client_leaves(
    faulty: TritonServer, fault: int, name: str, what: str, client: Callable[..., Any], tensors: dict[str, Array]
) -> None:
    stops(faulty, client, tensors, fault, name)


def test_an_engine_stops_when_its_client_leaves_over_http(faulty: TritonServer) -> None:
    stops(faulty, streaming_over_http, inputs("def f"), DRAFT_HANGS, DRAFT)


IN_ROUNDS = [
    # what hangs of a round in the server, of which engine, why it is waited for
    (DRAFT_HANGS, DRAFT, "the round's own draft"),
    (AHEAD_HANGS, DRAFT, "the draft that was begun ahead, and is claimed by the next round"),
    (VERIFICATION_HANGS, TARGET, "the verification"),
]


@pytest.mark.parametrize(("fault", "name", "what"), IN_ROUNDS, ids=[what for *_, what in IN_ROUNDS])
def test_a_round_stops_when_its_client_leaves(faulty: TritonServer, fault: int, name: str, what: str) -> None:
    several = inputs("def f", "def g", "def h", stream=True)
    stops(faulty, streaming, several, fault, name, leaves_when=COUNT_HUNG)
    eventually(lambda: metric(faulty, "tandem_requests_running") == 0, "nothing running")


def test_a_target_that_hangs_for_one_sequence_is_not_waited_for_by_the_others(faulty: TritonServer) -> None:
    """Those who share its call: until that is given up, half a minute as it is of prompts."""
    prompts = [f"def f{i}(a" for i in range(6)]
    alone = [ids(stream(faulty.grpc_url, inputs(prompt, num_draft_tokens=0))) for prompt in prompts]
    with ThreadPoolExecutor(len(prompts)) as threads, bls.Stream(faulty.grpc_url) as hung:
        flowing = [threads.submit(stream, faulty.grpc_url, inputs(prompt, seed=1)) for prompt in prompts]
        hung.send(inputs("def f", stream=True, seed=TARGET_HANGS))
        assert [ids(call.result(timeout=300)) for call in flowing] == alone
    eventually(lambda: calls_in_flight(faulty) == 0, "no call in flight")


def test_stop_ends_a_request_by_its_id(faulty: TritonServer) -> None:
    with bls.Stream(faulty.grpc_url) as call:
        call.send(inputs("def f", stream=True, num_draft_tokens=0, **LONG), "to-be-stopped")
        call.receive()
        stream_stop = inputs("", max_tokens=0, stop=True)
        call.send(stream_stop, "to-be-stopped")
        with pytest.raises(InferenceServerException, match="the request was stopped"):
            while True:
                call.receive()
    eventually(lambda: calls_in_flight(faulty) == 0, "no call in flight")


def test_a_stop_word_ends_the_long_call_of_the_target(faulty: TritonServer) -> None:
    start = text(stream(faulty.grpc_url, inputs("def f", max_tokens=4, end_id=-1)))
    more = {**LONG, "stop_words": words([start[-3:]])}
    assert stream(faulty.grpc_url, inputs("def f", num_draft_tokens=0, **more))[-1]["finish_reason"].item() == b"stop"
    eventually(lambda: calls_in_flight(faulty) == 0, "no call in flight")


def test_the_last_response_of_a_client_that_has_left_waits_for_a_second(tmp_path: Path) -> None:
    """Sent at once, it can crash Triton's gRPC side. Never sent, the server waits for it when it is told to stop."""
    made = bls.repository(tmp_path, "stand-in", max_engine_rows=64)
    asked = [("long", LONG), ("ends as its client leaves", {"max_tokens": 2, "seed": SLOW_TOKENS})]

    def last_responses(server: TritonServer) -> list[bool]:
        """The last responses that Triton's gRPC side has had: whether their clients had left."""
        steps = re.findall(r"StreamInferComplete, .* step (\w+), .* flags 1", server.log)
        return [step.startswith("CANCEL") for step in steps]

    def seconds_until_the_last(server: TritonServer, asks: dict[str, Any]) -> float | None:
        """From when a client left; None: the response was there first, for the client was slow."""
        before = len(last_responses(server))
        with bls.Stream(server.grpc_url) as leaves:
            leaves.send(inputs(TEXTS[0], num_draft_tokens=0, stream=True, **asks))
            leaves.receive()
            left = time.monotonic()
        eventually(lambda: len(last_responses(server)) > before, "its last response")
        return time.monotonic() - left if last_responses(server)[before] else None

    with TritonServer(made, Options(env={}, arguments=["--log-verbose=1"])) as server:
        for what, asks in asked:
            tried = (seconds_until_the_last(server, asks) for _ in range(20))
            seconds = next(seconds for seconds in tried if seconds is not None)
            print(f"{what}: after {seconds:.1f} s")
            assert seconds > LINGER_SECONDS, what


def test_the_log_has_no_traceback(faulty: TritonServer) -> None:
    assert "Traceback" not in faulty.log
