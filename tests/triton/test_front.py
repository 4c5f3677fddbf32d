"""The front: what clients get of waves, of responses of their own, and when they or the loop are gone."""

import json
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tandem.render.v1.bls import FRONTS
from triton import bls_client as bls
from triton.bls_client import Stream, inputs, stream
from triton.harness import Options, TritonServer
from triton.repository import assemble, variables
from triton.waits import eventually

FRONT, LOOP = "speculative_bls", "speculative_bls_loop"
SUMMARY = [9, 4, 11, 5]
"""Draft tokens, those accepted, tokens of the prompt, tokens made."""


def repository(folder: Path) -> Path:
    """The operator's own configurations, with the stand-in for the loop's code."""
    assemble(folder, [*FRONTS, LOOP], variables(folder, folder))
    code = folder / LOOP / "1"
    code.unlink()
    code.mkdir()
    shutil.copy(Path(__file__).with_name("stand_in_loop") / "model.py", code)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    with TritonServer(repository(tmp_path_factory.mktemp("front"))) as running:
        yield running


def direct(server: TritonServer, *steps: Sequence[Any]) -> dict[str, bool]:
    """Have the loop do this; of each request that waits there, whether its client has left."""
    [answer] = stream(server.grpc_url, inputs(json.dumps([*steps, ["gone"]])), LOOP)
    left: dict[str, bool] = json.loads(answer["text_output"].item())
    return left


@contextmanager
def clients(
    server: TritonServer, *names: str, outputs: Sequence[str] = (), over: bool = True
) -> Iterator[list[Stream]]:
    """Clients whose requests wait at the loop by their names; at the end they must be over, if that is so."""
    with ExitStack() as stack:
        calls = [stack.enter_context(Stream(server.grpc_url)) for _ in names]
        for call, name in zip(calls, names, strict=True):
            call.send(inputs(name), outputs=outputs)
        eventually(lambda: set(names) <= direct(server).keys(), "all wait")
        yield calls
        if over:
            direct(server, *(["forget", name] for name in names))


def rest(call: Stream) -> list[bls.Response]:
    """All that is still to come, up to the end."""
    responses, last = [], False
    while not last:
        response, last = call.receive()
        responses += [response] if response else []
    return responses


def last(**fields: Any) -> dict[str, Any]:
    return {"finish_reason": "length", "summary": SUMMARY, **fields}


def described(response: bls.Response) -> dict[str, Any]:
    return {name: (str(value.dtype), value.tolist()) for name, value in response.items()}


def test_chunks_are_as_the_loop_would_send_them(server: TritonServer) -> None:
    chunk = {"batch_index": 1, "text": "äb", "ids": [5, 6, 7], "accepted": 2, "draft_length": 1}
    with clients(server, "a") as [call]:
        direct(server, ["wave", "a", [["a", chunk, False], ["a", last(text="c", ids=[8]), True]]], ["close", "a"])
        first, second = rest(call)
    assert described(first) == {
        "text_output": ("object", ["äb".encode()]),
        "output_ids": ("int32", [[5, 6, 7]]),
        "num_accepted_draft_tokens": ("int32", [[2]]),
        "draft_text_length": ("int32", [[1]]),
        "finish_reason": ("object", [[b""]]),
        "batch_index": ("int32", [[1]]),
    }
    assert {name: value for name, value in described(second).items() if name not in first} == {
        "acceptance_rate": ("float32", [[np.float32(4 / 9)]]),
        "total_accepted_draft_tokens": ("int32", [[4]]),
        "total_draft_tokens": ("int32", [[9]]),
        "num_input_tokens": ("int32", [[11]]),
        "num_output_tokens": ("int32", [[5]]),
    }


@pytest.mark.parametrize("reason", ["length", "end_id", "stop"])
def test_why_it_ends(server: TritonServer, reason: str) -> None:
    with clients(server, "a") as [call]:
        direct(server, ["wave", "a", [["a", last(finish_reason=reason, summary=[0, 0, 3, 1]), True]]], ["close", "a"])
        [only] = rest(call)
    assert only["finish_reason"].item() == reason.encode()
    assert only["acceptance_rate"].item() == 0, "of nothing"
    assert only["output_ids"].shape == (1, 0)


def test_only_what_the_client_wants(server: TritonServer) -> None:
    with clients(server, "a", outputs=["output_ids", "num_output_tokens", "cum_log_probs"]) as [call]:
        scores = {"cum_log_probs": ["float32", [[0.5]]], "batch_index": ["int32", [[0]]]}
        direct(
            server,
            ["wave", "a", [["a", {"ids": [1], "text": "x"}, False]]],
            ["plain", "a", scores, False],
            ["wave", "a", [["a", last(ids=[2]), True]]],
            ["close", "a"],
        )
        assert [set(response) for response in rest(call)] == [
            {"output_ids"},
            {"cum_log_probs"},
            {"output_ids", "num_output_tokens"},
        ]


def test_a_wave_finds_its_clients_whoever_carries_it_and_in_order(server: TritonServer) -> None:
    names = ["a", "b", "c"]
    steps: list[list[Any]] = []
    for i in range(30):
        if i % 5 == 4:  # on its own, between waves
            steps.append(["plain", names[i % 3], {"output_ids": ["int32", [[i]]]}, False])
        else:
            steps.append(["wave", names[i % 3], [[name, {"ids": [i]}, False] for name in names[i % 2 :]]])
    steps += [["wave", "b", [[name, last(), True] for name in names]], *(["close", name] for name in names)]
    with clients(server, *names) as calls:
        direct(server, *steps)
        found = {
            name: [token for response in rest(call) for token in response["output_ids"].reshape(-1).tolist()]
            for name, call in zip(names, calls, strict=True)
        }
    for k, name in enumerate(names):
        assert found[name] == [i for i in range(30) if (names[i % 3] == name if i % 5 == 4 else k >= i % 2)], name


