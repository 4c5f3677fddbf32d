"""The draft length policy: estimates by table, decisions in a simulated server against the best fixed length."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean, median

import pytest

from support.serving.draft_length_simulation import MAXIMUM, Engines, Server, fixed, tokens
from tandem_serving.bls.draft_length.call_costs import Costs
from tandem_serving.bls.draft_length.goodput import (
    Devices,
    DraftLengthChoice,
    DraftLengthDecision,
    GoodputDraftLength,
)
from tandem_serving.bls.draft_length.round_times import RoundTimes
from tandem_serving.bls.draft_length.trials import ALONE_CALLS

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


COUNTED = [
    # draft tokens that turns had, whatever was chosen; those of which what they took is kept; why
    ([4, 4, 4], [4, 4], "of the first one it is not known what it follows"),
    ([4, 4, 5, 5], [4, 5, 5], "a trial's, when its first drafts are there"),
    ([5, 5, 4, 4], [5, 4], "the first shorter one has taken over a longer draft"),
    ([4, 4, None, 4, 4], [4, 4], "of different lengths, and the one after them"),
]


@pytest.mark.parametrize(("made", "counted", "reason"), COUNTED, ids=[reason for *_, reason in COUNTED])
def test_on_a_shared_device_rounds_are_taken_for_what_they_were(
    monkeypatch: pytest.MonkeyPatch, made: list[int | None], counted: list[int], reason: str
) -> None:
    """What is chosen begins a round later, and its drafts one more."""
    server = Server(Engines(devices="shared"), [0.8] * 8)
    server.run(60)  # past what comes first
    took, policy = list[int](), server.policy
    monkeypatch.setattr(RoundTimes, "took", lambda _, batched, rows, k, seconds: took.append(k))
    policy._made = None
    for length in made:
        policy.choose(server.now, 8, [user.estimate for user in server.users], length)
        server.now += 0.02
    assert took == counted, reason


def test_minimum_of_one_never_turns_off() -> None:
    server = Server(COSTLIER, [0.1] * 32, minimum=2)
    server.run(300)
    assert min(server.lengths) >= 2
    assert not server.alone


def test_maximum_of_zero_is_the_target_alone() -> None:
    policy = GoodputDraftLength(0, 0, Costs(), "shared")
    assert policy.choose(0.0, 4, [], None) == DraftLengthChoice(0, 4)


@pytest.mark.parametrize(
    ("devices", "rows", "k", "micro_batches", "reason"),
    [
        ("separate", 64, 4, 2, "draft and verification take as long: side by side they save a fifth"),
        ("separate", 64, 1, 1, "the verification takes most: half of the rows take nearly as long as all"),
        ("separate", 1, 4, 1, "one row cannot be halved"),
        ("separate", 64, 0, 1, "no draft, no cohorts"),
        ("shared", 64, 4, 1, "on one device steps exclude each other"),
    ],
)
def test_cohorts_by_the_shorter_period(devices: Devices, rows: int, k: int, micro_batches: int, reason: str) -> None:
    costs = Costs()
    for _ in range(50):
        for size, length in [(64, 4), (32, 4), (64, 1), (1, 2)]:
            costs.observe_draft(size, length, CHEAP.draft(size, length))
            costs.observe_target(size, length, CHEAP.target(size, length))
    assert GoodputDraftLength(0, 8, costs, devices).micro_batches(rows, k) == micro_batches, reason


FIXED = [
    # sequences, draft tokens, cohorts that are faster, and why
    (10, 4, 1, "each cohort's verification takes almost as long as that of all"),
    (16, 2, 1, "the target would wait for nothing, and make twice as many steps: a fifth slower"),
    (32, 1, 1, "likewise: a third slower"),
    (32, 4, 2, "drafts take as long as verifications, and are made meanwhile"),
    (64, 8, 2, "likewise, three times as long"),
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("rows", "k", "micro_batches", "reason"), FIXED, ids=[reason for *_, reason in FIXED])
def test_of_a_fixed_length_the_order_is_found(rows: int, k: int, micro_batches: int, reason: str, seed: int) -> None:
    """As far as calls and rounds tell; requests may ask for another length, to which it is found anew."""
    engines, acceptances = Engines(way=0.3e-3, gap=0.02e-3, uneven=0.05, regroup=1.0), [0.6] * rows
    server = Server(engines, acceptances, seed, minimum=MAXIMUM)
    server.run(100)
    server.policy.limit(k)
    server.run(100)
    assert server.run(300) >= 0.97 * fixed(engines, acceptances, k), reason
    assert set(server.lengths[100:]) == {k}
    orders = {n: engines.period(rows, k, n) for n in (1, 2)}
    assert min(orders, key=orders.__getitem__) == micro_batches == server.policy.micro_batches(rows, k), reason


LIMITS = [
    # minimum, maximum, the most that a request asks for, lengths to choose from, and why
    (0, 4, 4, [0, 1, 2, 3, 4], "requests ask for nothing"),
    (0, 4, 2, [0, 1, 2], "they ask for less"),
    (0, 4, 9, [0, 1, 2, 3, 4], "they ask for more than the service drafts"),
    (2, 4, 3, [2, 3], "the target alone is no choice"),
    (3, 4, 2, [2], "less than the minimum"),
    (4, 4, 4, [4], "a fixed length"),
    (4, 4, 2, [2], "a fixed length, and requests ask for less"),
    (0, 0, 0, [0], "nothing is drafted"),
]


@pytest.mark.parametrize(("minimum", "maximum", "most", "lengths", "reason"), LIMITS, ids=[r for *_, r in LIMITS])
def test_no_more_than_requests_ask_for(
    minimum: int, maximum: int, most: int, lengths: list[int], reason: str
) -> None:
    costs = Costs()
    costs.observe_draft(4, 4, 0.008)
    costs.observe_target(4, 4, 0.012)
    policy = GoodputDraftLength(minimum, maximum, costs, "separate")
    for limit in (maximum, most):
        policy.limit(limit)
        for round_ in range(60):
            choice = policy.choose(round_ * 0.03, 4, [], made=None)
    assert sorted(policy.explain().goodput) == lengths, reason
    assert choice.k in lengths, reason


def test_decision_is_explained() -> None:
    server = Server(CHEAP, [0.8] * 8)
    server.run(300)
    decision = server.policy.explain()
    assert isinstance(decision, DraftLengthDecision)
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
