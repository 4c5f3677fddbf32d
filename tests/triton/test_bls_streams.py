"""The target alone on the real server: one streaming call of its engine, a stand-in that takes its time."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tritonclient.utils import InferenceServerException

from triton import bls_client as bls
from triton.bls_client import ids, inputs, stream, text, words
from triton.bls_servers import TEXTS, ask_engine, calls_in_flight, serve
from triton.harness import TritonServer
from triton.stand_in import COUNT_SEED, SLOW_TOKENS, STREAM_BREAKS
from triton.waits import eventually, metric

ALONE: dict[str, Any] = {"num_draft_tokens": 0, "end_id": -1, "stream": True}
TOKENS, STREAMS = 40, 31


@pytest.fixture(scope="module", params=[1, 64], ids=["single", "collected"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    yield from serve(tmp_path_factory.mktemp("streams"), "stand-in", request.param, separate=True)


def calls(server: TritonServer) -> int:
    """Those of the target with the seed of slow tokens, so far."""
    return ask_engine(server, COUNT_SEED, about=SLOW_TOKENS)


def test_tokens_come_while_one_call_makes_them(server: TritonServer) -> None:
    def ask(prompt: str) -> list[bls.Response]:
        return stream(server.grpc_url, inputs(prompt, max_tokens=TOKENS, seed=SLOW_TOKENS, **ALONE))

    before = calls(server)
    with ThreadPoolExecutor(STREAMS) as threads, bls.Stream(server.grpc_url) as long:
        long.send(inputs(TEXTS[0], max_tokens=1500, seed=SLOW_TOKENS, **ALONE))
        long.receive()
        answers = list(threads.map(ask, TEXTS[:STREAMS]))
        for _ in range(3):
            long.receive()
        assert calls_in_flight(server) == 1, "it goes on"
    assert calls(server) - before == STREAMS + 1, "one call each"
    assert [len(ids(answer)) for answer in answers] == [TOKENS] * STREAMS
    assert all(len(answer) > 1 for answer in answers)


def test_the_text_is_that_of_rounds(server: TritonServer) -> None:
    for prompt in TEXTS[:8]:
        drafted = stream(server.grpc_url, inputs(prompt, stream=True))
        assert ids(stream(server.grpc_url, inputs(prompt, stream=True, num_draft_tokens=0))) == ids(drafted)


def test_an_error_in_mid_stream_is_that_request_s(server: TritonServer) -> None:
    good = inputs(TEXTS[1], max_tokens=TOKENS, **ALONE)
    expected = text(stream(server.grpc_url, good))
    with ThreadPoolExecutor(4) as threads:
        others = [threads.submit(stream, server.grpc_url, good) for _ in range(4)]
        with bls.Stream(server.grpc_url) as call:
            call.send(inputs(TEXTS[0], max_tokens=TOKENS, seed=STREAM_BREAKS, **ALONE))
            with pytest.raises(InferenceServerException, match="target engine: the stand-in fails on demand"):
                while True:
                    call.receive()
        assert {text(other.result()) for other in others} == {expected}
    eventually(lambda: metric(server, "tandem_requests_running") == 0, "nothing running")


def test_a_stop_word_ends_the_engine_s_call(server: TritonServer) -> None:
    long = inputs(TEXTS[0], max_tokens=1500, seed=SLOW_TOKENS, **ALONE)
    begins = text(stream(server.grpc_url, inputs(TEXTS[0], max_tokens=6, **ALONE)))
    found = stream(server.grpc_url, long | {"stop_words": words([begins[-4:]])})
    assert begins.startswith(text(found))
    assert found[-1]["finish_reason"].item() == b"stop"
    eventually(lambda: calls_in_flight(server) == 0, "it is ended")
