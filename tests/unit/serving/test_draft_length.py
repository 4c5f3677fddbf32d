"""The draft length policy: estimates by table, decisions in a simulated server against the best fixed length."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import mean, median

import pytest

from tandem_serving.acceptance import LIKENESS, Acceptance, Likeness, in_answers
from tandem_serving.call_costs import Costs
from tandem_serving.draft_length import Choice, Decision, Devices, DraftLength
from tandem_serving.round_times import Order
from tandem_serving.trial_budget import Budget
from tandem_serving.trials import ALONE_CALLS
from unit.serving.draft_length_simulation import MAXIMUM, Engines, Server, fixed, tokens

CHEAP = Engines()
SHARED = Engines(devices="shared")
# Verified positions cost as much as on a busy device: the target alone wins at load.
COSTLY = Engines(position=0.1e-3)
COSTLIER = Engines(position=0.4e-3)
# Text and sending compete with the next call: a third more than its calls for a round of 32 rows in one wave.
CROWDED = Engines(gap=0.2e-3)
# A call's way through the server takes 1.3 ms and 0.1 ms a row, as measured, unless the engine's queue hides it.
FAR = Engines(way=1.3e-3)
FAR_SHARED = Engines(way=1.3e-3, devices="shared")


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
    assert list(acceptance.positions())[: len(expected)] == pytest.approx(expected, abs=0.06), reason


def test_expected_tokens_follow_the_formula() -> None:
    acceptance = Acceptance(3)
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
    rng, turns, answers = random.Random(1), 0, 4000
    for _ in range(answers):
        left, turns = length - 1, turns + 1
        while left > 0:
            kept = next((j for j in range(k) if rng.random() >= acceptance), k)
            left, turns = left - kept - 1, turns + 1
    foretold = in_answers([tokens(acceptance, j) for j in range(k + 1)], length)
    assert foretold[k] == pytest.approx(length * answers / turns, rel=within)
    assert in_answers([1.0, 1.8], float("inf")) == [1.0, 1.8], "as long as nothing is known of answers"


def test_short_answers_are_drafted_with_fewer_tokens() -> None:
    """Of 16 tokens at 0.95: a round of nine is worth much less than of an answer without end."""
    best = []
    for length in (16, None):
        server = Server(CHEAP, [0.95] * 8)
        for _ in range(100 if length else 0):
            server.policy.ended(length or 0)
        server.run(600)
        best.append(server.policy.explain().k)
    assert best[0] < best[1]


@pytest.mark.parametrize(
    ("rounds", "low", "high", "reason"),
    [
        (0, 0.89, 1.0, "no data: the server's"),
        (2, 0.6, 0.85, "few rounds: towards the server's"),
        (100, 0.0, 0.15, "many: its own, at each depth"),
    ],
)
def test_a_sequence_starts_as_the_server(rounds: int, low: float, high: float, reason: str) -> None:
    server = Acceptance(MAXIMUM)
    for _ in range(300):
        Acceptance(MAXIMUM, server).observe(10, 8)
    sequence = Acceptance(MAXIMUM, server)
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
    rng, server = random.Random(1), Acceptance(MAXIMUM)
    likeness = server.likeness
    for number in range(200):
        sequence = Acceptance(MAXIMUM, server)
        for _ in range(40):
            sequence.observe(1, rng.random() < kinds[number % len(kinds)])
    assert likeness.rounds == rounds, reason


def test_nothing_is_known_of_how_alike_they_are() -> None:
    assert Likeness().rounds == LIKENESS[0]


def test_fading_keeps_the_estimate_and_lets_it_move() -> None:
    kept, faded = Acceptance(2), Acceptance(2)
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
    server = Acceptance(2)
    for _ in range(150_000):  # until what was there at first is below the least number
        server.observe(2, 0)
    sequence = Acceptance(2, server)
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
    server = Acceptance(2)
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
    server = Acceptance(2)
    server.remember(rows)
    for accepted in [0] * 2000 + [1] * 128:
        server.observe(1, accepted)
    assert least <= server.positions()[0] <= most


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


@pytest.mark.parametrize("rows", [1, 8, 32, 64])
@pytest.mark.parametrize("acceptance", [0.1, 0.3, 0.6, 0.8, 0.95])
@pytest.mark.parametrize("engines", [CHEAP, SHARED, COSTLIER])
def test_close_to_the_best_fixed_length(engines: Engines, acceptance: float, rows: int) -> None:
    """The learning included, on average; a single row learns slowly, so it gets as long in time."""
    acceptances = [acceptance] * rows
    reached = mean(Server(engines, acceptances, seed).run(3000 if rows == 1 else 1000) for seed in range(3))
    best = max(fixed(engines, acceptances, k) for k in range(MAXIMUM + 1))
    assert reached >= 0.97 * best
    assert reached >= 0.98 * fixed(engines, acceptances, 0)


@pytest.mark.parametrize(
    ("acceptance", "rows", "devices"),
    [(0.6, 64, "shared"), (0.6, 16, "shared"), (0.3, 8, "shared"), (0.3, 8, "separate"), (0.3, 64, "shared")],
)
def test_hard_to_tell_from_the_target_alone(acceptance: float, rows: int, devices: Devices) -> None:
    """As measured on two cores: calls that begin together take longer, and drafts of one token nearly as long as of
    two. At 64 rows of 0.6 the target alone is 5% better, at 8 of 0.3 it is 2% worse."""
    engines = Engines(devices=devices, way=0.4e-3, gap=0.02e-3, short=0.02e-3, together=0.25e-3)
    acceptances = [acceptance] * rows
    best = max(fixed(engines, acceptances, k) for k in range(MAXIMUM + 1))
    reached = []
    for seed in range(3):
        server = Server(engines, acceptances, seed)
        server.run(100)
        reached.append(server.run(900))
    assert min(reached) >= 0.98 * best
    assert min(reached) >= 0.98 * fixed(engines, acceptances, 0)


@pytest.mark.parametrize("rows", [16, 32, 64])
@pytest.mark.parametrize("acceptance", [0.6, 0.8])
def test_what_rounds_take_beyond_their_calls_is_learnt(acceptance: float, rows: int) -> None:
    acceptances = [acceptance] * rows
    best = max(fixed(CROWDED, acceptances, k) for k in range(MAXIMUM + 1))
    assert Server(CROWDED, acceptances).run(1000) >= 0.97 * best


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rows", [16, 32, 64])
@pytest.mark.parametrize("acceptance", [0.3, 0.6, 0.8, 0.95])
def test_what_queues_hide_is_no_cost_of_rows(acceptance: float, rows: int, seed: int) -> None:
    """All rows in one wave pay a call's way, two cohorts do not: by that alone no load is dear."""
    acceptances = [acceptance] * rows
    reached = Server(FAR, acceptances, seed).run(1000)
    assert reached >= 0.97 * max(fixed(FAR, acceptances, k) for k in range(MAXIMUM + 1))
    assert reached >= 0.98 * fixed(FAR, acceptances, 0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rows", [32, 64])
def test_cohorts_that_fall_apart_for_a_while_are_not_judged_by_that(rows: int, seed: int) -> None:
    acceptances = [0.6] * rows
    server = Server(FAR, acceptances, seed, astray=13)
    server.run(60)
    assert server.run(700) >= 0.97 * max(fixed(FAR, acceptances, k) for k in range(MAXIMUM + 1))


@pytest.mark.parametrize("acceptance", [0.5, 0.6, 0.7])
@pytest.mark.parametrize("way", [0.0, 1.3e-3])
def test_two_cohorts_that_take_less_than_thought_are_found_soon(way: float, acceptance: float) -> None:
    """With another length than one cohort's, as with rounds in the server: each step between the two loses. Trials of
    the target alone, which are dear, must not use up what others may lose."""
    engines, acceptances = Engines(way=way, overlap=0.86), [acceptance] * 32
    best = max(fixed(engines, acceptances, k) for k in range(MAXIMUM + 1))
    assert mean(Server(engines, acceptances, seed).run(1000) for seed in range(3)) >= 0.98 * best


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
    order, tried = server.policy._order, {server.policy._order}
    changes = 0
    for _ in range(800):
        server.run(1)
        tried |= {server.policy._trial} if server.policy._trial else set()
        changes += server.policy._order != order
        order = server.policy._order
        assert order in tried
    assert changes


def test_a_trial_of_other_cohorts_ends_when_the_length_is_changed() -> None:
    """Else all sequences would draft on for some rounds, though the target alone was chosen."""
    server = Server(CHEAP, [0.8] * 32)
    while not (server.policy._trial and server.policy._trial.waves != server.policy._order.waves):
        server.run(1)
    server.policy._change(Order(1, 0))
    choice = server.policy.choose(server.now, 32, [])
    assert not choice.k or choice.turns < 32, "a few may try"


MANY = 20_000  # tokens of a sequence


def tokens_until(server: Server, off: bool) -> float:
    """Tokens a sequence until the target runs alone (`off`), or no longer, for 10 rounds or calls on end."""
    made, since, steady = 0.0, 0.0, 0
    while steady < 10:
        begin = server.now
        made += server.run(1) * (server.now - begin) / len(server.users)
        if server.policy.off != off:
            since, steady = made, 0
        else:
            steady += 1
        assert made < MANY, "it never does"
    return since


@pytest.mark.parametrize(("rows", "off", "on"), [(1, 1200, 300), (8, 300, 400), (32, 250, 200), (64, 120, 120)])
@pytest.mark.parametrize("engines", [CHEAP, COSTLY])
def test_acceptance_collapses_and_recovers(engines: Engines, rows: int, off: int, on: int) -> None:
    """In so many tokens of each sequence (median: chance makes one server in ten take several times as long); after
    long without a draft as well. One row by itself loses only 3% until it does."""
    went, came, reached = [], [], []
    for seed in range(3):
        server = Server(engines, [0.8] * rows, seed)
        server.run(400)
        server.become(0.1)
        went.append(tokens_until(server, off=True))
        server.run(800)
        server.become(0.8)
        came.append(tokens_until(server, off=False))
        reached.append(server.run(1200 if rows == 1 else 400))  # a single row learns slowly
    assert median(went) <= off
    assert median(came) <= on
    assert mean(reached) >= 0.97 * max(fixed(engines, [0.8] * rows, k) for k in range(MAXIMUM + 1))


@pytest.mark.parametrize("seed", range(3))
def test_no_trials_of_the_target_alone_are_saved_up_while_it_runs_alone(seed: int) -> None:
    server = Server(CHEAP, [0.8] * 32, seed)
    server.run(400)
    server.become(0.1)
    tokens_until(server, off=True)
    server.run(800)
    server.become(0.8)
    tokens_until(server, off=False)
    before = len(server.lengths)
    server.run(100)
    assert server.lengths[before:].count(0) <= ALONE_CALLS, "one trial at most"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("acceptance", [0.5, 0.6])
@pytest.mark.parametrize("gap", [0.2e-3, 0.3e-3])
def test_what_did_not_pay_at_load_comes_back_soon_when_that_is_over(gap: float, acceptance: float, seed: int) -> None:
    """However often it had come back for nothing: rounds of 64 rows wait for text and sending, those of 8 hardly."""
    server = Server(Engines(devices="shared", gap=gap), [acceptance] * 64, seed)
    server.run(2500)
    tokens_until(server, off=True)
    server.users = server.users[:8]
    assert tokens_until(server, off=False) <= 400


@pytest.mark.parametrize("rows", [8, 32, 64])
@pytest.mark.parametrize("engines", [CHEAP, SHARED, COSTLY])
def test_in_mixed_traffic_poor_sequences_leave_the_cohort(engines: Engines, rows: int) -> None:
    acceptances = [0.9, 0.1] * (rows // 2)
    server = Server(engines, acceptances)
    server.run(400)
    server.alone = 0
    reached = server.run(600)
    assert reached >= 1.1 * max(fixed(engines, acceptances, k) for k in range(MAXIMUM + 1))
    assert 0.3 <= server.alone / 600 / rows <= 0.5, "the poor half, but for its first rounds"


def test_the_same_for_all_is_no_reason_to_leave() -> None:
    server = Server(CHEAP, [0.3] * 64)
    server.run(500)
    assert server.alone < 0.02 * 500 * 64


@pytest.mark.parametrize("rows", [8, 32])
@pytest.mark.parametrize(("devices", "times"), [("shared", 4), ("separate", 8)])
def test_a_draft_engine_that_becomes_slow_is_given_up(devices: Devices, times: int, rows: int) -> None:
    """For good: rounds of more than twice the time are no pauses then, and what rounds took once does not hold."""
    server = Server(Engines(devices=devices), [0.7] * rows)
    server.run(800)
    server.engines = replace(server.engines, draft_step=times * server.engines.draft_step)
    begin, made = server.now, 0.0
    while server.now < begin + 60:
        before = server.now
        made += server.run(1) * (server.now - before)
    assert made / (server.now - begin) >= 0.93 * max(
        fixed(server.engines, [0.7] * rows, k) for k in range(MAXIMUM + 1)
    )


def test_load_that_grows_is_learnt() -> None:
    """Of one row no time says what 64 take."""
    few = Server(COSTLIER, [0.6])
    few.run(1000)
    many = Server(COSTLIER, [0.6] * 64)
    many.costs, many.policy = few.costs, few.policy
    many.now = few.now
    many.run(150)
    assert many.run(600) >= 0.97 * fixed(COSTLIER, [0.6] * 64, 0)


def test_minimum_of_one_never_turns_off() -> None:
    server = Server(COSTLIER, [0.1] * 32, minimum=2)
    server.run(300)
    assert min(server.lengths) >= 2
    assert not server.alone


def test_maximum_of_zero_is_the_target_alone() -> None:
    policy = DraftLength(0, 0, Costs(), "shared")
    assert policy.choose(0.0, 4, []) == Choice(0, 4)


@pytest.mark.parametrize(
    ("devices", "rows", "k", "slots", "reason"),
    [
        ("separate", 64, 4, 2, "draft and verification take as long: side by side they save a fifth"),
        ("separate", 64, 1, 1, "the verification takes most: half of the rows take nearly as long as all"),
        ("separate", 1, 4, 1, "one row cannot be halved"),
        ("separate", 64, 0, 1, "no draft, no cohorts"),
        ("shared", 64, 4, 1, "on one device steps exclude each other"),
    ],
)
def test_cohorts_by_the_shorter_period(devices: Devices, rows: int, k: int, slots: int, reason: str) -> None:
    costs = Costs()
    for _ in range(50):
        for size, length in [(64, 4), (32, 4), (64, 1), (1, 2)]:
            costs.observe_draft(size, length, CHEAP.draft(size, length))
            costs.observe_target(size, length, CHEAP.target(size, length))
    assert DraftLength(0, 8, costs, devices).slots(rows, k) == slots, reason


def test_trials_lose_less_than_a_hundredth() -> None:
    """Long after the start, against the same server's own best."""
    server = Server(CHEAP, [0.1] * 8)
    server.run(1000)
    assert server.run(3000) >= 0.99 * fixed(CHEAP, [0.1] * 8, 0)
    assert any(server.lengths[1000:]), "it does try"


def test_decision_is_explained() -> None:
    server = Server(CHEAP, [0.8] * 8)
    server.run(300)
    decision = server.policy.explain()
    assert isinstance(decision, Decision)
    assert decision.rows == 8
    assert decision.acceptance[0] == pytest.approx(0.8, abs=0.1)
    assert decision.goodput[decision.k] >= 0.97 * max(decision.goodput.values())
    assert decision.goodput[4] == pytest.approx(8 * tokens(0.8, 4) / CHEAP.shortest([0.8] * 8, 4), rel=0.15)


@pytest.mark.parametrize("seed", range(3))
def test_speculation_that_comes_back_for_nothing_does_so_ever_more_rarely(seed: int) -> None:
    """Each time costs more than its rounds: long calls of the target are under way, and cohorts form anew."""
    server = Server(FAR_SHARED, [0.6] * 64, seed)
    server.run(200)
    back, until = 0, server.now + 300
    while server.now < until:
        off = server.policy.off
        server.run(1)
        back += off and not server.policy.off
    assert back <= 25, "50 to 61 times where it does not become rarer"
