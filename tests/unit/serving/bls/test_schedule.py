"""The schedule: who may start with whom, as tables."""

from collections.abc import Iterable

import numpy as np
import pytest

from tandem_serving.bls.calls import Call, Role, ServerRound
from tandem_serving.bls.schedule import Batch, Overlap, Row, Schedule
from tandem_serving.bls.step_limits import StepLimits

IDS = np.arange(4, dtype=np.int32)


def row(name: str, role: Role, key: str = "k", own: bool = False) -> Row[str]:
    return Row(name, Call(role, IDS, 4), key, own)


def schedule(members: int, rows: int = 64, order: Overlap = "none", held: str = "") -> Schedule[str]:
    made: Schedule[str] = Schedule(StepLimits(rows), lambda sequences: order, lambda key: key == held)
    for _ in range(members):
        made.enter("k")
    return made


def start(made: Schedule[str], dead: str = "") -> list[Batch[str]]:
    return made.start(lambda name: name not in dead)


def names(batches: Iterable[Batch[str]]) -> list[str]:
    return ["".join(row.sequence for row in batch.rows) for batch in batches]


def ask(made: Schedule[str], drafts: str = "", targets: str = "") -> None:
    for name in drafts:
        made.ask(row(name, "draft"))
    for name in targets:
        made.ask(row(name, "target"))


LOCK_STEP: Overlap = "none"
ALTERNATING: Overlap = "micro-batches"
AHEAD: Overlap = "draft-ahead"
STARTS = [
    # members, rows, order, drafts, targets, started, reason
    (4, 64, LOCK_STEP, "abcd", "", ["abcd"], "lock-step: all that wait, in one call"),
    (4, 64, LOCK_STEP, "abc", "d", ["abc"], "lock-step: the phase of more first, the other joins the next"),
    (4, 64, LOCK_STEP, "a", "bcd", ["bcd"], "lock-step: the phase of more first, the other joins the next"),
    (4, 64, ALTERNATING, "abcd", "", ["ab"], "two cohorts: half of the sequences, the others in the next wave"),
    (5, 64, ALTERNATING, "abcde", "", ["abc"], "two cohorts: the larger half"),
    (4, 64, ALTERNATING, "ab", "cd", ["ab", "cd"], "two cohorts: one drafts while the other is verified"),
    (4, 64, AHEAD, "ab", "cd", ["ab", "cd"], "ahead: whoever needs a draft gets it, whatever the target does"),
    (4, 3, LOCK_STEP, "abcd", "", ["abc", "d"], "as many rows as the engine takes, the rest beside them"),
    (4, 1, LOCK_STEP, "abcd", "", ["a", "b", "c", "d"], "an engine that takes no batches: each on its own"),
]


@pytest.mark.parametrize(("members", "rows", "order", "drafts", "targets", "started", "reason"), STARTS)
def test_what_starts(
    members: int, rows: int, order: Overlap, drafts: str, targets: str, started: list[str], reason: str
) -> None:
    made = schedule(members, rows, order)
    ask(made, drafts, targets)
    assert names(start(made)) == started, reason
    again = names(start(made)) if order == ALTERNATING and not targets else []
    assert again == ([drafts[len(started[0]) :]] if again else []), "the other half queues behind it"
    assert start(made) == [], "nothing starts twice"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def in_rounds(members: int, clock: Clock | None = None, order: Overlap = "none") -> Schedule[str]:
    made: Schedule[str] = Schedule(StepLimits(64), lambda _: order, in_rounds="k".__eq__, clock=clock or Clock())
    for _ in range(members):
        made.enter("k")
    return made


def lanes(batches: Iterable[Batch[str]]) -> list[tuple[str, str]]:
    return [(batch.route, names([batch])[0]) for batch in batches]


def test_the_server_makes_rounds_and_calls_of_the_target_join_them_whenever_they_come() -> None:
    made = in_rounds(5)
    ask(made, "abc", "d")
    started = start(made)
    assert lanes(started) == [("round", "abc"), ("join", "d")]
    ask(made, targets="e")
    assert lanes(start(made)) == [("join", "e")], "it is for the server to say which verification it joins"
    ask(made, "f")
    assert start(made) == [], "one round at once"


def test_drafts_from_before_there_were_rounds_are_verified_by_themselves() -> None:
    """What joins a round is filled up with made-up draft tokens: it must not have others."""
    made = in_rounds(3)
    ask(made, targets="a")
    verification = row("b", "target")
    made.ask(verification._replace(call=verification.call._replace(draft_ids=(1, 2))))
    assert lanes(start(made)) == [("join", "a"), ("target", "b")]


def test_of_many_sequences_the_server_makes_two_rounds_at_once() -> None:
    made = in_rounds(8, order="micro-batches")
    ask(made, "abcd")
    assert lanes(start(made)) == [("round", "abcd")]
    ask(made, "ef")
    assert start(made) == [], "a small one would take steps of the engines for itself, round after round"
    ask(made, "gh", "i")
    assert lanes(start(made)) == [("round", "efgh"), ("join", "i")]
    ask(made, "jklm")
    assert start(made) == [], "two at once"


