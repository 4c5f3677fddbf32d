"""The service: one fault, one lost answer or one late call costs nobody else anything, and is counted."""

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from support.serving.bls import ALONE, Answer, MockCall, MockEngines, MockModel, Sink, Start, ask, tensors
from tandem_serving import metrics as m
from tandem_serving.bls import in_flight
from tandem_serving.bls.batches import Row
from tandem_serving.bls.calls import NewTokens, Output
from tandem_serving.bls.chunks import BlsChunk, BlsWriter
from tandem_serving.bls.request import BlsPrompt
from tandem_serving.bls.sequence import BlsSequence
from tandem_serving.errors import FAILED, Survived
from tandem_serving.requests.active import ActiveRequests
from tandem_serving.requests.text import Detokenizer, StopText, TextStream
from tandem_serving.requests.tokenizer import Tokenizer

LONG = 100
"""Seconds: what is not let go lasts so long."""
MARKED = "class Tree"
GOOD = [f"def f{i}(" for i in range(8)]


class Unknown(Answer):
    """A client of whom Triton cannot tell whether he is gone."""

    def cancelled(self) -> bool:
        raise RuntimeError("Failed to increase the shared memory pool size")


def eventually(reached: Callable[[], object]) -> None:
    end = time.monotonic() + LONG / 2
    while not reached():
        assert time.monotonic() < end, f"not within {LONG / 2} s"
        time.sleep(0.01)


