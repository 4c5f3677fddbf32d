"""The runner's threads, with rounds that follow a script."""

import threading
from typing import Any

import pytest

from support.serving.steady import Steady
from tandem_serving import metrics as m
from tandem_serving.bls.limits import RoundLimits
from tandem_serving.bls.runner import Runner, by_urgency
from tandem_serving.bls.sequence import State


@pytest.mark.parametrize(
    ("rows", "rounds", "waits", "why"),
    [
        (64, 2, False, "the step before last of all sequences is in line while the last one's are added"),
        (64, 4, True, "deliveries do not keep up: texts would come ever later"),
        (1, 2, True, "each sequence has engine threads of its own, which take the interpreter from deliveries"),
    ],
)
def test_how_many_steps_in_line_hold_up_engine_calls(rows: int, rounds: int, waits: bool, why: str) -> None:
    calls: Any = object()
    limits = RoundLimits(running=64, waiting=0, max_rows=rows, draft_timeout=1.0)
    runner = Runner({"target": calls, "draft": calls}, Steady(4, True), limits, m.Metrics())
    delivery, taken = runner._delivery, threading.Event()

    def send() -> None:
        taken.wait(60)

    for _ in range(rounds):
        delivery.put_batch([(object(), send) for _ in range(64)], first=True)

    def make_a_call() -> None:
        delivery.hurry(True)
        delivery.keep_up()
        delivery.hurry(False)

    kept_up = threading.Thread(target=make_a_call)
    kept_up.start()
    kept_up.join(0.2 if waits else 60)
    assert kept_up.is_alive() == waits, why
    taken.set()
    kept_up.join(60)
    assert not kept_up.is_alive()
    runner.close()


class Delivered:
    """A sequence whose first token is delivered as soon as somebody has asked about it."""

    def __init__(self, first: bool, state: State = State.RUNNING) -> None:
        self.state = state
        self._first = first

    @property
    def has_first_token(self) -> bool:
        had, self._first = not self._first, False
        return had


def test_a_step_goes_out_once_though_its_sequences_first_token_is_delivered_meanwhile() -> None:
    """A step that counted as both was in the text twice."""
    new, old, ending = Delivered(first=True), Delivered(first=False), Delivered(first=False, state=State.FINISHED)
    outgoing: Any = [(old, "a"), (new, "b"), (ending, "c")]
    first: Any
    then: Any
    first, then = by_urgency(outgoing)
    assert [text for _, text in first] == ["b"]
    assert [text for _, text in then] == ["c", "a"], "those that wait to run wait for what ends"
