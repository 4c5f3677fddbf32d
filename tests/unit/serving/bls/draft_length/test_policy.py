"""The draft length policy in a simulated server: against the best fixed length, and the target alone."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean, median

import pytest

from support.serving.draft_length_simulation import MAXIMUM, Engines, Server, fixed
from tandem_serving.bls.draft_length.policy import AdaptiveDraftLength

pytestmark = pytest.mark.nightly

CHEAP = Engines()
SHARED = Engines(devices="shared")
# Verified positions cost as much as on a busy device: the target alone wins at load.
COSTLY = Engines(position=0.1e-3)
COSTLIER = Engines(position=0.4e-3)
# A call's way through the server takes 1.3 ms and 0.1 ms a row.
FAR_SHARED = Engines(way=1.3e-3, devices="shared")
# As measured on two cores: changes cost rounds, calls that begin together take longer, rounds are uneven.
REAL = Engines(way=0.3e-3, gap=0.02e-3, uneven=0.05, regroup=1.0, retime=0.4, short=0.02e-3, together=0.25e-3)
REAL_SHARED = Engines(devices="shared", way=0.4e-3, gap=0.02e-3, short=0.02e-3, together=0.25e-3, retime=0.4)


def best(engines: Engines, acceptances: list[float]) -> float:
    return max(fixed(engines, acceptances, k) for k in range(MAXIMUM + 1))


@pytest.mark.parametrize("rows", [1, 8, 32, 64])
@pytest.mark.parametrize("acceptance", [0.1, 0.3, 0.6, 0.8, 0.95])
@pytest.mark.parametrize("engines", [CHEAP, SHARED, COSTLIER, REAL, REAL_SHARED])
def test_close_to_the_best_fixed_length(engines: Engines, acceptance: float, rows: int) -> None:
    """The learning included, but for the first rounds: no server is much worse, nor below the target alone."""
    acceptances = [acceptance] * rows
    reached = []
    for seed in range(3):
        server = Server(engines, acceptances, seed)
        server.run(100)
        reached.append(server.run(2000 if rows == 1 else 1000))
    assert mean(reached) >= 0.95 * best(engines, acceptances)
    assert mean(reached) >= 0.96 * fixed(engines, acceptances, 0)  # 0.963 of REAL_SHARED, 64 rows of 0.6; else 0.97
    assert min(reached) >= 0.92 * best(engines, acceptances)


MANY = 20_000  # tokens of a sequence


def tokens_until(server: Server, off: bool) -> float:
    """Tokens a sequence until the target runs alone (`off`), or no longer, for 10 rounds or tokens on end."""
    made, since, steady = 0.0, 0.0, 0
    while steady < 10:
        begin = server.now
        made += server.run(1) * (server.now - begin) / len(server.acceptances)
        if server.policy.off != off:
            since, steady = made, 0
        else:
            steady += 1
        assert made < MANY, "it never does"
    return since


@pytest.mark.parametrize(("rows", "off"), [(1, 1200), (8, 300), (32, 250), (64, 400)])
@pytest.mark.parametrize("engines", [CHEAP, COSTLY, REAL, REAL_SHARED])
def test_acceptance_collapses_and_recovers(engines: Engines, rows: int, off: int) -> None:
    """In so many tokens of each sequence, and back in 400; after long without a draft as well. One row by itself
    loses only 3% until it is off."""
    went, came, reached = [], [], []
    for seed in range(3):
        server = Server(engines, [0.8] * rows, seed)
        server.run(400)
        server.become(0.1)
        went.append(tokens_until(server, off=True))
        server.run(800)
        server.become(0.8)
        came.append(tokens_until(server, off=False))
        reached.append(server.run(1200 if rows == 1 else 400))
    assert median(went) <= off
    assert max(came) <= 400
    assert mean(reached) >= 0.95 * best(engines, [0.8] * rows)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("acceptance", [0.5, 0.6])
@pytest.mark.parametrize("gap", [0.2e-3, 0.3e-3])
def test_what_did_not_pay_at_load_comes_back_soon_when_that_is_over(gap: float, acceptance: float, seed: int) -> None:
    """However often it had come back in vain: rounds of 64 rows wait for text and sending, those of 8 hardly."""
    server = Server(Engines(devices="shared", gap=gap), [acceptance] * 64, seed)
    server.run(2500)
    tokens_until(server, off=True)
    server.leave(8)
    assert tokens_until(server, off=False) <= 400


@pytest.mark.parametrize("rows", [8, 32])
@pytest.mark.parametrize(("devices", "times"), [("shared", 4), ("separate", 8)])
def test_a_draft_engine_that_becomes_slow_is_given_up(devices: str, times: int, rows: int) -> None:
    """For good: rounds of more than twice the time are no pauses then, and what rounds took once does not hold."""
    server = Server(Engines(devices=devices), [0.7] * rows)  # type: ignore[arg-type]
    server.run(800)
    server.engines = replace(server.engines, draft_step=times * server.engines.draft_step)
    begin, made = server.now, 0.0
    while server.now < begin + 60:
        before = server.now
        made += server.run(1) * (server.now - before)
    assert made / (server.now - begin) >= 0.9 * best(server.engines, [0.7] * rows)


def test_a_draft_engine_that_becomes_fast_is_found() -> None:
    """Its acceptance says nothing of that: all sequences draft some rounds after a pause."""
    server = Server(Engines(devices="shared", draft_step=20e-3), [0.7] * 8)
    server.run(300)
    assert server.policy.off
    server.engines = SHARED
    server.run(3000)
    assert not server.policy.off


def test_load_that_grows_is_learnt() -> None:
    """Of one row no time says what 64 take."""
    server = Server(COSTLIER, [0.6])
    server.run(1000)
    server.join(63)
    server.run(300)
    assert server.run(600) >= 0.97 * fixed(COSTLIER, [0.6] * 64, 0)


def test_speculation_that_comes_back_in_vain_does_so_ever_more_rarely() -> None:
    """Each time costs more than its rounds: all sequences begin anew together."""
    server = Server(FAR_SHARED, [0.6] * 64)
    server.run(200)
    tried, until = 0, server.now + 300
    while server.now < until:
        server.run(1)
        tried += server.lengths[-2:-1] == [0] and server.policy._used.k > 0
    assert 1 <= tried <= 25, "50 to 61 times where it does not become rarer"


def test_trials_take_a_bounded_share_of_the_time() -> None:
    """At each acceptance: what is not tried may have become better."""
    server = Server(REAL_SHARED, [0.8] * 8)
    server.run(600)
    tried = 0
    for _ in range(3000):
        server.run(1)
        tried += server.policy._used != server.policy._plan
    assert 0 < tried <= 0.05 * 3000


def test_minimum_of_one_never_turns_off() -> None:
    server = Server(COSTLIER, [0.1] * 32, minimum=2)
    server.run(1500)
    assert not server.policy.off
    assert set(server.lengths) <= {0, *range(2, MAXIMUM + 1)}
    assert 0 < server.lengths.count(0) <= 0.1 * len(server.lengths), "the target alone is probed"


def test_maximum_of_zero_is_the_target_alone() -> None:
    server = Server(SHARED, [0.8] * 8, maximum=0)
    server.run(300)
    assert set(server.lengths) == {0}


FIXED = [
    # sequences, draft tokens, micro-batches that are faster, and why
    (10, 4, 1, "each half's verification takes almost as long as that of all"),
    (16, 2, 1, "the target would wait for nothing, and make twice as many steps: a fifth slower"),
    (32, 1, 1, "likewise: a third slower"),
    (32, 4, 2, "drafts take as long as verifications, and are made meanwhile"),
    (64, 8, 2, "likewise, three times as long"),
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("rows", "k", "micro_batches", "reason"), FIXED, ids=[reason for *_, reason in FIXED])
def test_of_a_fixed_length_the_micro_batches_are_found(
    rows: int, k: int, micro_batches: int, reason: str, seed: int
) -> None:
    engines, acceptances = Engines(way=0.3e-3, gap=0.02e-3, uneven=0.05, regroup=1.0), [0.6] * rows
    server = Server(engines, acceptances, seed, minimum=k, maximum=k)
    server.run(200)
    assert server.run(300) >= 0.96 * fixed(engines, acceptances, k), reason
    assert set(server.lengths) <= {0, k}, "0: probes"
    orders = {n: engines.period(rows, k, n) for n in (1, 2)}
    assert min(orders, key=orders.__getitem__) == micro_batches, reason
    if min(orders.values()) < 0.97 * max(orders.values()):
        assert server.policy._plan.micro_batches == micro_batches, reason


LIMITS = [
    # minimum, maximum, the most that requests ask for, lengths that are chosen, and why
    (0, 4, [4], {0, 1, 2, 3, 4}, "requests ask for nothing"),
    (0, 4, [2], {0, 1, 2}, "they ask for less"),
    (0, 4, [9], {0, 1, 2, 3, 4}, "they ask for more than the service drafts"),
    (2, 4, [3], {2, 3}, "the target alone is no choice"),
    (3, 4, [2], {2}, "less than the minimum"),
    (4, 4, [4], {4}, "a fixed length"),
    (4, 4, [2], {2}, "a fixed length, and requests ask for less"),
    (4, 4, [2, 2, 3], {3}, "one asks for more: made-up tokens fill up the others' drafts"),
]


@pytest.mark.parametrize(("minimum", "maximum", "most", "lengths", "reason"), LIMITS, ids=[r for *_, r in LIMITS])
def test_no_more_than_requests_ask_for(
    minimum: int, maximum: int, most: list[int], lengths: set[int], reason: str
) -> None:
    now = 0.0
    policy = AdaptiveDraftLength(minimum, maximum, separate_devices=False, clock=lambda: now)
    for sequence, each in enumerate(most):
        policy.enter(sequence, each)
    chosen = set()
    for round_ in range(400):
        k = policy.length(0)
        now += 0.03
        policy.rounds_ended(len(most), k)
        if round_ > 20:
            chosen.add(k)
    assert chosen <= lengths | {0} if minimum else chosen <= lengths, reason
    assert max(chosen) == max(lengths) or 0 in lengths, reason


def test_who_asks_for_a_length_keeps_it_in_probes() -> None:
    now = 0.0
    policy = AdaptiveDraftLength(4, 4, separate_devices=False, clock=lambda: now)
    for sequence in range(3):
        policy.enter(sequence, 4, fixed=sequence == 0)
    seen = set()
    for _ in range(2000):
        lengths = [policy.length(sequence) for sequence in range(3)]
        seen.add((tuple(lengths), policy.probing))
        now += 0.03
        policy.rounds_ended(sum(map(bool, lengths)), 4)
        policy.rounds_ended(lengths.count(0), 0)
    assert seen == {((4, 4, 4), False), ((4, 0, 0), False), ((4, 0, 0), True)}
    policy.leave(1)
    policy.enter(3, 4, fixed=True)
    for _ in range(2000):
        assert policy.length(2) == 4, "most take no part"
        now += 0.03
        policy.rounds_ended(3, 4)


def test_a_sequence_that_asks_for_more_gets_it() -> None:
    """A fixed length is as long as a request that runs asks for."""
    now = 0.0
    policy = AdaptiveDraftLength(8, 8, separate_devices=True, clock=lambda: now)
    lengths: list[int] = []
    for most in (4, 8):
        policy.enter(most, most)
        for _ in range(20):
            now += 0.03
            policy.rounds_ended(len(lengths) + 1, policy.length(0))
        lengths.append(policy.length(0))
    assert lengths == [4, 8]


def test_while_the_target_runs_alone_one_sequence_drafts_now_and_then() -> None:
    """Always the same, until it is over: the draft engine reads each prompt that it is asked for."""
    server = Server(SHARED, [0.1] * 64)
    server.run(300)
    assert server.policy.off

    def drafting() -> list[int]:
        drafted = []
        for _ in range(640):
            drafted += [user for user in range(64) if server.policy.length(user)]
            server.now += 0.015
            server.clock = server.now
            server.policy.rounds_ended(64, 0)
        return drafted

    [scout] = set(first := drafting())
    assert 8 <= len(first) <= 64, "a token each"
    server.policy.leave(scout)
    assert len(set(drafting()) - {scout}) == 1


def test_rounds_beside_a_pause_of_the_draft_engine_say_nothing() -> None:
    """While no draft is asked for the target makes each token alone: that is no period of rounds that draft."""
    now = 0.0
    policy = AdaptiveDraftLength(1, 4, separate_devices=False, clock=lambda: now)
    for sequence in range(8):
        policy.enter(sequence, 4)

    def periods(length: int) -> float:
        nonlocal now
        for _ in range(200):
            now += 0.02 if length else 0.5
            policy.rounds_ended(8, length and policy.length(0))
        return policy._load_of(8).periods[policy._plan].seconds

    assert periods(4) == pytest.approx(0.02)
    assert periods(0) == pytest.approx(0.02, rel=0.05)
