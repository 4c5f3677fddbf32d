"""Costs of engine calls: what few, one-sided, noisy and changing observations lead to."""

import random

import pytest

from tandem_serving.bls.draft_length.call_costs import WAY_ROWS, Costs

ROWS_AND_LENGTHS = [(1, 4), (8, 4), (32, 2), (64, 4), (16, 6), (64, 1)]


def draft(rows: float, k: int) -> float:
    return k * (0.002 + 0.00005 * rows)


def target(rows: float, k: int) -> float:
    return 0.012 + 0.00005 * rows + 0.0001 * rows * (k + 1)


def fitted(observations: int, noise: float, stalls: float = 0.0, slower: float = 1.0) -> Costs:
    """Costs that saw `observations` calls of either engine over all loads, `stalls` of them 10 times as long."""
    costs, rng = Costs(), random.Random(1)
    for i in range(observations):
        rows, k = ROWS_AND_LENGTHS[i % len(ROWS_AND_LENGTHS)]
        factor = slower * max(0.2, rng.gauss(1, noise)) * (10 if rng.random() < stalls else 1)
        costs.observe_draft(rows, k, factor * draft(rows, k))
        costs.observe_target(rows, k, factor * target(rows, k))
        costs.observe_target(rows, 0, factor * target(rows, 0))
    return costs


@pytest.mark.parametrize(
    ("observations", "noise", "stalls", "tolerance", "reason"),
    [
        (60, 0.0, 0.0, 0.03, "exact times: the formula itself"),
        (300, 0.05, 0.0, 0.10, "a quiet machine"),
        (300, 0.20, 0.0, 0.25, "a noisy machine"),
        (300, 0.05, 0.01, 0.10, "calls that stall for ten times as long are no slow engine"),
    ],
)
def test_fit(observations: int, noise: float, stalls: float, tolerance: float, reason: str) -> None:
    costs = fitted(observations, noise, stalls)
    for rows, k in [(1, 4), (32, 4), (64, 8), (48, 2)]:
        assert costs.draft(rows, k) == pytest.approx(draft(rows, k), rel=tolerance), reason
        assert costs.target(rows, k) == pytest.approx(target(rows, k), rel=tolerance), reason
        assert costs.target(rows, 0) == pytest.approx(target(rows, 0), rel=tolerance), reason


@pytest.mark.parametrize(("rows", "k"), [(1, 1), (64, 4), (1, 8), (64, 1)])
def test_one_load_alone_is_known_and_others_are_sensible(rows: int, k: int) -> None:
    costs = Costs()
    assert not costs.known
    for _ in range(200):
        costs.observe_draft(rows, k, draft(rows, k))
        costs.observe_target(rows, k, target(rows, k))
    assert costs.known
    assert costs.draft(rows, k) == pytest.approx(draft(rows, k), rel=0.01)
    assert costs.target(rows, k) == pytest.approx(target(rows, k), rel=0.01)
    for other in (1, 8, 64):
        times = [costs.draft(other, length) for length in range(1, 9)]
        assert times == sorted(times), "more tokens never take less time"
        assert 0 <= costs.target(other, 0) <= costs.target(other, 8)


def test_what_is_not_seen_any_more_keeps_its_share_when_the_engine_slows_down() -> None:
    costs = fitted(300, noise=0.05)
    for _ in range(100):  # another load on the device: all takes three times as long, seen at one load only
        costs.observe_target(64, 4, 3 * target(64, 4))
    assert costs.target(64, 4) == pytest.approx(3 * target(64, 4), rel=0.05)
    assert costs.target(64, 0) == pytest.approx(3 * target(64, 0), rel=0.25)


def test_one_stalled_first_call_is_forgotten() -> None:
    costs = Costs()
    costs.observe_target(32, 4, 20 * target(32, 4))
    for _ in range(10):
        costs.observe_target(32, 4, target(32, 4))
    assert costs.target(32, 4) == pytest.approx(target(32, 4), rel=0.1)


@pytest.mark.parametrize(
    ("times", "reason"),
    [(50, "a stall"), (2.5, "a step of others, and its own"), (0.05, "the engine took it into the step before")],
)
def test_a_single_odd_call_moves_nothing(times: float, reason: str) -> None:
    costs = fitted(100, noise=0.0)
    before = costs.target(64, 0)
    costs.observe_target(64, 0, times * before)
    assert costs.target(64, 0) == before, reason