def test_it_ends_once_whatever_else_comes(server: TritonServer) -> None:
    """The loop's own end comes after that of a wave, and perhaps an error, or more of a wave that was on its way."""
    with clients(server, "a", "b", "c") as [a, b, c]:
        direct(
            server,
            ["wave", "a", [["a", last(), True], ["a", {"text": "late"}, False]]],
            ["wave", "a", [["a", last(), True], ["b", {"ids": [1]}, False]]],
            ["error", "a", "INTERNAL", "late"],
            ["close", "b"],
            ["wave", "c", [["b", last(), True], ["c", {"ids": [2]}, False]]],
            ["plain", "c", {"output_ids": ["int32", [[3]]]}, True],
        )
        assert [len(rest(call)) for call in (a, b, c)] == [1, 1, 2]
        for call in (a, b, c):
            assert call._answers.empty(), "nothing follows the end"


def test_an_error_keeps_its_code_and_message(server: TritonServer) -> None:
    with clients(server, "a", "b") as [a, b]:
        direct(server, ["wave", "b", [["a", {"ids": [1]}, False]]], ["error", "a", "UNAVAILABLE", "come again"])
        assert a.receive()[0]["output_ids"].tolist() == [[1]]
        with pytest.raises(InferenceServerException, match="come again"):
            a.receive()
        direct(server, ["wave", "b", [["b", last(), True]]], ["close", "b"])
        assert len(rest(b)) == 1


# numbers, their text, and what is wrong
NO_WAVES: list[tuple[list[int], str, str]] = [
    ([1, 2], "", "within a chunk"),
    ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 5], "", "a chunk's tokens or its text"),
    ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0], "ab", "a chunk's tokens or its text"),
    ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, 0], "", "a chunk's tokens or its text"),
    ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1], "", "a chunk's tokens or its text"),
]


@pytest.mark.parametrize(("numbers", "words", "says"), NO_WAVES, ids=str)
def test_what_is_no_wave_is_its_carrier_s_error(
    server: TritonServer, numbers: list[int], words: str, says: str
) -> None:
    with clients(server, "a", "b") as [a, b]:
        direct(
            server, ["raw", "a", numbers, words], ["close", "a"], ["wave", "b", [["b", last(), True]]], ["close", "b"]
        )
        with pytest.raises(InferenceServerException, match=says):
            a.receive()
        assert len(rest(b)) == 1, "it goes on"


def test_clients_that_have_left_are_known(server: TritonServer) -> None:
    with clients(server, "stays") as [stays]:
        with clients(server, "leaves", over=False):
            assert direct(server) == {"stays": False, "leaves": False}
        eventually(lambda: direct(server) == {"stays": False, "leaves": True}, "one has left")
        direct(server, ["error", "leaves", "CANCELLED", "the client cancelled the request"], ["forget", "leaves"])
        direct(server, ["wave", "stays", [["stays", last(), True]]])
        assert direct(server) == {"stays": True}, "whose last response is sent"
        direct(server, ["close", "stays"])
        assert len(rest(stays)) == 1
    assert direct(server) == {}


VERBOSE = Options(env={}, arguments=["--log-verbose=1"])
ENDS = {
    "its last chunk": [["wave", "b", [["a", last(), True]]], ["close", "a"]],
    "an error": [["error", "a", "CANCELLED", "the client cancelled the request"]],
    "no response": [["close", "a"]],
}


def ended(server: TritonServer) -> int:
    """Last responses that Triton's gRPC side has had for clients that had left; asked as the loop asks."""
    direct(server)
    return len(re.findall(r"StreamInferComplete, .* step CANCEL\w+, .* flags 1", server.log))


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_the_last_response_of_a_client_that_has_left_waits_for_a_second(tmp_path: Path, end: list[Any]) -> None:
    """Sent at once, it can crash Triton's gRPC side. Never sent, the server waits for it when it is told to stop."""
    with TritonServer(repository(tmp_path), VERBOSE) as server, clients(server, "b") as [b]:
        with clients(server, "a", over=False):
            at = time.monotonic()
        eventually(lambda: direct(server)["a"], "it has left")
        direct(server, *end)
        while not ended(server):
            assert time.monotonic() - at < 5, "it ends"
            time.sleep(0.05)
        assert time.monotonic() - at > 1
        direct(server, ["wave", "b", [["b", last(), True]]], ["close", "b"])
        assert len(rest(b)) == 1
        time.sleep(0.1)
        assert ended(server) == 1


def test_requests_leave_nothing_in_the_server(server: TritonServer) -> None:
    def play() -> int:
        for _ in range(20):
            with clients(server, "a", "b") as calls:
                long = {"text": 200_000 * "x", "ids": list(range(1000))}
                wave = [[name, long, False] for name in ("a", "b") for _ in range(4)]
                ends = [[name, last(), True] for name in ("a", "b")]
                direct(server, ["wave", "a", wave], ["wave", "b", ends], ["close", "a"], ["close", "b"])
                assert [len(rest(call)) for call in calls] == [5, 5]
        return kept(server)

    play()
    before = play()
    assert play() - before < 15_000, "kB, of 32 MB of texts"


def kept(server: TritonServer) -> int:
    """kB of memory."""
    [found] = re.findall(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{server.pid}/status").read_text())
    return int(found)


def test_a_front_without_its_loop_says_so(tmp_path: Path) -> None:
    assemble(tmp_path, [FRONT], variables(tmp_path, tmp_path))
    with TritonServer(tmp_path) as server:
        for _ in range(2):
            with pytest.raises(InferenceServerException, match=f"'{LOOP}' is not found"):
                stream(server.grpc_url, inputs("a"))
