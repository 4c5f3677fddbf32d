"""Trials of other orders of rounds: what they may lose, which one is worth it, and what is made of them."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import pytest

from support.serving.draft_length_simulation import MAXIMUM, Engines, Server, fixed
from tandem_serving.bls.draft_length.acceptance import AcceptanceEstimate
from tandem_serving.bls.draft_length.call_costs import Costs
from tandem_serving.bls.draft_length.round_times import RoundPlan, RoundTimes
from tandem_serving.bls.draft_length.trial_budget import Budget
from tandem_serving.bls.draft_length.trials import ALONE_CALLS, TRIAL_ROUNDS, Standing, Trial, Trials

CHEAP = Engines()
ROWS, NOW = 8, RoundPlan(1, 2)
# Rounds seen of each order, beside 40 of the one in use; goodput, of which that one has 100; what is tried, and why.
WORTH = [
    ({}, {(1, 1): 96, (1, 3): 97, (2, 3): 80}, (1, 3), "a length that was never seen and may be better"),
    ({}, {(1, 1): 97, (1, 3): 96, (2, 3): 80}, (1, 1), "a shorter one, likewise"),
    ({}, {(1, 1): 90, (1, 3): 90, (2, 3): 103}, (2, 3), "other cohorts: calls tell little of their rounds"),
    (
        {(1, 3): 40, (1, 1): 40},
        {(1, 1): 90, (1, 3): 90, (2, 3): 60},
        None,
        "known to be worse, or much worse than thought",
    ),
    (
        {(1, 3): 40, (1, 1): 4},
        {(1, 1): 97, (1, 3): 97, (2, 3): 60},
        (1, 1),
        "of two as good the one that is known less",
    ),
]


@pytest.fixture
def times() -> RoundTimes:
    """Of engines side by side whose calls are known, and 40 rounds of the order in use."""
    costs = Costs()
    for _ in range(50):
        for rows in (ROWS, ROWS // 2):
            costs.observe_draft(rows, NOW.k, 0.005)
            costs.observe_target(rows, NOW.k, 0.012)
    times = RoundTimes(costs, AcceptanceEstimate(MAXIMUM), separate=True)
    for _ in range(40):
        times.took(NOW.micro_batches, ROWS, NOW.k, times.seconds(ROWS, NOW))
    return times


@pytest.mark.parametrize(("seen", "goodput", "tried", "reason"), WORTH, ids=[row[-1] for row in WORTH])
def test_what_may_gain_most_for_its_loss_is_tried(
    times: RoundTimes,
    seen: dict[tuple[int, int], int],
    goodput: dict[tuple[int, int], float],
    tried: tuple[int, int] | None,
    reason: str,
) -> None:
    for (batched, k), rounds in seen.items():
        for _ in range(rounds):
            times.took(batched, ROWS, k, times.seconds(ROWS, RoundPlan(batched, k)))
    standing = Standing(ROWS, NOW, {NOW: 100.0} | {RoundPlan(*order): each for order, each in goodput.items()})
    expected = Trial(RoundPlan(*tried), TRIAL_ROUNDS) if tried else None
    assert Trials(times, Costs()).next(standing, 0.02, settled=True) == expected, reason
    assert Trials(times, Costs()).next(standing, 0.02, settled=False) is None


def test_the_first_trials_at_a_load_are_of_other_cohorts_and_of_the_target_alone(times: RoundTimes) -> None:
    """Of both calls tell least; what may be better comes after them, once each is paid for."""
    trials = Trials(times, Costs())
    trials.grown(ROWS)
    goodput = {NOW: 100.0, RoundPlan(1, 0): 90.0, RoundPlan(1, 3): 101.0, RoundPlan(2, 3): 90.0}
    made = [trials.next(Standing(ROWS, NOW, goodput), 0.02, settled=True) for _ in range(4)]
    assert [trial and trial.plan for trial in made] == [RoundPlan(2, 3), RoundPlan(1, 0), RoundPlan(1, 3), None]


LASTING = [
    # engines, draft tokens now, what is tried, rounds or calls of it, and why
    (True, 2, RoundPlan(2, 3), TRIAL_ROUNDS, "cohorts have to find each other"),
    (False, 2, RoundPlan(1, 3), 2, "the first one goes with the draft that was made ahead"),
    (False, 2, RoundPlan(1, 0), ALONE_CALLS, "calls of 1, 2, 4 and 8 tokens"),
    (False, 0, RoundPlan(1, 1), 1, "a few draft once, while the target runs alone"),
]


@pytest.mark.parametrize(("separate", "k", "order", "rounds", "reason"), LASTING, ids=[row[-1] for row in LASTING])
def test_a_trial_is_as_long_as_it_takes_to_tell(
    separate: bool, k: int, order: RoundPlan, rounds: int, reason: str
) -> None:
    costs = Costs()
    for _ in range(50):
        costs.observe_draft(ROWS, 2, 0.005)
        costs.observe_target(ROWS, 2, 0.012)
    times, now = RoundTimes(costs, AcceptanceEstimate(MAXIMUM), separate), RoundPlan(1, k)
    trials = Trials(times, costs)
    trials.grown(ROWS)  # the first ones are free
    made = trials.next(Standing(ROWS, now, {now: 100.0, order: 101.0}), 0.02, settled=True)
    assert made == Trial(order, rounds), reason


@pytest.mark.parametrize("share", [0.002, 0.006])
def test_budget_pays_for_trials_from_the_time_passed(share: float) -> None:
    budget = Budget(0.0, share)
    assert not budget.afford(0.001), "nothing earned yet"
    paid = 0
    for second in range(1, 1001):
        budget.earn(float(second), longest=2.0)
        paid += budget.afford(0.5)
    assert share / 2 <= paid * 0.5 / 1000 <= share, "at most that share of 1000 s, at least half of it"
    budget.earn(1e6, longest=2.0)
    assert not budget.afford(5.0), "idle time earns nothing"


def test_a_trial_that_was_borrowed_for_is_paid_for_before_the_next() -> None:
    budget = Budget(0.0, 0.01)
    assert budget.borrow(0.1), "at once"
    budget.earn(9.9, longest=100.0)
    assert not budget.borrow(0.1), "not yet"
    budget.earn(20.0, longest=100.0)
    assert budget.borrow(0.1)
    budget.forgive()
    assert budget.borrow(0.1), "what it found was worth it"


# Rounds of two cohorts are uneven, and some of one is lost when there are others or another length: as measured.
UNEVEN = Engines(way=0.4e-3, short=0.02e-3, together=0.25e-3, uneven=0.15, regroup=1.2, retime=0.35)


@pytest.mark.parametrize(
    ("overlap", "acceptance", "rows", "reason"),
    [
        (0.86, 0.6, 32, "two cohorts are better than thought"),
        (0.86, 0.95, 64, "a length among others that differ by 2%"),
        (1.1, 0.6, 32, "one is better, and two are tried for nothing"),
        (1.1, 0.95, 64, "two are, though worse than thought"),
    ],
)
def test_rounds_that_are_uneven_are_compared_well(overlap: float, acceptance: float, rows: int, reason: str) -> None:
    """A trial has to be long enough to tell; one that costs more than it can bring is not made."""
    engines, acceptances = replace(UNEVEN, overlap=overlap), [acceptance] * rows
    best = max(fixed(engines, acceptances, k) for k in range(MAXIMUM + 1))
    assert mean(Server(engines, acceptances, seed).run(1600) for seed in range(4)) >= 0.965 * best, reason


@pytest.mark.parametrize(("way", "gap"), [(0.0, 0.005e-3), (0.0, 0.05e-3), (0.4e-3, 0.005e-3)])
@pytest.mark.parametrize("seed", range(3))
def test_drafts_are_not_given_up_while_others_seem_better_than_the_target_alone(
    seed: int, way: float, gap: float
) -> None:
    """At 0.3 four tokens lose and one gains, which only a trial of that shows."""
    engines = replace(UNEVEN, way=way, short=0.0, gap=gap, uneven=0.05)
    server = Server(engines, [0.3] * 12, seed)
    server.run(60)
    assert server.run(300) >= 0.97 * max(fixed(engines, [0.3] * 12, k) for k in range(MAXIMUM + 1))


@pytest.mark.parametrize("seed", range(3))
def test_side_by_side_an_order_is_changed_to_once_it_was_tried(seed: int) -> None:
    server = Server(replace(UNEVEN, overlap=0.86), [0.95] * 32, seed)
    server.run(2)  # the first one is by what calls tell
    order, tried = server.policy._plan, {server.policy._plan}
    changes = 0
    for _ in range(800):
        server.run(1)
        tried |= {server.policy._trial} if server.policy._trial else set()
        changes += server.policy._plan != order
        order = server.policy._plan
        assert order in tried
    assert changes


def test_the_first_rounds_after_a_change_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one takes twice as long, while cohorts wait for each other."""
    engines, counted = replace(UNEVEN, uneven=0.0), []
    monkeypatch.setattr(
        RoundTimes, "took", lambda _, batched, rows, k, seconds: counted.append((batched, k, seconds))
    )
    server = Server(engines, [0.6] * 32)
    server.run(200)
    assert len(set(server.lengths)) > 2 and len(counted) > 100
    for batched, k, seconds in counted:
        assert seconds == pytest.approx(engines.period(32, k, batched))


def test_a_trial_of_other_cohorts_ends_when_the_length_is_changed() -> None:
    """Else all sequences would draft on for some rounds, though the target alone was chosen."""
    server = Server(CHEAP, [0.8] * 32)
    while not (server.policy._trial and server.policy._trial.micro_batches != server.policy._plan.micro_batches):
        server.run(1)
    server.policy._change(RoundPlan(1, 0))
    choice = server.policy.choose(server.now, 32, [], server.made)
    assert not choice.k or choice.rounds < 32, "a few may try"


def test_trials_lose_less_than_a_hundredth() -> None:
    """Long after the start, against the same server's own best."""
    server = Server(CHEAP, [0.1] * 8)
    server.run(1000)
    assert server.run(3000) >= 0.99 * fixed(CHEAP, [0.1] * 8, 0)
    assert any(server.lengths[1000:]), "it does try"
