"""The runner's threads, with rounds that follow a script."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.serving.steady import Steady
from tandem_serving import metrics as m
from tandem_serving.bls.batches import Batch, Route
from tandem_serving.bls.calls import Output, Role
from tandem_serving.bls.in_flight import InFlightBatch
from tandem_serving.bls.limits import RoundLimits
from tandem_serving.bls.runner import BlsEngine, Runner, by_urgency


def batch(role: Role, name: Any) -> Batch[Any]:
    return Batch(role, [name], shared=True)


class Script:
    """Rounds that after the first call start a draft, and hold a verification back for some milliseconds."""

    def __init__(self) -> None:
        self.held = 0.0
        self.outgoing: list[Any] = []
        self.failed: list[Any] = []
        self.stops: list[Any] = []
        self.streams: list[Any] = []
        self._begun = self._until = 0.0

    def admit(self, sequences: list[Any]) -> None:
        pass

    def useless(self) -> list[InFlightBatch]:
        return []

    def start(self) -> list[Batch[Any]]:
        if not self._begun:
            self._begun = time.monotonic()
            return [batch("target", "first")]
        if not self._until:
            self.held = self._until = time.monotonic() + 0.02
            return [batch("draft", "draft")]
        if self.held and time.monotonic() >= self.held:
            self.held = 0.0
            return [batch("target", "held")]
        return []

    def sent(self, batch: Batch[Any], started: float) -> InFlightBatch:
        return InFlightBatch(batch, started, {})

    def call_ended(self, in_flight: InFlightBatch, error: Exception, now: float) -> None:
        pass


class Calls:
    """Engine calls that note that they began; the draft's ends when what was held has begun."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.in_time = False

    def call(self, rows: Any) -> Any:
        return Call(self, rows[0])


class Call:
    def __init__(self, calls: Calls, name: str) -> None:
        self._calls = calls
        self._name = name

    def __iter__(self) -> Iterator[list[tuple[int, Output]]]:
        if self._name == "held":
            self._calls.began.set()
        if self._name == "draft":
            self._calls.in_time = self._calls.began.wait(30)
        return iter(())

    def stop(self) -> None:
        pass


def test_a_held_verification_begins_in_time_whatever_else_began() -> None:
    """A draft that hangs must not hold it up."""
    calls: Any = Calls()
    engines: dict[Route, BlsEngine] = {"target": calls, "draft": calls}
    runner = Runner(
        engines, Steady(4, True), RoundLimits(running=2, waiting=0, max_rows=8, draft_timeout=1.0), m.Metrics()
    )
    rounds: Any = Script()
    runner._rounds = rounds
    runner.add([])
    assert calls.began.wait(30)
    runner.close()
    assert calls.in_time


@pytest.mark.parametrize(
    ("rows", "rounds", "waits", "why"),
    [
        (64, 2, False, "the step before last of all sequences is in line while the last one's are added"),
        (64, 4, True, "deliveries do not keep up: texts would come ever later"),
        (1, 2, True, "each sequence has engine threads of its own, which take the interpreter from deliveries"),
    ],
)
def test_how_many_steps_in_line_hold_up_engine_calls(rows: int, rounds: int, waits: bool, why: str) -> None:
    calls: Any = Calls()
    limits = RoundLimits(running=64, waiting=0, max_rows=rows, draft_timeout=1.0)
    runner = Runner({"target": calls, "draft": calls}, Steady(4, True), limits, m.Metrics())
    delivery, taken = runner._delivery, threading.Event()

    def send() -> None:
        taken.wait(30)

    for _ in range(rounds):
        delivery.put_batch([(object(), send) for _ in range(64)], first=True)

    def make_a_call() -> None:
        delivery.hurry(True)
        delivery.keep_up()
        delivery.hurry(False)

    kept_up = threading.Thread(target=make_a_call)
    kept_up.start()
    kept_up.join(0.2 if waits else 30)
    assert kept_up.is_alive() == waits, why
    taken.set()
    kept_up.join(30)
    assert not kept_up.is_alive()
    runner.close()


class Delivered:
    """A sequence whose first token is delivered as soon as somebody has asked about it."""

    def __init__(self, first: bool, over: bool = False) -> None:
        self.over = over
        self._first = first

    @property
    def has_first_token(self) -> bool:
        had, self._first = not self._first, False
        return had


def test_a_step_goes_out_once_though_its_sequences_first_token_is_delivered_meanwhile() -> None:
    """A step that counted as both was in the text twice."""
    new, old, ending = Delivered(first=True), Delivered(first=False), Delivered(first=False, over=True)
    outgoing: Any = [(old, "a"), (new, "b"), (ending, "c")]
    first: Any
    then: Any
    first, then = by_urgency(outgoing)
    assert [text for _, text in first] == ["b"]
    assert [text for _, text in then] == ["c", "a"], "those that wait to run wait for what ends"
