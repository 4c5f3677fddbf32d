"""The BLS by its front: clients get what the loop itself sends, and nobody else's."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from triton import bls_client as bls
from triton.bls_client import Array, ids, inputs, stream
from triton.bls_servers import ENGINES, TEXTS, serve
from triton.harness import Options, TritonServer
from triton.stand_in import SLOW_TOKENS
from triton.waits import eventually

TRUE = np.array([[True]])
TELLS = """

from tandem_serving.adapter import packing

_pack = packing.pack


def _telling(chunks):
    wave = list(chunks)
    print("a wave of", len(wave), flush=True)
    return _pack(wave)


packing.pack = _telling
"""


@pytest.fixture(scope="module", params=ENGINES, ids=str)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    yield from serve(tmp_path_factory.mktemp("repository"), *request.param)


ASKED: list[tuple[str, dict[str, Any], list[str]]] = [
    ("a stream", {"stream": True}, []),
    ("several prompts, some outputs", {"stream": True}, ["output_ids", "batch_index", "acceptance_rate"]),
    ("once", {}, []),
    ("log probs, which come by themselves", {"stream": True, "return_log_probs": TRUE}, []),
]


@pytest.mark.parametrize(("what", "more", "outputs"), ASKED, ids=[what for what, *_ in ASKED])
def test_the_front_changes_nothing(server: TritonServer, what: str, more: dict[str, Any], outputs: list[str]) -> None:
    """Chunks that come to the front in waves are those that the loop sends by itself."""
    prompts = TEXTS[: 3 if outputs else 1]

    def ask(model: str) -> list[Any]:
        told: list[Any] = [[] for _ in prompts]
        with bls.Stream(server.grpc_url, model) as call:
            call.send(inputs(*prompts, num_draft_tokens=4, seed=1, max_tokens=24, **more), outputs=outputs)
            last = False
            while not last:
                try:
                    chunk, last = call.receive()
                except InferenceServerException as error:  # of an engine that has no log probs
                    return [error.message()]
                if chunk:
                    described = [(name, str(value.dtype), value.tolist()) for name, value in chunk.items()]
                    told[chunk["batch_index"].item()].append(described)
        return told

    assert ask("speculative_bls") == ask("speculative_bls_loop"), what


def test_who_calls_the_loop_with_a_ticket_of_his_own_gets_nobody_else_s_text(server: TritonServer) -> None:
    """Requests of the front carry waves of many clients' chunks; that the front does not know his is soon noticed."""
    prompts = TEXTS[:6]
    alone = [ids(stream(server.grpc_url, inputs(prompt, max_tokens=64))) for prompt in prompts]
    calls = [inputs(prompt, max_tokens=64, stream=True) for prompt in prompts]
    found: list[dict[str, Array]] = []
    with ThreadPoolExecutor(len(prompts)) as threads:
        flowing = [threads.submit(stream, server.grpc_url, call) for call in calls for _ in range(3)]
        for _ in range(8):
            with bls.Stream(server.grpc_url, "speculative_bls_loop") as forger, suppress(InferenceServerException):
                forger.send(inputs(TEXTS[6], max_tokens=64, stream=True) | {"ticket": np.array([[1]], np.int64)})
                last = False
                while not last:
                    response, last = forger.receive()
                    found.append(response)
        assert [ids(call.result()) for call in flowing] == [each for each in alone for _ in range(3)]
    assert not [response for response in found if "wave" in response]


@pytest.fixture
def telling(tmp_path: Path) -> Iterator[TritonServer]:
    """Its loop, as it is but for `TELLS`, writes to the log how many chunks each wave has."""
    made = bls.repository(tmp_path, "stand-in", max_engine_rows=64)
    folder = made / "speculative_bls_loop/1"
    code = (folder / "model.py").read_text()
    folder.unlink()  # a link
    folder.mkdir()
    (folder / "model.py").write_text(code + TELLS)
    with TritonServer(made) as server:
        yield server


def waves(server: TritonServer) -> list[int]:
    """The chunks in each wave so far."""
    return [int(count) for count in re.findall(r"a wave of (\d+)", server.log)]


def test_chunks_come_to_the_front_in_waves(telling: TritonServer) -> None:
    """All of them, once the loop knows the front, and those of many clients in one response."""

    def known() -> bool:
        stream(telling.grpc_url, inputs(TEXTS[0], stream=True))
        return bool(waves(telling))

    eventually(known, "the loop knows the front")
    before = len(waves(telling))
    calls = [inputs(prompt, max_tokens=240, num_draft_tokens=4, stream=True) for prompt in TEXTS[:16]]
    with ThreadPoolExecutor(len(calls)) as threads:
        chunks = sum(map(len, threads.map(lambda call: stream(telling.grpc_url, call), calls)))
    found = waves(telling)[before:]
    assert sum(found) == chunks
    assert len(found) < chunks / 2, "many share a response"


def test_who_leaves_a_short_request_is_let_go_though_nobody_else_comes(tmp_path: Path) -> None:
    """The front ends it a second later, when it is asked; the request may have begun and ended between two looks."""
    made = bls.repository(tmp_path, "stand-in", max_engine_rows=64)

    def ended(server: TritonServer, before: int) -> bool:
        return len(re.findall(r"StreamInferComplete, .* flags 1", server.log)) > before

    with TritonServer(made, Options(env={}, arguments=["--log-verbose=1"])) as server:
        for i in range(6):
            time.sleep(2.5)  # the loop asks no more
            with bls.Stream(server.grpc_url) as leaves:
                leaves.send(inputs(TEXTS[0], max_tokens=2, num_draft_tokens=0, seed=SLOW_TOKENS, stream=True))
                leaves.receive()
            eventually(partial(ended, server, i), "its last response is sent", seconds=4)