TOGETHER = ServerRound(0.008, 0.012, group=7, members=2)
LANDINGS = [
    # what lands, in order: by name with what the server tells; what has started at the end
    ([("abc", TOGETHER), ("d", TOGETHER)], [("round", "abcd")], "verified together: they go on together"),
    ([("d", TOGETHER), ("abc", TOGETHER)], [("round", "dabc")], "in either order"),
    ([("abc", TOGETHER)], [], "one of them is still to land"),
    ([("abc", TOGETHER._replace(members=1))], [("round", "abc")], "d came too late: it joins the next"),
    ([("abc", None)], [("round", "abc")], "a round that failed says nothing of d"),
]


@pytest.mark.parametrize(("landings", "started", "reason"), LANDINGS)
def test_who_was_verified_together_begins_the_next_round_together(
    landings: list[tuple[str, ServerRound | None]], started: list[tuple[str, str]], reason: str
) -> None:
    made = in_rounds(4)
    ask(made, "abc", "d")
    flying = {names([batch])[0]: batch for batch in start(made)}
    begun = []
    for name, server_round in landings:
        made.verified_in_server(server_round)
        made.finish(flying[name])
        ask(made, name)
        begun += lanes(start(made))
    assert begun == started, reason


def test_an_answer_that_is_lost_holds_up_the_others_for_a_moment_only() -> None:
    clock = Clock()
    made = in_rounds(4, clock)
    ask(made, "abc", "d")
    round_, _ = start(made)
    made.verified_in_server(TOGETHER)
    made.finish(round_)
    ask(made, "abc")
    assert start(made) == []
    clock.now = 0.02
    assert lanes(start(made)) == [("round", "abc")]


def test_a_wave_waits_for_the_one_in_flight_and_takes_all_that_came() -> None:
    made = schedule(4)
    ask(made, "ab")
    (first,) = start(made)
    ask(made, "c")
    ask(made, targets="d")
    assert start(made) == []
    made.finish(first)
    ask(made, targets="ab")
    assert names(start(made)) == ["dab"]


def test_two_cohorts_balance_themselves() -> None:
    made = schedule(4, order=ALTERNATING)
    ask(made, "abcd")
    (first,) = start(made)
    made.finish(first)
    ask(made, targets="ab")
    both = start(made)
    assert names(both) == ["cd", "ab"] or names(both) == ["ab", "cd"]
    assert {batch.role for batch in both} == {"draft", "target"}


def test_calls_of_their_own_start_at_once_and_hold_nobody() -> None:
    made = schedule(3)
    ask(made, "a")
    (shared,) = start(made)
    made.ask(row("b", "target", own=True))
    (own,) = start(made)
    assert (names([own]), own.shared) == (["b"], False)
    made.finish(own)
    ask(made, "c")
    assert start(made) == [], "the wave is still in flight"
    made.finish(shared)
    assert names(start(made)) == ["c"]


def test_only_calls_of_equal_shape_share_a_wave_and_cohorts_do_not_wait_for_each_other() -> None:
    made = schedule(1)
    made.enter("other")
    ask(made, "a")
    made.ask(row("b", "draft", key="other"))
    first, second = start(made)
    assert sorted(names([first, second])) == ["a", "b"]
    made.finish(first)
    ask(made, targets="a")
    assert names(start(made)) == ["a"], "while the other cohort's wave is in flight"


def test_ended_sequences_are_dropped() -> None:
    made = schedule(3)
    ask(made, "abc")
    made.ask(row("d", "target", own=True))
    assert names(start(made, dead="bd")) == ["ac"]


def test_a_cohort_is_forgotten_with_its_last_sequence() -> None:
    made = schedule(1)
    ask(made, "a")
    (shared,) = start(made)
    made.leave("k")
    made.finish(shared)
    assert not made._groups  # memory of a server that runs for months


def test_a_small_wave_waits_for_more_unless_nothing_else_flies() -> None:
    made = schedule(9, order=ALTERNATING)
    ask(made, "abcd")
    (shared,) = start(made)
    ask(made, targets="ef")
    assert start(made) == [], "two of nine would take a step for themselves"
    made.finish(shared)
    assert names(start(made)) == ["ef"], "there is nobody to wait for"


@pytest.mark.parametrize(("order", "started"), [(ALTERNATING, ["cd"]), (LOCK_STEP, [])], ids=["two cohorts", "none"])
def test_an_answered_wave_makes_way_for_the_other_cohort_alone(order: Overlap, started: list[str]) -> None:
    made = schedule(4, order=order)
    ask(made, "ab")
    (shared,) = start(made)
    ask(made, "cd")
    made.release(shared)
    assert names(start(made)) == started
    made.finish(shared)
    made.finish(shared)
    assert shared not in made._groups["k"].in_flight["draft"]


def test_a_wave_that_was_given_up_and_answers_after_all_frees_nothing_twice() -> None:
    made = schedule(4, order=ALTERNATING)
    ask(made, targets="ab")
    (given_up,) = start(made)
    made.finish(given_up)
    made.release(given_up)
    assert made._groups["k"].in_flight == {"draft": [], "target": []}


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
    made = schedule(7, order=ALTERNATING)
    for shared in ("abc", "def") if queued else ("abc",):
        ask(made, targets=shared)
        assert names(start(made)) == [shared]
    made.ask(Row("n", Call("target", IDS, 1, first=True), "k"))
    assert names(start(made)) == started, reason
