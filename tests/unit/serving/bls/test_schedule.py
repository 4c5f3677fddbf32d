"""The schedule: who waits where, whatever the strategy."""

import pytest

from support.serving.calls import IDS, names, row
from tandem_serving.bls.batches import Batch, BatchKey, Row
from tandem_serving.bls.calls import Call
from tandem_serving.bls.schedule import Schedule
from tandem_serving.bls.step_limits import UNLIMITED, StepLimits


def schedule(members: int, micro_batches: int = 1) -> Schedule[str]:
    made: Schedule[str] = Schedule(StepLimits(64), lambda _: micro_batches)
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


def strategy(batch: Batch[str]) -> str:
    """What started it."""
    if not batch.shared:
        return "per_sequence"
    return "filled_steps" if batch.step else "waves" if batch.via == "engine" else "server_rounds"


# the server makes rounds, and may for these sequences; tokens of a step; its call goes by itself; the strategy, why
CHOICES = [
    (True, True, UNLIMITED, False, "server_rounds", "the server can, and may for these sequences"),
    (
        True,
        False,
        UNLIMITED,
        False,
        "waves",
        "drafts must not be padded, or engines get different tensors",
    ),
    (False, True, UNLIMITED, False, "waves", "no model makes rounds"),
    (True, True, len(IDS), False, "filled_steps", "a step does not take two calls"),
    (False, False, len(IDS), False, "filled_steps", "likewise where the server makes no rounds"),
    (True, True, UNLIMITED, True, "per_sequence", "it would hold up the others"),
    (True, True, len(IDS), True, "per_sequence", "likewise where texts are long"),
]


@pytest.mark.parametrize(("in_server", "whole_rounds", "tokens", "own", "chosen", "why"), CHOICES)
def test_the_strategy_follows_from_the_server_the_engines_and_the_call(
    in_server: bool, whole_rounds: bool, tokens: int, own: bool, chosen: str, why: str
) -> None:
    made: Schedule[str] = Schedule(StepLimits(64, tokens, tokens), in_server=in_server)
    key = BatchKey("tensors", whole_rounds)
    for _ in "ab":
        made.enter(key)
    for name in "ab":
        made.ask(Row(name, Call("target", IDS, 1), key, own))
    assert {strategy(batch) for batch in start(made)} == {chosen}, why


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
