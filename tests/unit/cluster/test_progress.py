"""What a pod that downloads says of its progress, in words."""

import json

import pytest

from tandem.cluster.progress import describe, describe_build

ROWS = [
    # phase, bytes, total, in words, why
    ("Resolving", 0, 0, "Resolving: listing the files", "it begins"),
    ("Waiting", 0, 0, "Waiting: another pod downloads the same model", "two services with one model"),
    ("Complete", 0, 0, "Complete", "it was there"),
    ("Fetching", 500_000_000, 2_000_000_000, "Fetching: 0.50 of 2.00 GB (25 %)", "it works"),
]


@pytest.mark.parametrize(("phase", "done", "total", "words", "reason"), ROWS, ids=[row[4] for row in ROWS])
def test_in_words(phase: str, done: int, total: int, words: str, reason: str) -> None:
    assert describe(json.dumps({"phase": phase, "bytes": done, "total": total}).encode()) == words, reason


@pytest.mark.parametrize("answer", [b"", b"[]", b"{", b"<html>", b'{"phase": "Fetching"}', b"\xff", b"[" * 4096])
def test_what_is_no_answer_says_nothing(answer: bytes) -> None:
    assert describe(answer) == describe_build(answer) == ""


BUILDING = {
    "phase": "Building",
    "rank": 3,
    "ranks": 8,
    "layer": 0,
    "layers": 80,
    "seconds": 845,
    "line": "[TRT] [I] ok",
}
BUILDS = [
    # what differs, in words, why
    ({}, "Building: rank 3 of 8, 14 min; the tool's log: [TRT] [I] ok", "trtllm-build names no layer"),
    (
        {"phase": "Converting", "layer": 12, "seconds": 59, "line": ""},
        "Converting: rank 3 of 8, layer 12 of 80, 59 s",
        "a conversion does",
    ),
    (
        {"phase": "Waiting", "seconds": 0},
        "Waiting: another pod builds the same engine",
        "two services with one model",
    ),
    ({"line": "a\x1b[31m\nb"}, "Building: rank 3 of 8, 14 min; the tool's log: a?[31m?b", "a line of anybody's"),
    ({"line": "x" * 5000}, "", "longer than any that we send"),
    ({"seconds": -1}, "", "no time"),
]


@pytest.mark.parametrize(("changes", "words", "reason"), BUILDS, ids=[row[2] for row in BUILDS])
def test_builds_in_words(changes: dict[str, object], words: str, reason: str) -> None:
    assert describe_build(json.dumps({**BUILDING, **changes}).encode()) == words, reason
