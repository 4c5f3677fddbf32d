"""What is known of how many drafted tokens are accepted: estimates by table."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tandem_serving.bls.draft_length.acceptance import Acceptance


def positions(acceptance: Acceptance) -> list[float]:
    """p_1..p_depth: what each position adds to a round's tokens is p_1 ... p_i."""
    reach = [1.0, *(b - a for a, b in pairwise(acceptance.yields))]
    return [b / a if a > 1e-9 else 0.0 for a, b in pairwise(reach)]


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
    acceptance = Acceptance(4)
    for drafted, accepted in rounds:
        acceptance.observe(drafted, accepted)
        acceptance.update(half_life=128)
    assert positions(acceptance)[: len(expected)] == pytest.approx(expected, abs=0.06), reason


def test_expected_tokens_follow_the_formula() -> None:
    acceptance = Acceptance(3)
    for _ in range(2000):
        for accepted in (0, 1, 1, 3):  # p = 3/4, 1/3, 1
            acceptance.observe(3, accepted)
    acceptance.update(half_life=1e9)
    assert list(acceptance.yields) == pytest.approx([1, 1.75, 2.0, 2.25], abs=0.01)


def test_the_end_of_a_text_counts_as_refused() -> None:
    """So longer drafts yield less where answers are short."""
    yields = []
    for left in (2, 8):
        acceptance = Acceptance(8)
        for _ in range(200):
            acceptance.observe(8, left)
        acceptance.update(half_life=1e9)
        yields.append(acceptance.yields[8])
    assert yields == pytest.approx([3, 9], abs=0.3)


def test_what_was_known_can_be_made_to_count_for_few_rounds() -> None:
    kept, faded = Acceptance(2), Acceptance(2)
    for acceptance in (kept, faded):
        for _ in range(200):
            acceptance.observe(2, 0)
        acceptance.update(half_life=1e9)
    faded.update(half_life=1e9, most=8)
    assert positions(faded)[0] == pytest.approx(positions(kept)[0], abs=0.2)
    for acceptance in (kept, faded):
        for _ in range(8):
            acceptance.observe(2, 2)
        acceptance.update(half_life=1e9)
    assert positions(faded)[0] > 0.45 > 0.15 > positions(kept)[0]


@pytest.mark.parametrize(("half_life", "least", "most"), [(128, 0.45, 0.55), (1024, 0.06, 0.12)])
def test_an_observation_counts_half_after_so_many_rounds(half_life: float, least: float, most: float) -> None:
    acceptance = Acceptance(1)
    for accepted in [0] * 5000 + [1] * 128:
        acceptance.observe(1, accepted)
        acceptance.update(half_life)
    assert least <= positions(acceptance)[0] <= most


def test_estimates_survive_any_number_of_rounds() -> None:
    acceptance = Acceptance(2)
    for accepted in [0] * 100_000 + [1] * 2000:  # until what was there at first is below the least number
        acceptance.observe(2, accepted)
        acceptance.update(half_life=64)
    assert positions(acceptance) == pytest.approx([1.0, 0.0], abs=0.1)
