"""What a pod that downloads says of its progress, in words."""

import json

import pytest

from tandem.cluster.progress import describe

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
    assert describe(answer) == ""
