"""The adaptive draft length on the real server, with engines that answer at once: calls cost their way alone,
and the target by itself, whose calls are long, is the fastest."""

from collections.abc import Iterator

import pytest

from triton import bls_client as bls
from triton.bls_client import inputs, stream
from triton.harness import TritonServer
from triton.waits import eventually

TOKENS = 200
MAX_K = 8


@pytest.fixture(scope="module", params=[1, 64], ids=["one sequence a call", "many sequences a call"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    rows: int = request.param
    folder = tmp_path_factory.mktemp("adaptive")
    made = bls.repository(folder, "stand-in", max_draft_len=MAX_K, max_engine_rows=rows, adaptive=True)
    with TritonServer(made) as running:
        yield running


def asked(server: TritonServer, **more: int) -> tuple[list[int], int]:
    """A request's tokens, and how many were drafted for it."""
    responses = stream(server.grpc_url, inputs("def f", max_tokens=TOKENS, stream=True, end_id=-1, **more))
    return bls.ids(responses), int(responses[-1]["total_draft_tokens"].item())


def test_a_draft_that_does_not_pay_is_given_up_and_the_text_stays(server: TritonServer) -> None:
    alone, none = asked(server, num_draft_tokens=0)
    assert none == 0
    first, drafted = asked(server)
    assert drafted > 0, "nothing is known yet"
    assert first == alone

    def hardly_drafts() -> bool:
        ids, drafted = asked(server)
        assert ids == alone
        return drafted < TOKENS / 10

    eventually(hardly_drafts, "the target goes alone")
