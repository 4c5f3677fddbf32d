"""The cost model and the made-up model that the simulator and the load share with the stub engine."""

from dataclasses import replace

import numpy as np
import pytest

from bench.bls import tokens
from bench.bls.in_flight import BLOCK, Costs, PrefixCache, Row, StepLimits, choose, step_seconds

pytestmark = pytest.mark.nightly

COSTS = Costs(12.0, per_sequence=0.05, per_draft_token=0.5, per_prefill_token=0.01)


def ids_of(rows: int, length: int) -> tokens.Ids:
    """Prompts that differ, int32[rows, length]."""
    return (np.arange(rows)[:, None] * 7 + np.arange(length) * 3 + 1).astype(np.int32)


# rows, milliseconds of the steps until all are done, why
STEPS = [
    ([Row(1, 65)], [12.05], "one sequence"),
    ([Row(1, 65, 3)], [12.05] * 3, "a token a step"),
    ([Row(1, 65, 2), Row(2, 65)], [12.1, 12.05], "the shorter row leaves"),
    ([Row(1, 75, 2)], [12.15, 12.05], "what is new of the context is prefilled once"),
    ([Row(1, 65, draft_tokens=4), Row(2, 65, draft_tokens=4)], [16.1], "so are draft tokens"),
]


def held() -> PrefixCache:
    """Two blocks of each sequence."""
    cache = PrefixCache()
    for key in range(1, 9):
        cache.store(key, 2 * BLOCK)
    return cache


@pytest.mark.parametrize(("rows", "milliseconds", "why"), STEPS)
def test_steps_cost_what_the_model_says(rows: list[Row], milliseconds: list[float], why: str) -> None:
    took = []
    rows = [replace(row) for row in rows]
    while not all(row.done for row in rows):
        choose(rows, StepLimits(), held())
        took.append(step_seconds(rows, COSTS) * 1e3)
        for row in rows:
            row.end_step()
    assert took == pytest.approx(milliseconds), why


# limits, rows, the tokens that each row has after each step, why
LIMITED = [
    (StepLimits(tokens=220), [Row(1, 100), Row(2, 100), Row(3, 100)], ["110", "111"], "all of a context counts"),
    (StepLimits(tokens=201), [Row(1, 100, draft_tokens=2), Row(2, 100)], ["10", "11"], "draft tokens too"),
    (StepLimits(tokens=202), [Row(1, 100, draft_tokens=2), Row(2, 100)], ["11"], "up to the limit"),
    (
        StepLimits(tokens=150),
        [Row(1, 100), Row(2, 60), Row(3, 40)],
        ["100", "111"],
        "the first that does not fit stops those behind it",
    ),
    (
        StepLimits(tokens=101),
        [Row(1, 100, 3), Row(2, 100), Row(3, 100)],
        ["100", "210", "311"],
        "a row that generates takes a token of each step",
    ),
    (StepLimits(tokens=100), [Row(1, 100, 3), Row(2, 100)], ["10", "20", "30", "31"], "and leaves too few"),
    (StepLimits(rows=2), [Row(1, 100, 2), Row(2, 100), Row(3, 100)], ["110", "211"], "so it is with rows"),
    (
        StepLimits(tokens=164, chunked=True),
        [Row(1, 100), Row(2, 100)],
        ["11"],
        "a piece of 64 tokens, moved behind the two blocks that are reused, is all that is left",
    ),
    (
        StepLimits(tokens=160, chunked=True),
        [Row(1, 100), Row(9, 100), Row(3, 40)],
        ["100", "111"],
        "of a new context only the piece; none is left for the third, nor a whole block",
    ),
]


@pytest.mark.parametrize(("limits", "rows", "made", "why"), LIMITED)
def test_a_step_takes_what_fits(limits: StepLimits, rows: list[Row], made: list[str], why: str) -> None:
    rows, steps = [replace(row) for row in rows], []
    while not all(row.done for row in rows):
        choose(rows, limits, held())
        for row in rows:
            row.end_step()
        steps.append("".join(str(row.made) for row in rows))
    assert steps == made, why


# limit of tokens, contexts of 3 rows, draft tokens that are left of 4 each, why
DROPPED = [
    (312, (100, 100, 100), (4, 4, 4), "all fit, with their draft tokens"),
    (311, (100, 100, 100), (4, 0, 0), "the first takes what is left of the step, though it needs less"),
    (265, (94, 96, 64), (2, 0, 0), "none begins a block of its own"),
]


@pytest.mark.parametrize(("tokens", "lengths", "left", "why"), DROPPED)
def test_chunked_context_drops_draft_tokens_unseen(
    tokens: int, lengths: tuple[int, ...], left: tuple[int, ...], why: str
) -> None:
    rows = [Row(9, length, draft_tokens=4) for length in lengths]
    choose(rows, StepLimits(tokens=tokens, chunked=True), PrefixCache())
    assert tuple(row.draft_tokens for row in rows) == left, why


# tokens held, length of the call's prompt, tokens to prefill, why
MISSING = [
    (0, 64, 63, "nothing is held; the last token is the step's own"),
    (64, 64, 31, "the last token is always computed: its block is not reused"),
    (64, 65, 0, "two full blocks"),
    (95, 96, 31, "a partial block is lost"),
    (96, 97, 0, "three full blocks"),
    (500, 70, 5, "a prompt that went back to fewer tokens"),
]


@pytest.mark.parametrize(("held", "length", "missing", "why"), MISSING)
def test_prefix_cache_holds_full_blocks(held: int, length: int, missing: int, why: str) -> None:
    cache = PrefixCache()
    cache.store(1, held)
    assert length - 1 - cache.reused(1, length) == missing, why
    assert cache.reused(2, length) == 0, "another sequence"


@pytest.mark.parametrize("alpha", [0.3, 0.8, 1.0])
def test_acceptance_is_alpha_at_each_position(alpha: float) -> None:
    keys = tokens.keys(ids_of(4000, tokens.KEY_TOKENS))
    assert len(set(keys.tolist())) == 4000
    agreed = tokens.agrees(keys, np.arange(100, 104)[None] + np.zeros((4000, 1), np.int64), np.full(4000, alpha))
    assert agreed.mean(0) == pytest.approx([alpha] * 4, abs=0.03)
    assert (agreed[:, 0] & agreed[:, 1]).mean() == pytest.approx(alpha**2, abs=0.03), "positions are independent"


def test_several_acceptances_go_by_key() -> None:
    keys = np.arange(10, dtype=np.uint64)
    assert tokens.alpha_of(keys, np.array([0.1, 0.9])).tolist() == [0.1, 0.9] * 5
