"""The ideal simulator against closed forms."""

import pytest

from bench.bls import prompts, report, simulate
from bench.bls.client import Load
from bench.bls.in_flight import Costs, Pair, StepLimits
from bench.bls.prompts import Kind
from bench.bls.simulate import Job, Window, Workload

pytestmark = pytest.mark.nightly

FREE_PROMPTS = Pair(Costs(2.0), Costs(12.0))
K = 4


def workload(streams: int, alpha: float, max_tokens: int = 128) -> Workload:
    """Streams that all begin at once, keys of their own."""
    jobs = [Job(key=1000 + i, length=64, max_tokens=max_tokens) for i in range(4000)]
    return Workload(jobs[:streams], jobs[streams:], (alpha,), Window(0.0, 20.0))


def round_time(rows: int, k: int = K) -> float:
    return (k * (2 + 0.05 * rows) + 12 + 0.05 * rows) * 1e-3


# streams, acceptance, groups, tokens a request, seconds a request takes, why
CLOSED = [
    (1, 1.0, 1, 125, 25 * round_time(1), "all accepted: 25 rounds of 5"),
    (1, 1.0, 1, 128, 25 * round_time(1) + round_time(1, 2), "what is left bounds the drafts: 3 = 2 + 1"),
    (1, 0.0, 1, 5, sum(round_time(1, k) for k in (4, 3, 2, 1, 0)), "none accepted: one token a round"),
    (16, 1.0, 1, 125, 25 * round_time(16), "lock-step: all rows in each step"),
    (8, 1.0, 8, 125, 25 * round_time(8), "each on its own, begun together: they stay together"),
    (32, 1.0, 2, 125, 25 * 2 * 12.8e-3, "two cohorts of 16: the target is busy all the time"),
    (64, 1.0, 2, 125, 25 * 2 * 14.4e-3, "two cohorts of 32: the draft is, 4 steps of 3.6 ms"),
]


@pytest.mark.parametrize(("streams", "alpha", "groups", "tokens", "seconds", "why"), CLOSED)
def test_speed_is_the_closed_form(
    streams: int, alpha: float, groups: int, tokens: int, seconds: float, why: str
) -> None:
    load = workload(streams, alpha, tokens)
    outcome = simulate.run(FREE_PROMPTS, load, K, groups, exclusive=groups == 2)
    assert outcome.speed == pytest.approx(streams * tokens / seconds, rel=0.01), why


# streams, engines share a device, tokens/s, schedules that there are, why: acceptance 1, 16 rows a step
BATCH = [
    (16, True, 16 * 5 / round_time(16), ["lock-step", "each on its own", "two cohorts"], "they fit into a step"),
    (32, False, 16 * 5 / 12.8e-3, ["each on its own", "two cohorts"], "the target is busy all the time"),
    (64, False, 16 * 5 / 12.8e-3, ["each on its own", "4 cohorts"], "more wait for their turn"),
    (64, True, 16 * 5 / round_time(16), ["each on its own", "4 cohorts"], "one after the other"),
]


@pytest.mark.parametrize(("streams", "shared", "speed", "schedules", "why"), BATCH)
def test_a_step_takes_as_many_rows_as_the_engines_batch(
    streams: int, shared: bool, speed: float, schedules: list[str], why: str
) -> None:
    pair = Pair(Costs(2.0), Costs(12.0), shared, *(2 * [StepLimits(rows=16)]))
    made = simulate.schedules(pair, workload(streams, 1.0, 125), K)
    assert max(each.speed for each in made) == pytest.approx(speed, rel=0.02), why
    assert [each.schedule for each in made] == schedules


def test_the_target_alone_takes_no_more_than_its_batch() -> None:
    pair = Pair(Costs(2.0), Costs(12.0), target_limits=StepLimits(rows=16))
    outcome = simulate.target_only(pair, workload(64, 0.8))
    assert outcome.speed == pytest.approx(16 / 12.8e-3, rel=0.01)


def test_target_only_is_the_closed_form() -> None:
    outcome = simulate.target_only(FREE_PROMPTS, workload(32, 0.8))
    assert outcome.speed == pytest.approx(32 / 13.6e-3, rel=0.01)


def test_prefill_and_partial_blocks_cost_time() -> None:
    """64 tokens are prefilled at first but for the last; then what is beyond 64, 64, 64, 64, 64, 64, 96."""
    pair = Pair(Costs(2.0, per_prefill_token=0.1), Costs(12.0, per_prefill_token=1.0))
    load = Workload([Job(1, 64, 35)], [Job(i, 64, 35) for i in range(2, 100)], (1.0,), Window(0.0, 20.0))
    lengths_at = [64, 69, 74, 79, 84, 89, 94]
    draft_held = [0, 64, 64, 64, 64, 64, 64]
    missing = [length - 1 - held for length, held in zip(lengths_at, draft_held, strict=True)]
    seconds = 7 * round_time(1) + sum(missing) * 1.1e-3
    assert simulate.run(pair, load, K, 1).speed == pytest.approx(35 / seconds, rel=0.02)


def test_on_a_shared_device_cohorts_gain_nothing() -> None:
    shared = Pair(Costs(2.0), Costs(12.0), shared=True)
    load = workload(32, 0.8)
    lock_step, cohorts = (simulate.run(shared, load, K, groups, groups == 2).speed for groups in (1, 2))
    assert cohorts < lock_step
    assert lock_step == pytest.approx(simulate.run(FREE_PROMPTS, load, K, 1).speed)


# streams, tokens/s of an independent simulation of the same cost model
PUBLISHED = [(1, 166), (4, 613), (16, 2099), (32, 3937)]


@pytest.mark.parametrize(("streams", "speed"), PUBLISHED)
def test_ideal_agrees_with_published_figures(streams: int, speed: int) -> None:
    work = report.workload(Load(streams, seconds=20.0), (0.8,))
    best = simulate.ideal(Pair(), work, [K])
    assert best.speed == pytest.approx(speed, rel=0.03)
    assert best.schedule == ("two cohorts" if streams == 32 else "lock-step")


def test_prompts_of_a_group_are_its_own() -> None:
    assert {prompt.key % 4 for prompt in prompts.make(3, 20, Kind(2, 4))} == {2}
