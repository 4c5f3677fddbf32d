"""The adaptive policy: when it chooses, and whose calls it learns from."""

from tandem_serving.policy import Adaptive


def adaptive(rows: int, **seconds: float) -> Adaptive:
    """A policy of `rows` sequences on one device, which saw a verification and a draft call."""
    now = iter(range(10_000))
    policy = Adaptive(0, 8, separate_devices=False, clock=lambda: next(now) * 0.03)
    for _ in range(rows):
        policy.enter(policy.estimate())
    policy.timed("draft", rows, 4, seconds.get("draft", 0.008))
    policy.timed("target", rows, 4, seconds.get("target", 0.012))
    return policy


def test_all_sequences_of_a_wave_draft_as_many_tokens() -> None:
    """While trials of other lengths go on: what is chosen changes between waves only."""
    policy, seen = adaptive(rows=32), set()
    for _ in range(40):
        policy.turns(16)
        policy.think()
        estimates = list(policy._running)[:16]
        lengths = {policy.length(estimate) for estimate in estimates}
        assert len(lengths) == 1
        seen |= lengths
        for estimate in estimates:
            estimate.observe(4, 4)
    assert len(seen) > 1, "it does try others"


def test_calls_beside_those_of_the_target_alone_teach_nothing() -> None:
    policy = adaptive(rows=8, draft=0.5)  # far too dear
    for _ in range(40):
        policy.turns(8)
        policy.think()
        policy.timed("target", 8, 0, 0.012)
        policy.timed("draft", 8, 4, 0.5)
    assert policy.length(policy.estimate()) == 0
    before = policy._costs.draft(8, 1)
    policy.timed("draft", 8, 1, 100.0)
    policy.think()
    assert policy._costs.draft(8, 1) == before


def test_a_trial_of_the_target_alone_is_told_from_speculation_that_is_off() -> None:
    policy, seen = adaptive(rows=8), set()
    for _ in range(40):
        policy.turns(8)
        policy.think()
        assert policy.alone == (policy.length(policy.estimate()) == 0)
        seen.add((policy.off, policy.alone))
    assert seen == {(False, False), (False, True)}


def test_short_calls_of_trials_do_not_make_the_target_alone_slow() -> None:
    policy = adaptive(rows=8, draft=0.5)  # far too dear
    policy.think()
    before = policy._costs.alone(8)
    policy.spanned(2)
    assert policy._costs.alone(8) == before
    for _ in range(40):
        policy.turns(8)
        policy.think()
        policy.timed("draft", 8, 4, 0.5)
    assert policy.off
    before = policy._costs.alone(8)
    policy.spanned(2)
    assert policy._costs.alone(8) > before
