"""The backend of streams: what is read while an engine streams, and what its calls are answered."""

import itertools
import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc
from tritonclient.utils import InferenceServerException

from triton import backends
from triton.bls_client import Response, infer_inputs, unary
from triton.harness import TritonServer
from triton.waits import eventually

CONFIG = """
name: "{name}"
backend: "{backend}"
max_batch_size: 8
model_transaction_policy {{ decoupled: {decoupled} }}
input [
  {{ name: "request_output_len" data_type: TYPE_INT32 dims: [ 1 ] optional: true }},
  {{ name: "script" data_type: TYPE_STRING dims: [ 1 ] optional: true }},
  {{ name: "stop" data_type: TYPE_BOOL dims: [ 1 ] optional: true }}{more_inputs}
]
output [
  {{ name: "output_ids" data_type: TYPE_INT32 dims: [ -1, -1 ] }},
  {{ name: "sequence_length" data_type: TYPE_INT32 dims: [ -1 ] }}{more_outputs}
]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
"""
INPUTS = """,
  { name: "stream_caller" data_type: TYPE_INT64 dims: [ 1 ] },
  { name: "stream_number" data_type: TYPE_INT64 dims: [ 1 ] optional: true },
  { name: "stream_wait_ms" data_type: TYPE_INT32 dims: [ 1 ] optional: true }"""
OUTPUTS = """,
  { name: "stream_number" data_type: TYPE_INT64 dims: [ -1 ] },
  { name: "stream_start" data_type: TYPE_INT32 dims: [ -1 ] },
  { name: "stream_length" data_type: TYPE_INT32 dims: [ -1 ] }"""
Part = tuple[int, int, list[int]]
callers = itertools.count(1)
FOR_GOOD = 600_000
"""Milliseconds for which no client waits: a read that is held up fails."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    folder = tmp_path_factory.mktemp("streams")
    for name in ("some_engine", "some_engine_streams", "lone_streams"):
        version = folder / name / "1"
        version.mkdir(parents=True)
        streams = name.endswith("_streams")
        config = CONFIG.format(
            name=name,
            backend="streams" if streams else "python",
            decoupled="false" if streams else "true",
            more_inputs=INPUTS if streams else "",
            more_outputs=OUTPUTS if streams else "",
        )
        (folder / name / "config.pbtxt").write_text(config)
        if streams:
            (version / backends.streams().name).symlink_to(backends.streams())
    shutil.copy(Path(__file__).with_name("stand_in_stream") / "model.py", folder / "some_engine/1/model.py")
    with TritonServer(folder) as running:
        yield running


class Caller:
    """Opens streams, and reads them."""

    def __init__(self, server: TritonServer) -> None:
        self._server, self._url, self.name = server, server.grpc_url, next(callers)
        self._threads = ThreadPoolExecutor(16)
        self._numbers = itertools.count(1)
        self._gathered: dict[int, list[int]] = {}

    def open(
        self, *script: Any, wanted: int = 100, model: str = "some_engine_streams", rows: int = 1
    ) -> "Future[list[int]]":
        """What the call is answered, once it is; streams are numbered from 1 on."""
        number = next(self._numbers)
        tensors = {
            "request_output_len": np.full((rows, 1), wanted, np.int32),
            "script": np.full((rows, 1), json.dumps(script).encode(), np.object_),
            "stream_caller": np.full((rows, 1), self.name, np.int64),
            "stream_number": np.full((rows, 1), number, np.int64),
        }
        return self._threads.submit(self._ask, model, tensors, self.id(number))

    def id(self, number: int) -> str:
        """The request id of a stream."""
        return f"{self.name}-{number}"

    def _ask(self, model: str, tensors: dict[str, Any], request_id: str) -> list[int]:
        with grpc.InferenceServerClient(self._url) as client:
            found = client.infer(model, infer_inputs(tensors), request_id=request_id, client_timeout=300)
        ids: list[int] = found.as_numpy("output_ids").reshape(-1).tolist()
        assert found.as_numpy("sequence_length").tolist() == [[len(ids)]]
        return ids

    def waits(self, number: int) -> bool:
        """Whether the engine has sent all that comes before a stream's first wait."""
        return f"stream {self.id(number)} waits\n" in self._server.log

    def stop(self, number: int) -> None:
        """Ask the engine to end a stream, or the first of its waits."""
        with grpc.InferenceServerClient(self._url) as client:
            client.start_stream(lambda result, error: None)
            client.async_stream_infer(
                "some_engine", infer_inputs({"stop": np.array([[True]])}), request_id=self.id(number)
            )
            client.stop_stream()

    def read(self, wait: int = FOR_GOOD) -> list[Part]:
        """Number, start and tokens of each part that came, after so many milliseconds at most."""
        tensors = {"stream_caller": np.array([[self.name]]), "stream_wait_ms": np.array([[wait]], np.int32)}
        return parts(unary(self._url, tensors, "some_engine_streams"))

    def gathered(self, number: int) -> list[int]:
        """What was read of a stream so far, with what can be read now."""
        for each, start, ids in self.read(50):
            known = self._gathered.setdefault(each, [])
            assert len(known) == start, "nothing is left out, nothing comes twice"
            known += ids
        return self._gathered.get(number, [])