@pytest.mark.parametrize(("rows", "k", "seconds"), [(0, 4, 1.0), (4, -1, 1.0), (4, 4, 0.0), (4, 4, -1.0)])
def test_impossible_observations_are_left_out(rows: int, k: int, seconds: float) -> None:
    costs = Costs()
    costs.observe_draft(rows, k, seconds)
    costs.observe_target(rows, k, seconds)
    assert not costs.known


def test_what_a_length_took_is_kept_while_another_is_in_use() -> None:
    """Without bias, though a coefficient that is 0 would become negative now and then."""
    took = 0.012 + 0.0004 * 32 * 5
    ratios = []
    for seed in range(8):
        costs, rng = Costs(), random.Random(seed)
        for k in [4] * 20 + [0] * 100:
            costs.observe_target(32, k, (0.012 + 0.0004 * 32 * (k + 1)) * rng.gauss(1, 0.05))
        ratios.append(costs.target(32, 4) / took)
    assert sum(ratios) / len(ratios) == pytest.approx(1.0, abs=0.04)


def test_new_prompts_take_their_own_time() -> None:
    """At load nearly every call brings one: those are no reason to know nothing, nor to think calls slow."""
    costs, rng = Costs(), random.Random(1)
    for _ in range(200):
        prompt = rng.choice((0, 100, 100, 200, 900))
        costs.observe_draft(32, 4, draft(32, 4) + 1e-6 * prompt, prompt)
        costs.observe_target(32, 4, target(32, 4) + 10e-6 * prompt, prompt)
    assert costs.draft(32, 4) == pytest.approx(draft(32, 4), rel=0.01)
    assert costs.target(32, 4) == pytest.approx(target(32, 4), rel=0.01)


def test_a_token_of_a_long_call_does_not_pay_for_a_call() -> None:
    """Of 3 ms a call beside its step, but for half a step until it is taken in.

    Before a long call was seen, a tenth of a call is thought to be such.
    """
    costs = Costs()
    for rows in [64, 32] * 50:
        costs.observe_target(rows, 4, 0.003 + target(rows, 4))
    assert 16 / 16.5 * costs.alone(64) < costs.target(64, 0) - 0.001
    for _ in range(20):
        costs.observe_alone(64, 16, 0.003 + 16 * target(64, 0))
    assert costs.alone(64) == pytest.approx((16.5 * target(64, 0) + 0.003) / 16, rel=0.03)
    assert costs.target(64, 4) == pytest.approx(0.003 + target(64, 4), rel=0.05)


WAY = 0.0013  # seconds of a call without rows, through the server


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("one_wave", "two_waves", "reason"),
    [
        (100, 400, "two cohorts for long, of one size and length: what they don't tell apart stays as it was"),
        (400, 20, "hardly ever two"),
        (8, 600, "one wave in the first rounds only"),
    ],
)
def test_a_calls_way_is_told_from_what_its_rows_take(one_wave: int, two_waves: int, reason: str, seed: int) -> None:
    """All 32 rows in one wave wait for it, 16 in the queue do not, a row by itself has hardly any.

    Taken for a cost of rows it would make the target alone seem dear after the former and cheap after the latter.
    """
    costs, rng = Costs(), random.Random(seed)

    def step(rows: float) -> float:
        return (0.012 + 0.00005 * rows) * rng.gauss(1, 0.05)

    for _ in range(10):
        costs.observe_alone(32, 16.5, 16.5 * step(32) + WAY * (1 + 1 / WAY_ROWS))
    for _ in range(one_wave):
        costs.observe_target(32, 3, step(32) + WAY * (1 + 32 / WAY_ROWS))
    for _ in range(two_waves):
        costs.observe_target(16, 3, step(16), queued=True)
    assert costs.target(32, 3) == pytest.approx(0.0136 + WAY * (1 + 32 / WAY_ROWS), rel=0.08), reason
    assert costs.target(16, 3, queued=True) == pytest.approx(0.0128, rel=0.05), reason
    assert costs.alone(32) == pytest.approx((16.5 * 0.0136 + WAY) / 16, rel=0.08), reason


