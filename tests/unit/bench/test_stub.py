"""The stub engine's cost model and made-up model, without Triton."""

import numpy as np
import pytest

from bench.bls import tokens
from bench.bls.device import Device, Meter
from bench.bls.in_flight import Call, Costs, InFlight, PrefixCache, rows_at
from bench.bls.stub_calls import WorkMaker

COSTS = Costs(12.0, per_sequence=0.05, per_draft_token=0.5, per_prefill_token=0.01)
PROMPT = 64


def ids_of(rows: int, length: int) -> tokens.Ids:
    """Prompts that differ, int32[rows, length]."""
    return (np.arange(rows)[:, None] * 7 + np.arange(length) * 3 + 1).astype(np.int32)


def column(*values: int) -> tokens.Ids:
    return np.array(values, np.int32)


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


@pytest.mark.parametrize(("rows", "k"), [(1, 4), (5, 1), (32, 8)])
def test_speculation_gives_the_targets_tokens(rows: int, k: int) -> None:
    """Draft and verify like a loop would, rows of unequal lengths in one call: the target's own tokens."""
    draft, target = WorkMaker(True, [0.7]), WorkMaker(False, [0.7])
    prompt = ids_of(rows, PROMPT)
    wanted = target.work(prompt, column(*[PROMPT] * rows), column(*[100] * rows), None).ids
    sequences, accepted = [list(row) for row in prompt.tolist()], 0
    while min(map(len, sequences)) < PROMPT + 80:
        lengths = column(*map(len, sequences))
        padded = np.array([row + [0] * (max(lengths) - len(row)) for row in sequences], np.int32)
        proposal = draft.work(padded, lengths, column(*[k] * rows), None)
        answer = target.work(padded, lengths, column(*[k + 1] * rows), proposal.ids)
        assert answer.draft_tokens == rows * k
        assert answer.rows == [rows]
        for sequence, row, count in zip(sequences, answer.ids, answer.counts, strict=True):
            sequence.extend(row[:count].tolist())
            accepted += count - 1
    assert accepted, "some drafts are accepted"
    for sequence, row in zip(sequences, wanted, strict=True):
        assert sequence[PROMPT : PROMPT + 80] == row[:80].tolist()


def test_made_up_draft_tokens_change_nothing() -> None:
    target = WorkMaker(False, [0.7])
    prompt, lengths = ids_of(1, PROMPT), column(PROMPT)
    right = target.work(prompt, lengths, column(9), None).ids[:, :2]
    padded = np.concatenate([right, [[1, 1]]], 1).astype(np.int32)
    assert target.work(prompt, lengths, column(5), padded).counts.tolist() == [3]
    assert target.work(prompt, lengths, column(2), padded).counts.tolist() == [2], "request_output_len bounds it"


def test_what_a_call_made_is_prefilled_no_more() -> None:
    target = WorkMaker(False, [0.7])
    first = target.work(ids_of(1, PROMPT), column(PROMPT), column(1), None)
    assert target.prefill(first) == PROMPT - 1
    target.store(first)
    longer = np.concatenate([ids_of(1, PROMPT), first.ids], 1)
    assert target.prefill(target.work(longer, column(PROMPT + 1), column(1), None)) == 0


def test_short_prompts_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 16 tokens"):
        WorkMaker(False, [0.7]).work(ids_of(1, 8), column(8), column(1), None)


def test_a_shared_device_serves_one_step_at_a_time(tmp_path: object) -> None:
    one, two = Device(f"{tmp_path}/device"), Device(f"{tmp_path}/device")
    assert one.reserve(1.0, 0.5) == 1.5
    assert two.reserve(1.2, 0.5) == 2.0
    assert one.reserve(3.0, 0.5) == 3.5
    assert Device().reserve(1.0, 0.5) == 1.5, "a device of its own"


def test_a_meter_is_read_by_others(tmp_path: object) -> None:
    meter, reader = Meter(f"{tmp_path}/meter"), Meter(f"{tmp_path}/meter")
    meter.add(0.5)
    meter.add(0.25)
    assert reader.read() == (0.75, 2)
