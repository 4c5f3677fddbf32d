"""Answers of engines that are lost: nothing comes, and no stop ends that. On the real server, over a stand-in."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tritonclient.utils import InferenceServerException

from tandem_serving.bls.in_flight import DRAFT_LATE, PATIENT, TARGET_LATE
from triton.bls_client import Response, ids, inputs, stream
from triton.bls_servers import TEXTS, serve
from triton.harness import TritonServer
from triton.stand_in import DRAFT_LOST, LOSES_DRAFT, LOSES_TARGET, TARGET_LOST
from triton.waits import eventually, metric

SLACK = 10.0
"""Seconds by which a busy machine may be later."""
PLAIN = inputs(TEXTS[0], num_draft_tokens=0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """One that knows what calls take: before, it waits longer."""
    for running in serve(tmp_path_factory.mktemp("lost"), "stand-in", 64, separate=True):
        for text in TEXTS[:8]:
            stream(running.grpc_url, inputs(text))
            stream(running.grpc_url, inputs(text, num_draft_tokens=0))
        yield running


def drafts(answer: list[Response]) -> bool:
    return bool(answer[-1]["total_draft_tokens"].item() > 0)


@pytest.fixture(autouse=True)
def served(server: TritonServer) -> Iterator[None]:
    """Later requests are served as ever, and the one that was hit keeps no place."""
    eventually(lambda: drafts(stream(server.grpc_url, inputs(TEXTS[0]))), "drafts, after the test before")
    before = ids(stream(server.grpc_url, PLAIN))
    yield
    began = time.monotonic()
    assert ids(stream(server.grpc_url, inputs(TEXTS[0]))) == before
    assert time.monotonic() - began < DRAFT_LATE
    eventually(lambda: metric(server, "tandem_requests_running") == 0, "nothing is left")


# seed, draft tokens, what is lost
LOST = [
    (LOSES_TARGET + 1, 4, "the target's first token"),
    (LOSES_TARGET + 103, 4, "a verification"),
    (LOSES_TARGET + 201, 0, "a stream"),
    (LOSES_DRAFT + 1, 4, "a draft"),
    (DRAFT_LOST, 4, "all drafts"),
]


@pytest.mark.parametrize(("seed", "k", "what"), LOST, ids=[what for *_, what in LOST])
def test_a_request_goes_on_where_an_answer_is_lost(server: TritonServer, seed: int, k: int, what: str) -> None:
    expected, began = ids(stream(server.grpc_url, PLAIN)), time.monotonic()
    assert ids(stream(server.grpc_url, inputs(TEXTS[0], seed=seed, num_draft_tokens=k))) == expected
    assert DRAFT_LATE <= time.monotonic() - began < DRAFT_LATE + TARGET_LATE + SLACK, what


@pytest.mark.parametrize("k", [0, 4], ids=["stream", "rounds"])
def test_a_request_ends_where_the_target_loses_all_its_answers(server: TritonServer, k: int) -> None:
    """In a time that has a bound, with an error that says what to do; others are served meanwhile."""
    expected, began = ids(stream(server.grpc_url, PLAIN)), time.monotonic()
    with ThreadPoolExecutor(1) as threads:
        lost = threads.submit(stream, server.grpc_url, inputs("def f", seed=TARGET_LOST, num_draft_tokens=k))
        while not lost.done():
            assert ids(stream(server.grpc_url, PLAIN)) == expected
            time.sleep(0.1)
        with pytest.raises(InferenceServerException, match="nor when it was asked before: send the request again"):
            lost.result()
    assert time.monotonic() - began < (1 + PATIENT) * TARGET_LATE + SLACK
