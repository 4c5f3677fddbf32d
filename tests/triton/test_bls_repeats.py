"""An engine that ignores exclude_input_in_output, and so repeats its input: no token of that becomes text."""

from collections.abc import Iterator

import pytest
from tritonclient.utils import InferenceServerException

from triton.bls_client import Response, ids, inputs, stream
from triton.bls_servers import serve
from triton.harness import TritonServer
from triton.stand_in import DRAFT_REPEATS, TARGET_REPEATS

REPEATS = "answered [0-9]+ tokens where [0-9]+ were asked for: it must take exclude_input_in_output"


@pytest.fixture(scope="module", params=[1, 64], ids=["a call each", "calls shared"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    yield from serve(tmp_path_factory.mktemp("repeats"), "stand-in", request.param)


def asked(server: TritonServer, seed: int, k: int) -> list[Response]:
    return stream(
        server.grpc_url, inputs("def f(", "class A", max_tokens=24, seed=seed, end_id=-1, num_draft_tokens=k)
    )


def test_a_target_that_repeats_its_input_is_the_request_s_error(server: TritonServer) -> None:
    with pytest.raises(InferenceServerException, match=REPEATS):
        asked(server, TARGET_REPEATS, 4)


def test_what_the_target_streams_is_new_in_any_case(server: TritonServer) -> None:
    """As TensorRT-LLM (`mIsStreaming` in llmRequest.cpp, `createResult`)."""
    repeating, alone = asked(server, TARGET_REPEATS, 0), asked(server, 7, 0)
    assert [ids(repeating, i) for i in range(2)] == [ids(alone, i) for i in range(2)]


def test_what_the_draft_says_is_no_draft(server: TritonServer) -> None:
    alone, repeating = asked(server, 7, 0), asked(server, DRAFT_REPEATS, 4)
    for i in range(2):
        assert ids(repeating, i) == ids(alone, i)
        [last] = [r for r in repeating if r["batch_index"].item() == i]
        assert last["total_draft_tokens"].item() == 0
