"""The collector's rows: what engines may answer, and what they should not."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from triton import backends
from triton.bls_client import unary
from triton.harness import TritonServer

CONFIG = """
name: "{name}"
backend: "{backend}"
max_batch_size: 8
model_transaction_policy {{ decoupled: {decoupled} }}
input [ {{ name: "row" data_type: TYPE_STRING dims: [ 1 ] }} ]
output [
  {{ name: "ids" data_type: TYPE_INT32 dims: [ -1, -1 ] }},
  {{ name: "halves" data_type: TYPE_FP16 dims: [ -1 ] }},
  {{ name: "text" data_type: TYPE_STRING dims: [ -1 ] }},
  {{ name: "batch_index" data_type: TYPE_INT32 dims: [ 1 ] }}
]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
"""
Row = dict[str, Any] | None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    folder = tmp_path_factory.mktemp("rows")
    for name in ("some_engine", "some_collector", "lone_collector"):
        (folder / name / "1").mkdir(parents=True)
        backend, decoupled = ("python", "true") if name == "some_engine" else ("collector", "false")
        config = CONFIG.format(name=name, backend=backend, decoupled=decoupled)
        (folder / name / "config.pbtxt").write_text(config)
        if backend == "collector":
            (folder / name / "1" / backends.collector().name).symlink_to(backends.collector())
    shutil.copy(Path(__file__).with_name("stand_in_rows") / "model.py", folder / "some_engine/1/model.py")
    with TritonServer(folder) as running:
        yield running


def row(index: int, tokens: list[Any] | None = None, **outputs: Any) -> dict[str, Any]:
    """What a row asks for: its index, its tokens, other outputs; each [1, ...]."""
    ids = {} if tokens is None else {"ids": ["int32", [tokens]]}
    return {"batch_index": ["int32", [[index]]]} | ids | outputs


def halves(*values: float) -> list[Any]:
    return ["float16", [values]]


# what the rows' answers hold, and the outputs of all
ANSWERS: list[tuple[str, list[Row], dict[str, Any]]] = [
    ("by their indices", [row(1, [[4]]), row(2, [[5]]), row(0, [[3]])], {"ids": [[[3]], [[4]], [[5]]]}),
    ("as wide as the widest", [row(0, [[1]]), row(1, [[2, 3, 4]])], {"ids": [[[1, 0, 0]], [[2, 3, 4]]]}),
    (
        "in each dimension",
        [row(0, [[1, 2]]), row(1, [[3], [4]])],
        {"ids": [[[1, 2], [0, 0]], [[3, 0], [4, 0]]]},
    ),
    ("one without tokens", [row(0, [[]]), row(1, [[2, 3]])], {"ids": [[[0, 0]], [[2, 3]]]}),
    ("all without", [row(0, [[]]), row(1, [[]])], {"ids": [[[]], [[]]]}),
    (
        "what one lacks",
        [row(0, [[1]]), row(1, [[2]], halves=halves(0.5, 1.5))],
        {"ids": [[[1]], [[2]]], "halves": [[0, 0], [0.5, 1.5]]},
    ),
    ("a single row, without its index", [{"ids": ["int32", [[[6]]]]}], {"ids": [[[6]]]}),
]


@pytest.mark.parametrize(("what", "rows", "expected"), ANSWERS, ids=[what for what, *_ in ANSWERS])
def test_rows_become_one_answer(server: TritonServer, what: str, rows: list[Row], expected: dict[str, Any]) -> None:
    found = collected(server, rows)
    assert {name: array.tolist() for name, array in found.items() if name != "batch_index"} == expected


# what the rows' answers hold, the code and the message
FAULTS: list[tuple[str, list[Row], str, str]] = [
    ("an error", [row(0, [[1]]), {"error": "no blocks", "code": "UNAVAILABLE"}], "UNAVAILABLE", "no blocks"),
    ("no index", [row(0, [[1]]), {"ids": ["int32", [[[2]]]]}], "INTERNAL", "without int32 batch_index"),
    (
        "another",
        [row(0, [[1]]), row(1, [[2]], batch_index=["int64", [[1]]])],
        "INTERNAL",
        "without int32 batch_index",
    ),
    ("an empty one", [row(0), row(1, batch_index=["int32", [[]]])], "INTERNAL", "without int32 batch_index"),
    ("strings", [row(0, text=["object", [["a"]]])], "INTERNAL", "elements have no fixed size"),
    ("other dimensions", [row(0, [[1]]), row(1, [2])], "INTERNAL", "rows whose ids do not fit together"),
    (
        "other types",
        [row(0, [[1]]), row(1, ids=["int64", [[[2]]]])],
        "INTERNAL",
        "rows whose ids do not fit together",
    ),
    ("two rows in one", [row(0, [[1]]), row(1, ids=["int32", [[[2]], [[3]]]])], "INTERNAL", "do not fit together"),
    ("one is missing", [row(0, [[1]]), None], "INTERNAL", "the engine answered 1 of 2 rows of a call"),
    ("nobody's", [row(0, [[1]]), row(2, [[2]])], "INTERNAL", "no row with batch_index 1, or another twice"),
    ("one twice", [row(1, [[1]]), row(1, [[2]])], "INTERNAL", "no row with batch_index 0, or another twice"),
    ("nothing", [None, None], "INTERNAL", "the engine ended a call without an answer"),
]


@pytest.mark.parametrize(("what", "rows", "code", "message"), FAULTS, ids=[what for what, *_ in FAULTS])
def test_what_is_wrong_with_a_row_is_the_call_s_error(
    server: TritonServer, what: str, rows: list[Row], code: str, message: str
) -> None:
    with pytest.raises(InferenceServerException) as raised:
        collected(server, rows)
    assert message in raised.value.message()
    assert raised.value.status() == f"StatusCode.{code}"
    assert collected(server, [row(0, [[1]])])["ids"].tolist() == [[[1]]], "it goes on"


def test_a_call_without_its_engine_gets_an_error(server: TritonServer) -> None:
    for _ in range(2):
        with pytest.raises(InferenceServerException, match="'lone_engine' is not found"):
            collected(server, [row(0)], "lone_collector")


def test_errors_leave_nothing_in_the_server(server: TritonServer) -> None:
    """Those that Triton hands out are ours to delete."""
    long: Row = {"error": 1_000_000 * "x", "code": "UNAVAILABLE"}

    def play() -> int:
        for _ in range(30):
            with pytest.raises(InferenceServerException):
                collected(server, [long, row(1, [[1]])])
        [kept] = re.findall(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{server.pid}/status").read_text())
        return int(kept)

    play()
    before = play()
    assert play() - before < 25_000, "kB, of 30 MB of messages"


def collected(server: TritonServer, rows: list[Row], model: str = "some_collector") -> dict[str, Any]:
    asked = np.array([[json.dumps(each).encode()] for each in rows], np.object_)
    return unary(server.grpc_url, {"row": asked}, model)