def test_a_client_who_cannot_be_asked_about_is_alone_with_it(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    held = threading.Event()
    service = start(MockEngines(before=lambda role, call: held.wait(LONG)), request_timeout=1)
    unknown = Unknown()
    service.submit(tensors("a"), "", unknown)
    time.sleep(0.3)
    other = ask(service, tensors("b"))
    for answer in (unknown, other):
        assert "took longer than 1 s" in str(answer.wait().error)
    held.set()
    assert caplog.text.count("it is not known whether a client is gone") == 1, "logged once, not ten times a second"
    assert "Failed to increase the shared memory pool size" in caplog.text


def test_metrics_that_cannot_be_told_end_no_watch(
    start: Start, sink: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no shared memory")

    monkeypatch.setattr(sink, "add", broken)
    service = start(MockEngines(before=lambda role, call: call.stopped.wait(LONG)))
    eventually(lambda: "metrics failed" in caplog.text)
    answer = ask(service, tensors("a"))
    answer.gone = True
    assert answer.wait().error is not None, "clients that leave are still seen"


def test_a_step_that_cannot_be_counted_is_sent(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(m.Metrics, "observe", lambda *_, **__: 1 // 0)
    assert ask(start(MockEngines()), tensors("def add(")).wait().error is None
    assert "a step could not be counted" in caplog.text


def test_a_fault_behind_the_reading_of_a_request_is_its_error_alone(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would leave Triton's `execute`: the client gets the trace, and the call's other requests never begin."""
    service = start(MockEngines())
    monkeypatch.setattr(Detokenizer, "__init__", lambda *_: 1 // 0)
    assert str(ask(service, tensors("def add(")).wait().error) == FAILED
    monkeypatch.undo()
    assert "ZeroDivisionError" in caplog.text
    assert ask(service, tensors("def add(")).wait().error is None


def test_faults_are_logged_once_a_minute(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    survived, now = Survived("the work failed"), 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for now in (100.0, 130.0, 161.0):
        with survived:
            raise ValueError(f"at {now:g}")
    assert re.findall(r"at \d+", caplog.text) == ["at 100", "at 161"]
    with pytest.raises(KeyboardInterrupt), survived:
        raise KeyboardInterrupt


# --- calls that never return ------------------------------------------------------------------------
def has(call: MockCall, tokenizer: Tokenizer, prompt: str) -> bool:
    mark = tokenizer.encode(prompt)
    return any(row.call.ids[: len(mark)].tolist() == mark for row in call.rows)


def test_a_target_call_that_hangs_for_one_sequence_is_not_waited_for_by_the_others(
    start: Start, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(in_flight, "TARGET_LATE", 0.5)
    monkeypatch.setattr(in_flight, "FIRST_LATE", 0.5)
    held, go, shared = threading.Event(), threading.Event(), list[MockCall]()

    def hang(role: str, call: MockCall) -> None:
        assert go.wait(LONG)
        if role == "target" and has(call, tokenizer, MARKED):
            shared.extend([call] if len(call.rows) > 1 else [])
            held.wait(LONG)

    service = start(MockEngines(before=hang))
    answers = [ask(service, tensors(prompt)) for prompt in [*GOOD, MARKED]]
    go.set()
    assert [answer.wait().error for answer in answers[:-1]] == [None] * len(GOOD)
    assert shared, "they shared a call"
    assert all(call.stopped.is_set() for call in shared)
    assert "target engine: no answer within" in caplog.text
    expected = [ask(service, tensors(prompt)).wait().chunks[0].ids for prompt in GOOD]
    assert [answer.chunks[0].ids for answer in answers[:-1]] == expected
    assert re.fullmatch(
        r"target engine: no answer within .* s, nor when it was asked before: "
        "send the request again, or to another replica",
        str(answers[-1].wait().error),
    )
    held.set()


def test_when_shared_calls_are_never_answered_sequences_share_none(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where an engine loses a row now and then."""
    monkeypatch.setattr(in_flight, "FIRST_LATE", 0.3)
    monkeypatch.setattr(in_flight, "TARGET_LATE", 0.3)
    held, go = threading.Event(), threading.Event()

    def hang(role: str, call: MockCall) -> None:
        assert go.wait(LONG)
        if role == "target" and len(call.rows) > 1:
            held.wait(LONG)

    engines = MockEngines(before=hang)
    service = start(engines)
    for _ in range(4):
        go.clear()
        answers = [ask(service, tensors(prompt)) for prompt in GOOD]
        go.set()
        assert [answer.wait().error for answer in answers] == [None] * len(GOOD)
    assert sum(len(call.rows) > 1 for call in engines.target.calls) == in_flight.MOST_LOST_SHARED
    held.set()


def test_a_call_that_a_stop_overtook_is_stopped_again(start: Start) -> None:
    class OnItsWay(MockCall):
        """The engine has it half a second after its start; what stopped it before that ended nothing."""

        def __iter__(self) -> Iterator[list[tuple[int, Output]]]:
            time.sleep(0.5)
            self.stopped.clear()
            ended.append(self.stopped.wait(LONG))
            yield from super().__iter__()

    class Model(MockModel):
        def call(self, rows: Sequence[Row[BlsSequence]]) -> MockCall:
            return OnItsWay(self, rows)

    ended: list[bool] = []
    engines = MockEngines()
    engines.target = Model("target", engines.target.model, engines.target.before)
    answer = ask(start(engines), tensors("def add(", **ALONE))
    answer.gone = True
    answer.wait()
    eventually(lambda: ended)
    assert ended == [True]


# --- what is counted --------------------------------------------------------------------------------
def test_all_rows_of_a_late_draft_are_counted(start: Start, sink: Sink) -> None:
    held, go = threading.Event(), threading.Event()

    def hang(role: str, call: MockCall) -> None:
        assert go.wait(LONG)
        if role == "draft" and len(call.rows) > 1:
            held.wait(LONG)

    service = start(MockEngines(before=hang), draft_timeout=0.3)
    go.set()
    ask(service, tensors(GOOD[0])).wait()  # a draft engine that has answered once is asked by all
    go.clear()
    answers = [ask(service, tensors(prompt)) for prompt in GOOD]
    go.set()
    assert [answer.wait().error for answer in answers] == [None] * len(GOOD)
    held.set()
    service.metrics.flush(sink)
    assert sink.values[m.DRAFT_FAILURES.name] == len(GOOD)


def test_tokens_behind_a_stop_word_are_not_counted(start: Start, sink: Sink) -> None:
    service = start(MockEngines())
    whole = ask(service, tensors("def add(", max_tokens=40, **ALONE)).wait().chunks[0].text
    service.metrics.flush(sink)
    before = sink.values[m.GENERATION_TOKENS.name]
    word = np.array([[whole[30:32].encode()]], np.object_)
    (chunk,) = ask(service, tensors("def add(", max_tokens=40, stop_words=word, **ALONE)).wait().chunks
    assert chunk.finish_reason == "stop"
    assert chunk.summary is not None
    service.metrics.flush(sink)
    assert sink.values[m.GENERATION_TOKENS.name] - before == chunk.summary.output_tokens


def test_a_sequence_is_counted_once_however_late_its_steps_are_delivered(tokenizer: Tokenizer, sink: Sink) -> None:
    """With stop words steps are read before they are delivered: the last may have been when the first is."""
    ids = np.array(tokenizer.encode("def add("), np.int32)
    prompt = BlsPrompt(0, "def add(", ids, 40, 4, 0, None, frozenset(), ("zz",), echo=False, tensors={})
    text = TextStream(Detokenizer(tokenizer.decode, ids.tolist(), "def add("), StopText(("zz",)))
    metrics, active_requests = m.Metrics(), ActiveRequests[BlsChunk](60)
    loop: Any = None
    active, writer = active_requests.make(1, "", Answer()), BlsWriter(prompt, text, stream=True)
    sequence = BlsSequence(active, loop, writer, {}, metrics, draft_length=4)
    makes = [
        sequence.take(NewTokens(ids[:2].tolist())),
        sequence.take(NewTokens(ids[:3].tolist(), finish="length")),
    ]
    for make in makes:
        make()
    metrics.flush(sink)
    assert sink.values[m.PROMPT_TOKENS.name] == len(ids)
    assert sink.values[m.GENERATION_TOKENS.name] == 5
