"""Waves: who may start with whom, as tables."""

import pytest

from support.serving.calls import ask, end, group, names, row
from tandem_serving.bls.strategies.waves import Waves

LOCK_STEP, HALVES = Waves(), Waves(lambda _: 2)
STARTS = [
    # members, rows, waves, drafts, targets, started, reason
    (4, 64, LOCK_STEP, "abcd", "", ["abcd"], "lock-step: all that wait, in one call"),
    (4, 64, LOCK_STEP, "abc", "d", ["abc"], "lock-step: the phase of more first, the other joins the next"),
    (4, 64, LOCK_STEP, "a", "bcd", ["bcd"], "lock-step: the phase of more first, the other joins the next"),
    (4, 3, LOCK_STEP, "abcd", "", ["abc", "d"], "as many rows as the engine takes, the rest beside them"),
    (4, 64, HALVES, "abcd", "", ["ab"], "half of the sequences, the others in the next wave"),
    (5, 64, HALVES, "abcde", "", ["abc"], "the larger half"),
    (4, 64, HALVES, "ab", "cd", ["ab", "cd"], "one half drafts while the other is verified"),
]


@pytest.mark.parametrize(("members", "rows", "waves", "drafts", "targets", "started", "reason"), STARTS)
def test_what_starts(
    members: int, rows: int, waves: Waves, drafts: str, targets: str, started: list[str], reason: str
) -> None:
    made = group(members, rows)
    ask(made, drafts, targets)
    assert names(waves.start(made)) == started, reason
    again = names(waves.start(made)) if waves is HALVES and not targets else []
    assert again == ([drafts[len(started[0]) :]] if again else []), "the other half queues behind it"
    assert waves.start(made) == [], "nothing starts twice"


def test_a_wave_waits_for_the_one_in_flight_and_takes_all_that_came() -> None:
    made = group(4)
    ask(made, "ab")
    (first,) = LOCK_STEP.start(made)
    ask(made, "c", "d")
    assert LOCK_STEP.start(made) == []
    end(made, first)
    ask(made, targets="ab")
    assert names(LOCK_STEP.start(made)) == ["dab"]


def test_two_halves_balance_themselves() -> None:
    made = group(4)
    ask(made, "abcd")
    (first,) = HALVES.start(made)
    end(made, first)
    ask(made, targets="ab")
    both = HALVES.start(made)
    assert sorted(names(both)) == ["ab", "cd"]
    assert {batch.role for batch in both} == {"draft", "target"}


def test_a_small_wave_waits_for_more_unless_nothing_else_flies() -> None:
    made = group(9)
    ask(made, "abcd")
    (shared,) = HALVES.start(made)
    ask(made, targets="ef")
    assert HALVES.start(made) == [], "two of nine would take a step for themselves"
    end(made, shared)
    assert names(HALVES.start(made)) == ["ef"], "there is nobody to wait for"


@pytest.mark.parametrize(("waves", "makes_way"), [(HALVES, True), (LOCK_STEP, False)])
def test_an_answered_wave_makes_way_for_the_other_half_alone(waves: Waves, makes_way: bool) -> None:
    made = group(4)
    ask(made, "ab")
    assert [batch.makes_way for batch in waves.start(made)] == [makes_way]


@pytest.mark.parametrize(
    ("queued", "started", "reason"),
    [
        (False, [], "the target's queue is empty: with the next wave, or the target would make a step for it alone"),
        (True, ["n"], "a wave is in the queue: the engine takes both into its next step"),
    ],
)
def test_a_new_prompt_does_not_wait_for_the_wave_after_the_next(
    queued: bool, started: list[str], reason: str
) -> None:
    made = group(7)
    for shared in ("abc", "def") if queued else ("abc",):
        ask(made, targets=shared)
        assert names(HALVES.start(made)) == [shared]
    made.waiting["target"].append(row("n", "target", first=True))
    assert names(HALVES.start(made)) == started, reason
