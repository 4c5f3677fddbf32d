"""A fault of the service's own ends one request with an error, or all; none goes on wrongly or waits for ever."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from support.serving.bls import STREAM, Answer, MockCall, MockEngines, Sink, Start, ask, tensors, text
from support.serving.steady import Steady
from tandem_serving import metrics as m
from tandem_serving.bls.call_times import CallTimes
from tandem_serving.bls.chunks import BlsWriter
from tandem_serving.bls.draft_length.acceptance import Acceptance
from tandem_serving.bls.draft_length.policy import AdaptiveDraftLength
from tandem_serving.bls.in_flight import InFlightBatches
from tandem_serving.bls.loop import SequenceLoop
from tandem_serving.bls.queue import SequenceQueue
from tandem_serving.bls.rounds import Rounds
from tandem_serving.bls.runner import Runner
from tandem_serving.bls.schedule import Schedule
from tandem_serving.bls.service import BlsService
from tandem_serving.bls.strategies.waves import Waves
from tandem_serving.errors import FAILED, EngineError
from tandem_serving.requests.tokenizer import Tokenizer

STOPS = {"stop_words": np.array([[b"never"]], np.object_)}
LENGTH = 40


def once(method: Callable[..., Any], after: int, when: Callable[..., bool] = lambda *_: True) -> Callable[..., Any]:
    """The method, which raises at one call after so many others of its kind, once its work is done."""
    left = [after]

    def broken(*args: Any, **named: Any) -> Any:
        result = method(*args, **named)
        if when(*args):
            left[0] -= 1
            if left[0] == -1:
                raise ValueError("a fault")
        return result

    return broken


def ids(answer: Answer) -> list[int]:
    return [token for chunk in answer.chunks for token in chunk.ids]


def faults(service: BlsService, sink: Sink) -> dict[str, float]:
    """Faults counted, by what they ended."""
    service.metrics.flush(sink)
    found = {labels[0][1]: value for (name, labels), value in sink.labelled.items() if name == m.FAULTS.name}
    return {ended: value for ended, value in found.items() if value}


def together(*prompts: str, **more: Any) -> tuple[MockEngines, Callable[[BlsService], list[Answer]]]:
    """Engines whose first call waits until all prompts are asked, so that they share waves."""
    go = threading.Event()
    engines = MockEngines(before=lambda role, call: go.wait(60))

    def begin(service: BlsService) -> list[Answer]:
        answers = [ask(service, tensors(prompt, max_tokens=LENGTH, **STREAM, **more)) for prompt in prompts]
        go.set()
        return [answer.wait() for answer in answers]

    return engines, begin


# --- one sequence's fault ---------------------------------------------------------------------------
def test_a_step_that_cannot_be_taken_ends_its_request_alone(
    start: Start, monkeypatch: pytest.MonkeyPatch, sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    """Two sequences in a wave, one fault of the decoder: the step was asked for again, and its tokens came twice."""
    engines, begin = together("def add(", "for i in", **STOPS)
    whole = begin(start(engines))
    write = once(BlsWriter.write, 3, lambda writer, step: writer._prompt.text == "def add(")
    monkeypatch.setattr(BlsWriter, "write", write)
    engines, begin = together("def add(", "for i in", **STOPS)
    service = start(engines)
    broken, other = begin(service)
    assert str(broken.error) == FAILED
    assert ids(broken) == ids(whole[0])[: len(ids(broken))], "nothing comes twice"
    assert len(ids(broken)) < LENGTH
    assert other.error is None
    assert (ids(other), text(other.chunks)) == (ids(whole[1]), text(whole[1].chunks))
    assert "a fault" in caplog.text
    assert faults(service, sink) == {"request": 1}


@pytest.mark.parametrize("more", [STOPS, {}], ids=["read at once", "read on delivery"])
def test_a_fault_of_the_decoder_ends_its_request_alone(
    start: Start, monkeypatch: pytest.MonkeyPatch, sink: Sink, more: dict[str, Any]
) -> None:
    prompts = [f"def f{i}(" for i in range(6)]
    engines, begin = together(*prompts, **more)
    whole = begin(start(engines))
    monkeypatch.setattr(Tokenizer, "decode", once(Tokenizer.decode, 50))
    engines, begin = together(*prompts, **more)
    service = start(engines)
    answers = begin(service)
    assert [str(answer.error) for answer in answers if answer.error] == [FAILED]
    for answer, right in zip(answers, whole, strict=True):
        assert ids(answer) == ids(right)[: len(ids(answer))]
        assert answer.error or ids(answer) == ids(right)
    assert faults(service, sink) == {"request": 1}


@pytest.mark.parametrize("name", ["verified", "drafted", "begin"])
def test_a_fault_of_the_loop_ends_its_request_alone(
    start: Start, monkeypatch: pytest.MonkeyPatch, sink: Sink, name: str
) -> None:
    prompts = [f"def f{i}(" for i in range(6)]
    engines, begin = together(*prompts)
    whole = begin(start(engines))
    monkeypatch.setattr(SequenceLoop, name, once(getattr(SequenceLoop, name), 10))
    engines, begin = together(*prompts)
    service = start(engines)
    answers = begin(service)
    assert [str(answer.error) for answer in answers if answer.error] == [FAILED]
    for answer, right in zip(answers, whole, strict=True):
        assert ids(answer) == ids(right)[: len(ids(answer))]
        assert answer.error or ids(answer) == ids(right)
    assert faults(service, sink) == {"request": 1}


def test_a_fault_as_a_sequence_begins_ends_its_request_alone(
    start: Start, monkeypatch: pytest.MonkeyPatch, sink: Sink
) -> None:
    """Its place is free again: there is one, and the next in line gets it."""
    monkeypatch.setattr(Steady, "enter", once(Steady.enter, 0))
    service = start(MockEngines(), running=1)
    first = ask(service, tensors("def add(")).wait()
    assert str(first.error) == FAILED
    assert ask(service, tensors("def add(")).wait().error is None
    assert faults(service, sink) == {"request": 1}


def test_a_fault_of_the_rust_tokenizer_is_an_error_like_any_other(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It raises what is no Exception, which no thread expects."""

    class PanicException(BaseException):
        pass

    class Panics:
        def decode(self, *_: object, **__: object) -> str:
            raise PanicException("index out of bounds")

        encode_batch_fast = decode

    tokenizer._tokenizer = Panics()  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="index out of bounds"):
        tokenizer.decode([1])
    with pytest.raises(RuntimeError, match="index out of bounds"):
        tokenizer.encode("a")


