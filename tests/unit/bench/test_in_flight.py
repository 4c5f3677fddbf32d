"""The cost model and the made-up model that the simulator and the load share with the stub engine."""

import numpy as np
import pytest

from bench.bls import tokens
from bench.bls.in_flight import Call, Costs, InFlight, PrefixCache, rows_at

COSTS = Costs(12.0, per_sequence=0.05, per_draft_token=0.5, per_prefill_token=0.01)


def ids_of(rows: int, length: int) -> tokens.Ids:
    """Prompts that differ, int32[rows, length]."""
    return (np.arange(rows)[:, None] * 7 + np.arange(length) * 3 + 1).astype(np.int32)


# calls as (rows, prefill, draft tokens), milliseconds of the steps until all are done, why
STEPS = [
    ([Call([1])], [12.05], "one sequence"),
    ([Call([3])], [12.15], "a sequence costs time"),
    ([Call([2, 1])], [12.1, 12.05], "the shorter row leaves"),
    ([Call([1, 1], prefill=100)], [13.05, 12.05], "the prompt is prefilled once"),
    ([Call([2], draft_tokens=8)], [16.1], "so are draft tokens"),
    ([Call([1]), Call([1, 1])], [12.1, 12.05], "calls share steps"),
]


@pytest.mark.parametrize(("calls", "milliseconds", "why"), STEPS)
def test_steps_cost_what_the_model_says(calls: list[Call], milliseconds: list[float], why: str) -> None:
    engine: InFlight[Call] = InFlight(COSTS)
    for call in calls:
        engine.admit(Call(call.rows, call.prefill, call.draft_tokens))
    took = []
    while engine.active:
        took.append(engine.begin() * 1e3)
        engine.end()
    assert took == pytest.approx(milliseconds), why


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
    assert cache.missing(1, length) == missing, why
    assert cache.missing(2, length) == length - 1, "another sequence"


def test_rows_at_counts_rows_that_still_generate() -> None:
    assert rows_at([3, 1, 3]) == [3, 2, 2]


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
