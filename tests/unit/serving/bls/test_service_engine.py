"""What the service reports of its engines' calls, and what becomes of requests when the target has failed."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from support.serving.bls import (
    ALONE,
    NO_TENSORS,
    STREAM,
    MockCall,
    MockEngines,
    MockStreams,
    Sink,
    Start,
    ask,
    tensors,
)
from support.serving.mock_engine import counting
from tandem_serving import metrics as m
from tandem_serving.bls.batches import Row
from tandem_serving.bls.calls import Call, Part
from tandem_serving.bls.runner import StreamEngine
from tandem_serving.bls.service import BlsService
from tandem_serving.bls.watched import watched
from tandem_serving.engine.health import CANARIES
from tandem_serving.engine.watch import WatchHooks
from tandem_serving.errors import EngineError, RequestError

CUDA = "target engine: CUDA runtime error: an illegal memory access was encountered"
GONE = EngineError("the engine fails, and starts again: send the request to another replica", "UNAVAILABLE")


def failing(role: str, error: Exception) -> Any:
    def before(asked: str, call: MockCall) -> None:
        if asked == role:
            raise error

    return before


def counted(service: BlsService, sink: Sink, role: str) -> float:
    service.metrics.flush(sink)
    return sink.labelled[m.ENGINE_CALL_FAILURES.name, m.of_engine(role)]


@pytest.mark.parametrize(
    ("role", "error", "counts"),
    [
        ("target", EngineError(CUDA), {"target": 1, "draft": 0}),
        ("draft", EngineError(CUDA), {"target": 0, "draft": 1}),
        ("target", RequestError("too long"), {"target": 0, "draft": 0}),
        ("target", EngineError("stopped", "CANCELLED"), {"target": 0, "draft": 0}),
    ],
)
def test_failures_are_counted_by_engine(
    start: Start, sink: Sink, role: str, error: Exception, counts: dict[str, int]
) -> None:
    service = start(MockEngines(before=failing(role, error)))
    answer = ask(service, tensors("a")).wait()
    assert (answer.error is None) == (role == "draft"), "without its draft the target alone goes on"
    assert {role: counted(service, sink, role) for role in counts} == counts


def test_the_target_s_death_ends_all_and_refuses_the_rest(start: Start) -> None:
    held = threading.Event()
    service = start(MockEngines(before=lambda role, call: held.wait(60)), running=2)
    running = [ask(service, tensors("a", **STREAM)) for _ in range(4)]
    service.fail(GONE)
    assert [answer.wait().error for answer in running] == [GONE] * 4, "also those in line"
    assert ask(service, tensors("b")).wait().error is GONE
    held.set()


def test_a_request_that_comes_in_the_same_moment_is_refused_too(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start(MockEngines())
    add = service._active.add

    def add_late(active: Any) -> None:
        service.fail(GONE)
        add(active)

    held = threading.Event()
    monkeypatch.setattr(service._runner, "add", lambda sequences: held.set())
    monkeypatch.setattr(service._active, "add", add_late)
    assert ask(service, tensors("a")).wait().error is GONE
    assert held.is_set()


def test_a_dead_target_is_found_by_its_calls(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request fails; nobody sends another: the canary finds out."""
    monkeypatch.setattr("tandem_serving.engine.health.AGAIN", 0.02)
    dead, ended, asked = threading.Event(), threading.Event(), []

    def before(role: str, call: MockCall) -> None:
        if dead.is_set():
            raise EngineError(CUDA)

    def canary() -> None:
        asked.append(dead.is_set())
        if dead.is_set():
            raise EngineError(CUDA)

    service = start(MockEngines(before=before), canary_seconds=0.05)
    service.engine.begin(WatchHooks(canary, service.fail, end=ended.set))
    assert ask(service, tensors("a")).wait().error is None
    while not asked:
        threading.Event().wait(0.01)
    dead.set()
    assert ask(service, tensors("a", **ALONE)).wait().error is not None
    assert ended.wait(60)
    assert sum(asked) == CANARIES
    error = ask(service, tensors("a")).wait().error
    assert error is not None
    assert (error.code, CUDA in str(error)) == ("UNAVAILABLE", True)


class Answers:
    """Stands for an EngineWatch: which calls were answered, by the order in which they began."""

    def __init__(self) -> None:
        self.answered: list[int] = []
        self._numbers = itertools.count()

    @contextmanager
    def call(self, work: float, kind: object) -> Iterator[Callable[[], None]]:
        number = next(self._numbers)
        yield lambda: self.answered.append(number)


def test_a_stream_is_answered_again_and_again() -> None:
    """One answer a step: those of its other streams come in the same moment, and would show steps without time."""
    watch, engine = Answers(), MockStreams(counting)
    engines = watched({"stream": engine}, watch)  # type: ignore[arg-type]
    streams = engines["stream"]
    assert isinstance(streams, StreamEngine)
    sequence: Any = SimpleNamespace(engine_inputs=NO_TENSORS)
    call = Call("target", np.zeros(10, np.int32), 100)
    rows = [Row(sequence, call, None, stream=number) for number in (1, 2)]
    responses = [iter(streams.call([each])) for each in rows]
    runs = [threading.Thread(target=next, args=(each,), daemon=True) for each in responses]
    engine.parts.put(Part(7, 0, [1]))  # until that is read, none of them goes on
    for run in runs:
        run.start()
    found: list[list[Part]] = [
        [Part(1, 0, [1]), Part(2, 0, [1])],
        [Part(2, 1, [1]), Part(1, 1, [1])],
        [Part(9, 0, [1])],
    ]
    engine.read = lambda: found.pop(0)  # type: ignore[method-assign]
    eventually_both(streams)
    for expected in ([0, 1], [0, 1, 1], [0, 1, 1]):
        streams.read()
        assert watch.answered == expected


def eventually_both(streams: Any) -> None:
    while len(streams._answered) < 2:
        time.sleep(0.002)
