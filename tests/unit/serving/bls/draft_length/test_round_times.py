"""What rounds take, by the order in which they go."""

import pytest

from tandem_serving.bls.draft_length.acceptance import AcceptanceEstimate
from tandem_serving.bls.draft_length.call_costs import Costs
from tandem_serving.bls.draft_length.round_times import RoundPlan, RoundTimes

ROWS, K = 8, 2


@pytest.fixture
def times() -> RoundTimes:
    """Both engines' calls are known: a draft takes 5 ms, a verification 12 ms."""
    costs = Costs()
    for _ in range(50):
        for rows in (ROWS, ROWS // 2):
            costs.observe_draft(rows, K, 0.005)
            costs.observe_target(rows, K, 0.012)
    return RoundTimes(costs, AcceptanceEstimate(K), separate=True)


def by_waves(times: RoundTimes) -> tuple[float, float]:
    """A round in one wave, and in two."""
    return times.seconds(ROWS, RoundPlan(1, K)), times.seconds(ROWS, RoundPlan(2, K))


# How often which order took how many times its calls; what one wave seems to take more than two, beyond their calls.
LEARNT = [
    ([(1, 40, 1.3)], 1.25, 1.3, "what goes on is known soon"),
    ([(2, 40, 1.0), (1, 40, 1.3)], 1.25, 1.3, "both"),
    ([(1, 40, 1.2), (2, 40, 1.2)], 0.97, 1.03, "what both have in common is no difference"),
    ([(2, 3, 0.39), (1, 3, 0.54)], 0.85, 1.18, "a few odd rounds, before calls are known well"),
    ([(2, 40, 1.0), (1, 2, 1.9)], 1.0, 1.2, "cohorts that wait for each other once as they become one"),
    ([(2, 40, 1.0), (1, 9, 35.0)], 0.97, 1.03, "a pause"),
    ([(1, 40, 1.0), (2, 3, 1.9)], 0.9, 1.0, "prompts that came at a bad time"),
]


@pytest.mark.parametrize(("rounds", "least", "most", "reason"), LEARNT, ids=[row[-1] for row in LEARNT])
def test_what_rounds_take_beyond_their_calls(
    times: RoundTimes, rounds: list[tuple[int, int, float]], least: float, most: float, reason: str
) -> None:
    calls = by_waves(times)
    for batched, number, often in rounds:
        for _ in range(number):
            times.took(batched, ROWS, K, often * calls[batched - 1])
    one, two = by_waves(times)
    assert least <= (one / calls[0]) / (two / calls[1]) <= most, reason


# How many times their calls rounds of both orders took, of late; what the model makes of it.
WAVES = [
    ([1.0] * 60, 1.0, 1.0, "calls tell all"),
    ([1.1] * 60, 1.08, 1.1, "text and sending: what the target alone waits for is seen in its own calls"),
    ([1.5] * 60, 1.45, 1.5, "processors are what is short"),
    ([1.0] * 60 + [35.0] * 9, 1.0, 1.0, "a pause"),
]


@pytest.mark.parametrize("separate", [True, False])
@pytest.mark.parametrize(("rounds", "least", "most", "reason"), WAVES, ids=[row[-1] for row in WAVES])
def test_waits_of_waves(
    times: RoundTimes, separate: bool, rounds: list[float], least: float, most: float, reason: str
) -> None:
    times = times if separate else RoundTimes(times._costs, AcceptanceEstimate(K), separate=False)
    alone, calls = times.period(ROWS, 0), by_waves(times) if separate else (times.period(ROWS, K),) * 2
    for often in rounds:
        for batched in (1, 2):
            times.took(batched, ROWS, K, often * calls[batched - 1])
    assert least <= times.period(ROWS, K) / min(calls) <= most, reason
    assert times.period(ROWS, 0) == alone, "the target alone waits less"
    times.doubt(0.01)
    assert times.period(ROWS, K) == pytest.approx(min(calls), rel=1e-2), "it may be otherwise by now"


def test_doubt_makes_no_order_slower(times: RoundTimes) -> None:
    calls = by_waves(times)
    for _ in range(60):
        times.took(2, ROWS, K, 0.95 * calls[1])
    seen = by_waves(times)
    times.doubt(0.01)
    assert by_waves(times) == pytest.approx(seen, rel=1e-5)


def test_what_one_order_takes_is_doubted_though_the_other_was_never_seen(times: RoundTimes) -> None:
    """Few rows go in one wave from the start: what those seemed to take must not keep speculation away for ever."""
    calls = by_waves(times)
    for _ in range(60):
        times.took(1, ROWS, K, 1.3 * calls[0])
    assert by_waves(times)[0] == pytest.approx(1.3 * calls[0], rel=0.02)
    times.doubt(0.01)
    assert by_waves(times) == pytest.approx(calls, rel=0.01)


def test_what_rounds_of_a_length_took_is_remembered() -> None:
    """What calls of one token take is extrapolated from those of two: too little, where each call costs something."""
    costs = Costs()
    for _ in range(50):
        costs.observe_draft(64, 2, 0.010)
        costs.observe_target(64, 2, 0.019)
    times = RoundTimes(costs, AcceptanceEstimate(8), separate=False)
    one, two, few = (times.period(*of) for of in ((64, 1), (64, 2), (16, 1)))
    for k, length, seconds in ((1, 20, 1.15 * one), (2, 40, two)):
        for _ in range(length):
            times.took(1, 64, k, seconds)
            times.review()
    assert times.period(64, 2) == pytest.approx(two, rel=0.03)
    assert times.period(64, 1) > 1.09 * one, "it was 15% slower"
    assert times.period(16, 1) == pytest.approx(few, rel=0.02), "of another load it says nothing"
    times.passed(600.0)
    assert times.period(64, 1) == pytest.approx(one, rel=0.01), "not for ever"


def test_a_length_that_was_not_in_use_takes_as_much_more_as_the_one_next_to_it() -> None:
    """Two lengths of which calls tell too little, by 20% and not at all."""
    times = RoundTimes(Costs(), AcceptanceEstimate(8), separate=False)
    told = {k: times.period(8, k) for k in (1, 2, 6, 7)}
    for k, beyond in [(1, 1.2), (7, 1.0)] * 60:
        times.took(1, 8, k, beyond * told[k])
    times.review()
    assert times.period(8, 2) / told[2] > 1.1 * times.period(8, 6) / told[6]


def test_rounds_that_take_twice_as_long_for_good_are_no_pauses(times: RoundTimes) -> None:
    calls = by_waves(times)
    for often, rounds in ((1.0, 40), (2.2, 60)):
        for _ in range(rounds):
            times._costs.observe_draft(ROWS, K, often * 0.005)
            times._costs.observe_target(ROWS, K, often * 0.012)
            times.took(1, ROWS, K, often * calls[0])
            times.review()
    assert by_waves(times)[0] == pytest.approx(2.2 * calls[0], rel=0.1)


# How many times their calls rounds of sequences on their own took, of late; what the model makes of it.
ALONE = [
    ([1.0] * 60, 1.0, 1.0, "calls tell all"),
    ([0.9, 1.2] * 30, 1.0, 1.1, "they fall together with others' steps now so, now so"),
    ([2.0] * 60, 1.9, 2.0, "processors are what is short"),
    ([1.0] * 60 + [35.0] + [1.0] * 5, 1.0, 1.1, "a pause"),
]


@pytest.mark.parametrize(("rounds", "least", "most", "reason"), ALONE, ids=[row[-1] for row in ALONE])
def test_waits_of_sequences_on_their_own(rounds: list[float], least: float, most: float, reason: str) -> None:
    costs = Costs(batched=False)
    for _ in range(50):
        costs.observe_draft(ROWS, K, 0.005)
        costs.observe_target(ROWS, K, 0.012)
    times = RoundTimes(costs, AcceptanceEstimate(K), separate=True, batched=False)
    calls, alone = times.period(ROWS, K), times.period(ROWS, 0)
    for often in rounds:
        times.took(1, ROWS, K, often * calls)
    assert least <= times.period(ROWS, K) / calls <= most, reason
    assert times.period(ROWS, 0) == alone, "the target alone waits less"
    times.doubt(0.01)
    assert times.period(ROWS, K) == pytest.approx(calls, rel=1e-2), "it may be otherwise by now"


def test_how_sure_a_round_s_time_is_follows_from_the_rounds_seen(times: RoundTimes) -> None:
    """Of another number of cohorts calls tell least; a minute later half of what was seen counts."""
    order, longer, others = RoundPlan(1, K), RoundPlan(1, K + 1), RoundPlan(2, K)
    never = times.uncertainty(ROWS, order)
    for _ in range(8):
        times.took(1, ROWS, K, 0.018)
    assert times.uncertainty(ROWS, others) == never > times.uncertainty(ROWS, longer) > times.uncertainty(ROWS, order)
    seen = times.uncertainty(ROWS, order)
    assert seen == pytest.approx((0.08**-2 + 8 * 0.15**-2) ** -0.5)
    times.passed(60.0)
    assert times.uncertainty(ROWS, order) == pytest.approx((0.08**-2 + 4 * 0.15**-2) ** -0.5)
    assert times.uncertainty(4 * ROWS, order) == never, "nor does another load tell"


def test_rounds_that_are_shorter_than_thought_are_believed_sooner(times: RoundTimes) -> None:
    """Those that are longer may be prompts that came at a bad time; shorter ones are not by chance."""
    calls = by_waves(times)[1]
    for _ in range(4):
        times.took(2, ROWS, K, 0.75 * calls)
    shorter = by_waves(times)[1] / calls
    assert 0.75 <= shorter <= 0.85