def test_what_verifications_wait_for_is_not_waited_for_by_the_target_alone() -> None:
    """Those of 64 rows take half as long again now: no reason to think a token of the target alone dear."""
    costs = Costs()
    for verification in (1.0, 1.5):
        for _ in range(60):
            costs.observe_target(64, 4, verification * target(64, 4))
        if verification == 1.0:
            for _ in range(60):
                costs.observe_alone(64, 16.5, 16.5 * target(64, 0))
    assert costs.alone(64) == pytest.approx(16.5 / 16 * target(64, 0), rel=0.02)
    assert costs.target(64, 4) == pytest.approx(1.5 * target(64, 4), rel=0.1)


# Milliseconds that 8 tokens of the target alone took in a trial, which all 64 sequences begin together, and 15 when
# it had run alone for long (a server with stub engines on two cores).
TRIAL, LONG = 152.0, 245.6


def test_calls_that_begin_together_do_not_make_the_target_seem_slow() -> None:
    """By the trial's calls alone a step would take 17.9 ms; 15.8 by the long ones."""
    costs = Costs()
    for _ in range(50):
        costs.observe_target(64, 2, 0.019)

    def trial() -> float:
        for _ in range(64):
            costs.observe_alone(64, 8.5, TRIAL / 1000, together=True)
        return 1000 * costs.step(64)

    assert trial() == pytest.approx(LONG / 15.5, rel=0.05), "a first one"
    for _ in range(64 * 20):
        costs.observe_alone(64, 15.5, LONG / 1000)
    assert 1000 * costs.step(64) == pytest.approx(LONG / 15.5, rel=0.01)
    assert 1000 * costs.together(64) == pytest.approx(TRIAL - 8.5 * LONG / 15.5, rel=0.5), "and it is known why"
    assert trial() == pytest.approx(LONG / 15.5, rel=0.02), "another one"


def test_the_latest_few_of_many_calls_do_not_tell_all() -> None:
    """All 64 sequences make one in a moment: ten of them that took longer are no slower engine."""
    costs = Costs()
    for _ in range(64 * 10):
        costs.observe_alone(64, 15.5, 15.5 * target(64, 0))
    for _ in range(10):
        costs.observe_alone(64, 15.5, 1.3 * 15.5 * target(64, 0))
    assert costs.step(64) == pytest.approx(target(64, 0), rel=0.02)


@pytest.mark.parametrize(
    ("calls", "each", "reason"),
    [
        ([], 16, "unknown: as long as they may be"),
        ([1, 2, 4, 8, 16, 16, 16, 16, 16, 16, 16, 1] * 600, 128 / 12, "short ones at both ends of each request"),
        ([1, 2, 4, 8] * 30, 14, "for a moment, as speculation ends: no matter"),
        ([2] * 20_000, 2, "texts that have to flow"),
    ],
)
def test_calls_of_the_target_alone_wait_the_more_often_the_shorter_they_are(
    calls: list[int], each: float, reason: str
) -> None:
    costs = Costs()
    for tokens in calls:
        costs.observe_calls(tokens, 1)
    guess = [0.001 * (1 + 1 / WAY_ROWS), 0.011]
    assert costs.alone(1) == pytest.approx((guess[0] + (each + 0.5) * guess[1]) / each, rel=0.01), reason


def test_the_target_alone_takes_no_longer_a_step_than_a_verification() -> None:
    """What was seen of it in a bad moment would stay otherwise: it is tried the more rarely the worse it seems."""
    costs = fitted(100, noise=0.0)
    before = costs.alone(32)
    for _ in range(20):
        costs.observe_alone(32, 16.5, 16.5 * 3 * costs.target(32, 0))
    assert costs.alone(32) <= 1.1 * max(before, costs.target(32, 0))


def test_a_draft_engine_that_nobody_asks_is_believed_to_become_cheaper() -> None:
    costs = fitted(100, noise=0.0)
    before = costs.draft(32, 1)
    costs.doubt_draft(0.5)
    assert costs.draft(32, 1) == pytest.approx(before / 2)
    for _ in range(5):
        costs.observe_draft(32, 1, before)
    assert costs.draft(32, 1) == pytest.approx(before, rel=0.05), "a few calls show it again"
