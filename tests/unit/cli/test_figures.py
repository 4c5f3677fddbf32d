"""Figures of a completion, from chunks and their times."""

from typing import Any

import pytest

from tandem.client.generate.figures import (
    Arrival,
    Chunk,
    ComparedCompletion,
    Completion,
    PromptResult,
    Recorder,
    Totals,
    median_of,
)


def finished(*arrivals: tuple[float, Chunk]) -> Completion:
    recorder = Recorder()
    for seconds, chunk in arrivals:
        recorder.add(Arrival(seconds, chunk))
    completion = recorder.completion()
    assert completion is not None
    return completion


def last(
    text: str = "", ids: tuple[int, ...] = (), accepted: int = 0, reason: str = "length", **totals: Any
) -> Chunk:
    return Chunk(text, ids, accepted, finish_reason=reason, totals=Totals(**totals))


LENGTHS = [
    # name, chunks, passes, acceptance rate, mean accepted length
    (
        "3 and 1 of 4 accepted: (3 + 1 + 1 + 1) / 2",
        [Chunk("abcd", (1, 2, 3, 4), 3), last("ef", (5, 6), 1, draft_tokens=8, accepted_draft_tokens=4)],
        2,
        0.5,
        3.0,
    ),
    (
        "none accepted: each pass yields the target's own token",
        [Chunk("a", (1,), 0), last("b", (2,), 0, draft_tokens=8)],
        2,
        0.0,
        1.0,
    ),
    (
        "text split off a pass is no pass of its own",
        [Chunk("ab"), last("c", (1, 2, 3), 2, draft_tokens=2, accepted_draft_tokens=2)],
        1,
        1.0,
        3.0,
    ),
    (
        "a last chunk without tokens is the pass that found the end",
        [Chunk("ab", (1, 2), 1), last(reason="end_id", draft_tokens=4, accepted_draft_tokens=1)],
        2,
        0.25,
        1.5,
    ),
    (
        "the target alone has neither rate nor length",
        [Chunk("a", (1,)), last("b", (2,))],
        2,
        None,
        None,
    ),
    (
        "a rate over drafts that a stop word cut from the output is the server's own count",
        [last("a", (1,), 1, reason="stop", draft_tokens=4, accepted_draft_tokens=3)],
        1,
        0.75,
        2.0,
    ),
    (
        "mode LLMAPI: the engine's iterations are the passes, however many a chunk holds",
        [Chunk("abcd", (1, 2, 3, 4)), last("ef", (5, 6), draft_tokens=9, accepted_draft_tokens=3, tokens_per_pass=2)],
        3,
        1 / 3,
        2.0,
    ),
    (
        "TensorRT-LLM 1.2 tells no drafts: what is more than a token an iteration was accepted",
        [Chunk("abcd", (1, 2, 3, 4)), last("ef", (5, 6), tokens_per_pass=2)],
        3,
        None,
        2.0,
    ),
    (
        "an engine that does not speculate has no length",
        [Chunk("a", (1,)), last("b", (2,), tokens_per_pass=1)],
        2,
        None,
        None,
    ),
    (
        "nor one that counts the prompt's iteration, which gave no token",
        [Chunk("a", (1,)), last("b", (2,), tokens_per_pass=2 / 3)],
        3,
        None,
        None,
    ),
]


@pytest.mark.parametrize(
    ("chunks", "passes", "rate", "length"), [c[1:] for c in LENGTHS], ids=[c[0] for c in LENGTHS]
)
def test_acceptance(chunks: list[Chunk], passes: int, rate: float | None, length: float | None) -> None:
    completion = finished(*((0.1 * i, chunk) for i, chunk in enumerate(chunks, 1)))
    assert completion.passes == passes
    assert completion.acceptance_rate == rate
    assert completion.mean_accepted_length == length


def test_times_count_from_sending_the_request() -> None:
    completion = finished((0.5, Chunk("a", (1,))), (1.0, Chunk("b", (2,))), (2.0, last("c", (3, 4))))
    assert completion.first_token_seconds == 0.5
    assert completion.seconds == 2.0
    assert completion.tokens_per_second == 2.0
    assert (completion.text, completion.ids, completion.finish_reason) == ("abc", (1, 2, 3, 4), "length")


@pytest.mark.parametrize("chunks", [[], [Chunk("a", (1,))]], ids=["nothing came", "cut in the middle"])
def test_a_stream_without_its_last_chunk_is_no_completion(chunks: list[Chunk]) -> None:
    recorder = Recorder()
    for chunk in chunks:
        recorder.add(Arrival(0.1, chunk))
    assert recorder.completion() is None


DIFFERENCES = [
    # name, ids with speculation, ids alone, first difference
    ("the same", (1, 2, 3), (1, 2, 3), None),
    ("one token differs", (1, 9, 3), (1, 2, 3), 1),
    ("one is longer", (1, 2, 3), (1, 2), 2),
    ("nothing at all in both", (), (), None),
]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"), [d[1:] for d in DIFFERENCES], ids=[d[0] for d in DIFFERENCES]
)
def test_comparison(ours: tuple[int, ...], theirs: tuple[int, ...], expected: int | None) -> None:
    comparison = ComparedCompletion(finished((1.0, last(ids=ours))), finished((2.0, last(ids=theirs))))
    assert comparison.first_difference == expected


def test_speedup_is_the_ratio_of_tokens_per_second() -> None:
    fast, slow = finished((1.0, last(ids=(1, 2, 3)))), finished((2.0, last(ids=(1, 2, 3))))
    assert ComparedCompletion(fast, slow).speedup == 2.0
    assert ComparedCompletion(fast, finished((1.0, last()))).speedup is None, "no tokens, no ratio"
    assert PromptResult(0, "p", fast).comparison is None, "nothing to compare with"


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3.0, 1.0, 2.0], 2.0), ([1.0, None, 3.0], 2.0), ([None], None), ([], None)],
    ids=["middle", "what is not there does not count", "none there", "none at all"],
)
def test_median(values: list[float | None], expected: float | None) -> None:
    assert median_of(values) == expected
