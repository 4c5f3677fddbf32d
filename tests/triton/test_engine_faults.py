"""The reference engine fails as tests ask it to (faults/engine_faults.py), in both modes; nothing else changes."""

import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tritonclient.utils import InferenceServerException

from triton import bls_client as bls
from triton import llmapi_client
from triton.bls_client import PAIR, Array
from triton.faults.engine_faults import CUDA_ERROR, FAILS, POISON, POISON_TEXT, ROW
from triton.harness import Options, TritonServer

Ask = Callable[[TritonServer, str], bytes]


def ask_bls(server: TritonServer, prompt: str) -> bytes:
    return text(bls.unary(server.grpc_url, bls.inputs(prompt, max_tokens=4)))


def ask_llmapi(server: TritonServer, prompt: str) -> bytes:
    return text(bls.unary(server.grpc_url, llmapi_client.inputs(prompt, max_tokens=4), "tensorrt_llm"))


def text(response: dict[str, Array]) -> bytes:
    answer: bytes = response["text_output"].reshape(-1)[0]
    return answer


@pytest.fixture(scope="module", params=["BLS", "LLMAPI"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[TritonServer, Ask, Path]]:
    folder = tmp_path_factory.mktemp("faults")
    if request.param == "BLS":
        made, ask, engine = bls.repository(folder / "models", "reference"), ask_bls, "tensorrt_llm_engine"
    else:
        made = llmapi_client.repository(folder / "models", engine="Tandem")
        ask, engine = ask_llmapi, "tensorrt_llm_stream"
    (folder / "faults").mkdir()
    with TritonServer(made, Options(env={}, faults=folder / "faults")) as server:
        yield server, ask, folder / "faults" / engine


def test_the_marker_is_one_in_any_text() -> None:
    tokenizer = Tokenizer.from_file(str(PAIR / "target/tokenizer.json"))
    for prompt in (POISON_TEXT, f"x = 1  # {POISON_TEXT} or so"):
        found = tokenizer.encode(prompt).ids
        assert POISON in pairwise(found)


def test_a_file_that_is_older_than_the_engine_asks_for_nothing(served: tuple[TritonServer, Ask, Path]) -> None:
    server, ask, file = served
    file.write_text(FAILS)
    os.utime(file, (1, 1))
    assert ask(server, "def main():")


@pytest.mark.parametrize("prompt", ["def main():", POISON_TEXT])
def test_fails_as_after_a_cuda_error(served: tuple[TritonServer, Ask, Path], prompt: str) -> None:
    server, ask, file = served
    before = ask(server, prompt)
    file.write_text(FAILS)
    try:
        with pytest.raises(InferenceServerException, match="illegal memory access") as raised:
            ask(server, prompt)
        assert CUDA_ERROR in str(raised.value)
        assert server.ready(), "Triton notices nothing"
    finally:
        file.unlink()
    assert ask(server, prompt) == before, "the fault is over"


def test_one_row_fails(served: tuple[TritonServer, Ask, Path]) -> None:
    server, ask, file = served
    before = ask(server, "def main():")
    file.write_text(ROW)
    try:
        with pytest.raises(InferenceServerException, match="illegal memory access"):
            ask(server, f"# {POISON_TEXT}")
        assert ask(server, "def main():") == before
    finally:
        file.unlink()
