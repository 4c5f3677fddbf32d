"""The adaptive policy: when it chooses, and whose calls it learns from."""

import pytest

from tandem_serving.bls.draft_length.goodput import DraftLengthChoice
from tandem_serving.bls.draft_length.policy import AdaptiveDraftLength


def adaptive(rows: int, **seconds: float) -> AdaptiveDraftLength:
    """A policy of `rows` sequences on one device, which saw a verification and a draft call."""
    now = iter(range(10_000))
    policy = AdaptiveDraftLength(0, 8, separate_devices=False, clock=lambda: next(now) * 0.03)
    for _ in range(rows):
        policy.enter(policy.estimate(), 8)
    policy.timed("draft", rows, 4, seconds.get("draft", 0.008))
    policy.timed("target", rows, 4, seconds.get("target", 0.012))
    return policy


def test_all_sequences_of_a_wave_draft_as_many_tokens() -> None:
    """While trials of other lengths go on: what is chosen changes between waves only."""
    policy, seen = adaptive(rows=32), set()
    for _ in range(40):
        policy.rounds_ended(16, policy._k)
        policy.think()
        estimates = list(policy._running)[:16]
        lengths = {policy.length(estimate) for estimate in estimates}
        assert len(lengths) == 1
        seen |= lengths
        for estimate in estimates:
            estimate.observe(4, 4)
    assert len(seen) > 1, "it does try others"


MADE = [
    # rows and draft tokens of the calls of a turn, what is said of it, and why
    ([(8, 4)], 4, "all had as many"),
    ([(7, 4), (1, 0)], 4, "one was a new prompt, or near its end"),
    ([(4, 4), (4, 5)], None, "one half had more"),
    ([], 0, "there were none"),
]


@pytest.mark.parametrize(("calls", "made", "reason"), MADE, ids=[reason for *_, reason in MADE])
def test_turns_are_of_the_length_that_most_had(
    monkeypatch: pytest.MonkeyPatch, calls: list[tuple[int, int]], made: int | None, reason: str
) -> None:
    policy, told = adaptive(rows=8), list[int | None]()

    def choose(*given: int | None) -> DraftLengthChoice:
        told.append(given[-1])
        return DraftLengthChoice(4, 8)

    monkeypatch.setattr(policy._lengths, "choose", choose)
    for rows, length in calls:
        policy.rounds_ended(rows, length)
    policy.think()
    assert told == [made], reason


def test_calls_beside_those_of_the_target_alone_teach_nothing() -> None:
    policy = adaptive(rows=8, draft=0.5)  # far too dear
    for _ in range(40):
        policy.rounds_ended(8, policy._k)
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
        policy.rounds_ended(8, policy._k)
        policy.think()
        assert policy.alone == (policy.length(policy.estimate()) == 0)
        seen.add((policy.off, policy.alone))
    assert seen == {(False, False), (False, True)}


def test_calls_of_the_target_that_begin_together_are_told_from_later_ones() -> None:
    """The first four of each sequence, once its round is over."""
    policy, seen = adaptive(rows=8, draft=0.5), list[tuple[bool, bool]]()
    while not policy.off:  # the draft is far too dear
        policy.think()
        seen.append((policy.alone, policy.together))
        policy.rounds_ended(8, policy._k)
        policy.timed("draft", 8, 4, 0.5)
    for _ in range(8):
        seen.append((policy.alone, policy.together))
        policy.rounds_ended(8, policy._k)
    first = seen.index((True, True))
    assert seen[first - 1] == (False, False), "a few, while the others draft"
    assert [together for _, together in seen[first : first + 8]] == [True] * 4 + [False] * 4


@pytest.mark.parametrize("draft", [0.001, 0.5])
def test_short_texts_are_dear_for_the_target_alone_and_long_ones_cheap_again(draft: float) -> None:
    """Whether it runs alone (a draft of 0.5 s is far too dear) or not: else it would be judged by what once was."""
    policy = adaptive(rows=8, draft=draft)
    for _ in range(40):
        policy.rounds_ended(8, policy._k)
        policy.think()
        policy.timed("draft", 8, 4, draft)
    assert policy.off == (draft > 0.1)
    seconds = []
    for tokens, calls in ((3, 2), (600, 41)):
        for _ in range(40_000 // tokens):
            policy.ended(tokens, calls)
        policy.think()
        seconds.append(policy._costs.alone(8))
    assert seconds[0] > 1.2 * seconds[1]


ASKED = [
    # what requests that run ask for at most, the length of their rounds, and why
    ([8] * 8, 8, "nothing"),
    ([4] * 8, 4, "less than the service drafts"),
    ([4] * 7 + [6], 6, "different lengths: made-up tokens fill up the shorter drafts of a wave"),
    ([], 8, "nobody drafts"),
]


@pytest.mark.parametrize(("most", "length", "reason"), ASKED, ids=[reason for *_, reason in ASKED])
def test_a_fixed_length_is_as_long_as_requests_ask_for(most: list[int], length: int, reason: str) -> None:
    policy = AdaptiveDraftLength(8, 8, separate_devices=True, clock=lambda: 0.0)
    policy.timed("draft", 8, 4, 0.008)
    policy.timed("target", 8, 4, 0.012)
    estimates = [policy.estimate() for _ in most]
    for estimate, asked in zip(estimates, most, strict=True):
        policy.enter(estimate, asked)
    policy.think()
    assert {policy.length(estimate) for estimate in [*estimates, policy.estimate()]} == {length}, reason
    assert not policy.off
    longer = policy.estimate()
    policy.enter(longer, 8)
    policy.rounds_ended(8, length)
    policy.think()
    assert policy.length(longer) == 8, "one who asks for more has come"
