"""What is known of how many drafted tokens are accepted: estimates by table."""

from __future__ import annotations

import random

import pytest

from support.serving.draft_length_simulation import MAXIMUM, tokens
from tandem_serving.bls.draft_length.acceptance import LIKENESS, AcceptanceEstimate, Likeness, in_answers


@pytest.mark.parametrize(
    ("rounds", "expected", "reason"),
    [
        ([(4, 4)] * 100, [1.0, 1.0, 1.0, 1.0], "all accepted: also where it was never tried"),
        ([(4, 0)] * 100, [0.0], "none accepted: later positions had no trial"),
        ([(2, 1)] * 300, [1.0, 0.0], "position 2 is tried only where 1 was accepted, and always fails"),
        ([(1, 1), (1, 0)] * 100, [0.5, 0.5, 0.5], "depths not drafted look like the last one that was"),
        ([(4, 4)] * 500 + [(4, 0)] * 1500, [0.0], "what was is forgotten"),
        ([(20, 20)] * 100, [1.0] * 4, "more drafted than the depth: the rest does not matter"),
        ([(0, 0)] * 100, [0.7], "nothing drafted, nothing learnt"),
    ],
)
def test_acceptance_by_position(rounds: list[tuple[int, int]], expected: list[float], reason: str) -> None:
    acceptance = AcceptanceEstimate(4)
    for drafted, accepted in rounds:
        acceptance.observe(drafted, accepted)
    assert list(acceptance.positions())[: len(expected)] == pytest.approx(expected, abs=0.06), reason


def test_expected_tokens_follow_the_formula() -> None:
    acceptance = AcceptanceEstimate(3)
    for _ in range(2000):
        for accepted in (0, 1, 1, 3):  # p = 3/4, 1/3, 1
            acceptance.observe(3, accepted)
    assert [acceptance.expected(k) for k in range(4)] == pytest.approx([1, 1.75, 2.0, 2.25], abs=0.04)


@pytest.mark.parametrize("k", [1, 4, 8])
@pytest.mark.parametrize("acceptance", [0.3, 0.95])
@pytest.mark.parametrize(("length", "within"), [(16, 0.04), (128, 0.015)])
def test_answers_begin_and_end_with_turns_that_yield_less(
    length: int, within: float, acceptance: float, k: int
) -> None:
    """Against turns that were played: the first for one token with the prompt, of the last round what is left."""
    rng, rounds, answers = random.Random(1), 0, 4000
    for _ in range(answers):
        left, rounds = length - 1, rounds + 1
        while left > 0:
            kept = next((j for j in range(k) if rng.random() >= acceptance), k)
            left, rounds = left - kept - 1, rounds + 1
    foretold = in_answers([tokens(acceptance, j) for j in range(k + 1)], length)
    assert foretold[k] == pytest.approx(length * answers / rounds, rel=within)
    assert in_answers([1.0, 1.8], float("inf")) == [1.0, 1.8], "as long as nothing is known of answers"


@pytest.mark.parametrize(
    ("rounds", "low", "high", "reason"),
    [
        (0, 0.89, 1.0, "no data: the server's"),
        (2, 0.6, 0.85, "few rounds: towards the server's"),
        (100, 0.0, 0.15, "many: its own, at each depth"),
    ],
)
def test_a_sequence_starts_as_the_server(rounds: int, low: float, high: float, reason: str) -> None:
    server = AcceptanceEstimate(MAXIMUM)
    for _ in range(300):
        AcceptanceEstimate(MAXIMUM, server).observe(10, 8)
    sequence = AcceptanceEstimate(MAXIMUM, server)
    for _ in range(rounds):
        sequence.observe(MAXIMUM, 0)
    assert all(low <= p <= high for p in sequence.positions()), reason


@pytest.mark.parametrize(
    ("kinds", "rounds", "reason"),
    [
        ([0.8], 64, "all alike: what all have seen says more of a sequence than its own rounds"),
        ([0.95, 0.2], 4, "two kinds: a sequence soon shows which it is of"),
        ([0.8, 0.6], 16, "nearly alike"),
    ],
)
def test_how_alike_sequences_are_is_learnt(kinds: list[float], rounds: int, reason: str) -> None:
    rng, server = random.Random(1), AcceptanceEstimate(MAXIMUM)
    likeness = server.likeness
    for number in range(200):
        sequence = AcceptanceEstimate(MAXIMUM, server)
        for _ in range(40):
            sequence.observe(1, rng.random() < kinds[number % len(kinds)])
    assert likeness.rounds == rounds, reason


def test_nothing_is_known_of_how_alike_they_are() -> None:
    assert Likeness().rounds == LIKENESS[0]


def test_fading_keeps_the_estimate_and_lets_it_move() -> None:
    kept, faded = AcceptanceEstimate(2), AcceptanceEstimate(2)
    for acceptance in (kept, faded):
        for _ in range(200):
            acceptance.observe(2, 0)
    faded.fade(8)
    assert faded.positions()[0] == pytest.approx(kept.positions()[0])
    for acceptance in (kept, faded):
        for _ in range(8):
            acceptance.observe(2, 2)
    assert faded.positions()[0] > 0.45 > 0.15 > kept.positions()[0]


def test_estimates_survive_any_number_of_rounds() -> None:
    server = AcceptanceEstimate(2)
    for _ in range(150_000):  # until what was there at first is below the least number
        server.observe(2, 0)
    sequence = AcceptanceEstimate(2, server)
    assert list(sequence.positions()) == [0.0, 0.0]
    for _ in range(20_000):
        sequence.observe(2, 1)
    assert list(sequence.positions()) == pytest.approx([1.0, 0.0], abs=0.1)


# Acceptance that was known, accepted first tokens of the latest eight rounds, what is believed then.
LATELY = [
    (0.1, 7, 0.4, 1.0, "traffic has changed"),
    (0.9, 1, 0.0, 0.6, "the other way"),
    (0.6, 8, 0.55, 0.75, "eight lucky ones are none"),
    (0.1, 1, 0.05, 0.15, "as expected"),
]


@pytest.mark.parametrize(("known", "hits", "least", "most", "reason"), LATELY, ids=[row[-1] for row in LATELY])
def test_what_was_known_is_forgotten_where_it_is_contradicted(
    known: float, hits: int, least: float, most: float, reason: str
) -> None:
    server = AcceptanceEstimate(2)
    server.remember(64)
    for number in range(1000):
        server.observe(1, number % 10 < 10 * known)
    for number in range(8):
        server.observe(1, number < hits)
    server.revise()
    assert least <= server.positions()[0] <= most, reason


@pytest.mark.parametrize(("rows", "least", "most"), [(8, 0.5, 0.7), (64, 0.1, 0.2)])
def test_what_all_have_seen_counts_for_some_rounds_of_each(rows: int, least: float, most: float) -> None:
    """Else two rounds of 64 sequences would be all that is known: 4% of noise in what a round yields."""
    server = AcceptanceEstimate(2)
    server.remember(rows)
    for accepted in [0] * 2000 + [1] * 128:
        server.observe(1, accepted)
    assert least <= server.positions()[0] <= most