# --- what is only measured --------------------------------------------------------------------------
MEASURED = [(AdaptiveDraftLength, "rounds_ended"), (Acceptance, "observe"), (CallTimes, "timed")]


@pytest.mark.parametrize(("where", "name"), MEASURED)
def test_what_is_only_measured_costs_no_request(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    sink: Sink,
    where: type,
    name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("a fault")

    monkeypatch.setattr(where, name, broken)
    service = start(MockEngines(), policy=AdaptiveDraftLength(1, 4, separate_devices=False))
    answers = [ask(service, tensors(f"def f{i}(", max_tokens=LENGTH)) for i in range(4)]
    assert [answer.wait().error for answer in answers] == [None] * 4
    assert faults(service, sink).keys() == {"none"}
    assert "a fault" in caplog.text


# --- faults of what all sequences share -------------------------------------------------------------
SHARED = [
    (Rounds, "call_ended"),
    (Rounds, "start"),
    (Rounds, "sent"),
    (Rounds, "release"),
    (Rounds, "end"),
    (InFlightBatches, "begin"),
    (Schedule, "finish"),
    (Waves, "start"),
    (SequenceQueue, "end"),
    (Runner, "_settle"),
    (Runner, "_submit"),
]


@pytest.mark.parametrize(("kind", "name"), SHARED)
@pytest.mark.parametrize("after", [0, 7])
def test_a_fault_of_what_all_share_ends_all_requests_and_the_model_goes_on(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    sink: Sink,
    caplog: pytest.LogCaptureFixture,
    kind: type,
    name: str,
    after: int,
) -> None:
    prompts, other = [f"def f{i}(" for i in range(6)], start(MockEngines())
    right = [ids(ask(other, tensors(prompt, max_tokens=LENGTH)).wait()) for prompt in prompts]
    other.close()  # else its watch may be who meets the fault
    monkeypatch.setattr(kind, name, once(getattr(kind, name), after))
    service = start(MockEngines(), running=4)
    for _ in range(2):
        answers = [ask(service, tensors(prompt, max_tokens=LENGTH)).wait() for prompt in prompts]
        answers += [answer.wait() for answer in [ask(service, tensors(p, max_tokens=LENGTH)) for p in prompts]]
        for answer, expected in zip(answers, 2 * right, strict=True):
            assert str(answer.error) == FAILED if answer.error else ids(answer) == expected
    assert all(answer.error is None for answer in answers), "the fault is over"
    assert faults(service, sink) == {"all": 1}
    assert "a fault" in caplog.text
    end = time.monotonic() + 30
    while service._runner.load() != (0, 0):  # who is answered leaves a moment later
        assert time.monotonic() < end, "nobody keeps a place"
        time.sleep(0.01)


def test_a_fault_that_the_watch_meets_counts_once(start: Start, monkeypatch: pytest.MonkeyPatch, sink: Sink) -> None:
    met, late = threading.Event(), Rounds.late

    def broken(rounds: Rounds, now: float) -> None:
        if not met.is_set():
            met.set()
            raise ValueError("a fault")
        late(rounds, now)

    monkeypatch.setattr(Rounds, "late", broken)
    service = start(MockEngines())
    assert met.wait(60)
    end = time.monotonic() + 30
    while service._runner.load() != (0, 0) or not faults(service, sink):
        assert time.monotonic() < end, "the fault is counted"
        time.sleep(0.01)
    time.sleep(0.1)  # the watch's thread goes on, and would count it once more
    assert faults(service, sink) == {"all": 1}
    assert ask(service, tensors("def add(")).wait().error is None


def test_the_engine_calls_of_what_was_given_up_are_stopped(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()

    def hang(role: str, call: MockCall) -> None:
        held.set()
        assert call.stopped.wait(60)
        raise EngineError("stopped")

    service = start(MockEngines(before=hang))
    answer = ask(service, tensors("def add("))
    assert held.wait(60)
    monkeypatch.setattr(Rounds, "late", once(Rounds.late, 0))
    assert str(answer.wait().error) == FAILED
    monkeypatch.undo()


def test_a_thread_that_ends_in_any_way_ends_no_request_silently(start: Start, sink: Sink) -> None:
    """By what is no Exception, too."""
    ends = iter([SystemExit()])

    def leave(role: str, call: MockCall) -> None:
        for error in ends:
            raise error

    service = start(MockEngines(before=leave))
    assert str(ask(service, tensors("def add(")).wait().error) == FAILED
    assert ask(service, tensors("def add(")).wait().error is None
    assert faults(service, sink) == {"all": 1}


def test_a_request_that_cannot_be_added_hears_of_it_once(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rounds, "admit", once(Rounds.admit, 0))
    service = start(MockEngines())
    assert str(ask(service, tensors("def add(", "for i in")).wait().error) == FAILED
    assert ask(service, tensors("def add(")).wait().error is None


def test_a_call_that_cannot_be_stopped_costs_no_other_request(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    def wait(role: str, call: MockCall) -> None:
        go.wait(60)

    monkeypatch.setattr(MockCall, "stop", lambda call: 1 // 0)
    service = start(MockEngines(before=wait), max_rows=1)
    gone, other = ask(service, tensors("def add(")), ask(service, tensors("for i in"))
    gone.gone = True
    gone.wait()
    go.set()
    assert other.wait().error is None
