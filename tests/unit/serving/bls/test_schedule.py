"""The schedule: who waits where, whatever the strategy."""

from support.serving.calls import names, row
from tandem_serving.bls.batches import Batch
from tandem_serving.bls.schedule import Schedule
from tandem_serving.bls.step_limits import StepLimits
from tandem_serving.bls.strategies.waves import Waves


def schedule(members: int, rows: int = 64, micro_batches: int = 1) -> Schedule[str]:
    made: Schedule[str] = Schedule(StepLimits(rows), lambda _: Waves(lambda _: micro_batches))
    for _ in range(members):
        made.enter("k")
    return made


def start(made: Schedule[str], dead: str = "") -> list[Batch[str]]:
    return made.start(lambda name: name not in dead)


def ask(made: Schedule[str], drafts: str = "", targets: str = "") -> None:
    for name in drafts:
        made.ask(row(name, "draft"))
    for name in targets:
        made.ask(row(name, "target"))


def test_an_engine_that_takes_no_batches_gets_each_call_on_its_own() -> None:
    made = schedule(4, rows=1)
    ask(made, "abc", "d")
    assert names(start(made)) == ["a", "b", "c", "d"]


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


def test_only_calls_of_equal_shape_share_a_wave_and_groups_do_not_wait_for_each_other() -> None:
    made = schedule(1)
    made.enter("other")
    ask(made, "a")
    made.ask(row("b", "draft", key="other"))
    first, second = start(made)
    assert sorted(names([first, second])) == ["a", "b"]
    made.finish(first)
    ask(made, targets="a")
    assert names(start(made)) == ["a"], "while the other group's wave is in flight"


def test_ended_sequences_are_dropped() -> None:
    made = schedule(3)
    ask(made, "abc")
    made.ask(row("d", "target", own=True))
    assert sorted(names(start(made, dead="bd"))) == ["ac"]


def test_a_group_is_forgotten_with_its_last_sequence() -> None:
    made = schedule(1)
    ask(made, "a")
    (shared,) = start(made)
    made.leave("k")
    made.finish(shared)
    assert not made._groups  # memory of a server that runs for months


def test_an_answered_batch_that_makes_way_is_freed_once() -> None:
    made = schedule(4, micro_batches=2)
    ask(made, "ab")
    (shared,) = start(made)
    ask(made, "cd")
    made.release(shared)
    assert names(start(made)) == ["cd"]
    made.finish(shared)
    made.finish(shared)
    assert shared not in made._groups["k"].in_flight["draft"]


def test_an_answered_batch_that_makes_no_way_is_in_flight_until_it_is_settled() -> None:
    made = schedule(4)
    ask(made, "ab")
    (shared,) = start(made)
    ask(made, "cd")
    made.release(shared)
    assert start(made) == []


def test_a_batch_that_was_given_up_and_answers_after_all_frees_nothing_twice() -> None:
    made = schedule(4, micro_batches=2)
    ask(made, targets="ab")
    (given_up,) = start(made)
    made.finish(given_up)
    made.release(given_up)
    assert made._groups["k"].in_flight == {"draft": [], "target": []}