def parts(found: Response) -> list[Part]:
    ids = iter(found["output_ids"].reshape(-1).tolist())
    columns = [found[name].reshape(-1).tolist() for name in ("stream_number", "stream_start", "stream_length")]
    read = [
        (number, start, list(itertools.islice(ids, count))) for number, start, count in zip(*columns, strict=True)
    ]
    assert not list(ids)
    return read


@pytest.fixture
def caller(server: TritonServer) -> Caller:
    return Caller(server)


def test_what_came_is_read_and_the_answer_has_all(caller: Caller) -> None:
    answer = caller.open([1, 2], [3], "wait", [4, 5], [6])
    eventually(lambda: caller.gathered(1) == [1, 2, 3], "two responses may be two parts")
    caller.stop(1)
    assert answer.result() == [1, 2, 3, 4, 5, 6]
    assert caller.read(10) == [], "what has ended is not read"


def test_a_read_waits_for_tokens(caller: Caller) -> None:
    answer = caller.open("wait", [1], "wait")
    assert caller.read(50) == []
    with ThreadPoolExecutor(1) as threads:
        read = threads.submit(caller.read)
        time.sleep(0.2)
        caller.stop(1)
        assert read.result() == [(1, 0, [1])]
    caller.stop(1)
    assert answer.result() == [1]


def test_streams_that_go_on_together_are_read_together(caller: Caller) -> None:
    answers = [caller.open([n], "wait") for n in range(8)]
    found: list[Part] = []

    def all_came() -> bool:
        found.extend(caller.read(50))
        return len(found) == 8

    eventually(all_came, "a part of each")
    assert sorted(found) == [(n + 1, 0, [n]) for n in range(8)]
    for number in range(1, 9):
        caller.stop(number)
    assert [answer.result() for answer in answers] == [[n] for n in range(8)]


def test_a_stream_that_waits_in_the_engine_holds_up_no_other(caller: Caller) -> None:
    waits, goes_on = caller.open("wait"), caller.open([1], "wait")
    assert caller.read() == [(2, 0, [1])]
    for number in (1, 2):
        caller.stop(number)
    assert (waits.result(), goes_on.result()) == ([], [1])


def test_callers_read_their_own(server: TritonServer) -> None:
    one, other = Caller(server), Caller(server)
    answers = [each.open([each.name], "wait") for each in (one, other)]
    assert [each.read() for each in (one, other)] == [[(1, 0, [each.name])] for each in (one, other)]
    for each in (one, other):
        each.stop(1)
    assert [answer.result() for answer in answers] == [[one.name], [other.name]]


def test_of_two_reads_the_later_gets_what_comes(caller: Caller) -> None:
    """Nothing tells when a read has come to wait: where the machine stands still, the earlier one may come later."""

    def in_order(number: int, pause: float) -> bool:
        with ThreadPoolExecutor(2) as threads:
            reads = []
            for _ in range(2):
                reads.append(threads.submit(caller.read))
                time.sleep(pause)
            answer = caller.open([1], "wait")
            earlier, later = (read.result() for read in reads)
        caller.stop(number)
        answer.result()
        assert sorted([earlier, later]) == [[], [(number, 0, [1])]], "one of them gets it"
        return earlier == []

    assert any(in_order(number, pause) for number, pause in enumerate((0.2, 0.2, 2.0, 20.0), 1))


ERRORS: list[tuple[str, list[Any], dict[str, Any], str, str]] = [
    ("before any token", [{"error": "no blocks", "code": "UNAVAILABLE"}], {}, "UNAVAILABLE", "no blocks"),
    ("in mid-stream", [[1], [2], {"error": "CUDA error"}], {}, "INTERNAL", "CUDA error"),
    ("more than was asked for", [[1, 2], [3, 4]], {"wanted": 3}, "INTERNAL", "must take exclude_input_in_output"),
    ("no engine", [], {"model": "lone_streams"}, "NOT_FOUND", "'lone' is not found"),
    ("several rows", [[1]], {"rows": 2}, "INTERNAL", "a stream is of one sequence: send one row"),
]


@pytest.mark.parametrize(("what", "script", "how", "code", "message"), ERRORS, ids=[what for what, *_ in ERRORS])
def test_what_goes_wrong_is_the_call_s_error(
    caller: Caller, what: str, script: list[Any], how: dict[str, Any], code: str, message: str
) -> None:
    good = caller.open([7], "wait")
    with pytest.raises(InferenceServerException) as raised:
        caller.open(*script, **how).result()
    assert message in raised.value.message()
    assert raised.value.status() == f"StatusCode.{code}"
    eventually(lambda: caller.gathered(1) == [7], "others go on")
    caller.stop(1)
    assert good.result() == [7]


def test_tokens_are_kept_for_who_reads_late(caller: Caller) -> None:
    answer = caller.open(*([n] for n in range(50)), "wait")
    eventually(lambda: caller.waits(1), "all are there")
    assert caller.read() == [(1, 0, list(range(50)))], "what came meanwhile is one part"
    caller.stop(1)
    assert answer.result() == list(range(50))


def test_a_stream_without_tokens_is_answered_so(caller: Caller) -> None:
    assert caller.open().result() == []
    assert caller.open(0.1, []).result() == []


def test_an_input_that_is_missing_is_an_error(server: TritonServer) -> None:
    with pytest.raises(InferenceServerException, match="needs stream_number of each row"):
        unary(server.grpc_url, {"stream_caller": np.array([[1]])}, "some_engine_streams")
