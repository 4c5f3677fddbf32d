"""The service: how requests end before their time, and what becomes of the others."""

import gc
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.serving.bls import ALONE, ALONE_ROWS, Answer, MockCall, MockEngines, Sink, Start, ask, tensors
from tandem_serving import metrics as m
from tandem_serving.bls.calls import NewTokens, Output
from tandem_serving.bls.chunks import BlsChunk
from tandem_serving.bls.in_flight import MOST_LOST
from tandem_serving.bls.loop import SequenceLoop
from tandem_serving.bls.sequence import BlsSequence
from tandem_serving.errors import CancelledError, EngineError, ServingError
from tandem_serving.requests.active import LINGER_SECONDS, ActiveRequest, ActiveRequests
from tandem_serving.requests.tokenizer import Tokenizer

LONG = 60
"""Seconds: what is not let go, or stopped, lasts so long."""


def test_full_queue_is_refused(start: Start, sink: Sink) -> None:
    held = threading.Event()
    service = start(MockEngines(before=lambda role, call: held.wait(LONG)), running=2, waiting=1)
    running = [ask(service, tensors("a")) for _ in range(3)]
    refused = ask(service, tensors("b")).wait()
    assert refused.error is not None
    assert (refused.error.code, "no room for 1 more" in str(refused.error)) == ("UNAVAILABLE", True)
    service.metrics.flush(sink)
    assert sink.labelled[m.REFUSED.name, m.QUEUE_FULL] == 1
    held.set()
    assert all(answer.wait().error is None for answer in running)
    assert ask(service, tensors("b")).wait().error is None


IN_LINE = 2.0
"""More than a busy machine holds up a thread that has something to do meanwhile."""


def test_who_waited_too_long_is_refused_and_those_behind_are_served(start: Start, sink: Sink) -> None:
    held = threading.Event()
    service = start(MockEngines(before=lambda role, call: held.wait(LONG)), running=1, queue_timeout=IN_LINE)
    runs = ask(service, tensors("a"))
    began = time.monotonic()
    alone, several = ask(service, tensors("b")), ask(service, tensors("c", "d", "e"))
    for answer in (alone.wait(), several.wait()):
        assert answer.error is not None
        assert answer.error.code == "UNAVAILABLE"
        said = re.fullmatch(
            r"all places were taken for (.*) s and requests wait 2 s at most \(queueTimeoutSeconds\): "
            "send the request again to another replica or later",
            str(answer.error),
        )
        assert said, answer.error
        assert IN_LINE <= float(said[1]) <= time.monotonic() - began + 0.05
    eventually(lambda: sink.values.get(m.WAITING.name) == 0, "the line is empty")
    behind = ask(service, tensors("f"))
    held.set()
    assert runs.wait().error is None
    assert behind.wait().error is None
    service.metrics.flush(sink)
    assert sink.labelled[m.REFUSED.name, m.QUEUE_TIMEOUT] == 1 + 3
    assert sink.labelled[m.REFUSED.name, m.QUEUE_FULL] == 0


def test_a_request_that_has_a_place_for_one_of_its_prompts_is_not_refused(start: Start) -> None:
    held = threading.Event()
    service = start(MockEngines(before=lambda role, call: held.wait(LONG)), running=1, queue_timeout=IN_LINE)
    answer, other = ask(service, tensors("a", "b", "c")), ask(service, tensors("d"))
    assert other.wait().error is not None, "the time in line is over"
    held.set()
    assert answer.wait().error is None
    assert {chunk.batch_index for chunk in answer.chunks} == {0, 1, 2}


def test_slow_draft_is_given_up_and_counted(start: Start, sink: Sink) -> None:
    held = threading.Event()
    engines = MockEngines(before=lambda role, call: role == "draft" and held.wait(LONG))
    service = start(engines, draft_timeout=0.05)
    (chunk,) = ask(service, tensors("def add(")).wait().chunks
    held.set()
    (alone,) = ask(service, tensors("def add(", **ALONE)).wait().chunks
    assert chunk.ids == alone.ids
    service.metrics.flush(sink)
    assert sink.values[m.DRAFT_FAILURES.name] == 1


def test_a_server_that_closes_stops_a_draft_engine_that_warms_up(start: Start) -> None:
    """Its call goes on when the sequence has left it."""
    engines = MockEngines()
    engines.draft.before = until_stopped
    service = start(engines, draft_timeout=0.05)
    assert ask(service, tensors("def add(")).wait().error is None
    [call] = engines.draft.calls
    assert not call.stopped.is_set()
    service.close()
    assert call.stopped.is_set()


def until_stopped(role: str, call: MockCall) -> None:
    assert call.stopped.wait(LONG), "the engine call was never stopped"
    raise EngineError("stopped")


ENDINGS = ["client gone", "stop request", "time over", "server closes"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_request_can_be_ended_from_outside(start: Start, ending: str) -> None:
    engines = MockEngines(before=until_stopped)
    service = start(engines, request_timeout=0.3 if ending == "time over" else 60)
    answer = ask(service, tensors("def add(", "for", max_tokens=100, **ALONE_ROWS), "request-1")
    if ending == "client gone":
        answer.gone = True
    elif ending == "stop request":
        service.cancel("request-2")
        service.cancel("request-1")
    elif ending == "server closes":
        service.close()
    answer.wait()
    assert answer.error is not None
    assert answer.error.code == ("UNAVAILABLE" if ending == "time over" else "CANCELLED")


def eventually(reached: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LONG
    while not reached():
        assert time.monotonic() < end, f"not within {LONG} s: {what}"
        time.sleep(0.005)


def test_a_row_of_a_shared_call_whose_client_leaves_frees_its_place_at_once(start: Start, sink: Sink) -> None:
    """It cannot be stopped by itself: its answer is not used, and the sequence is in no further call."""
    calls: list[MockCall] = []
    first, shared = threading.Event(), threading.Event()

    def hold(role: str, call: MockCall) -> None:
        calls.append(call)
        assert (shared if len(call.rows) > 1 else first).wait(LONG)

    engines = MockEngines()
    service = start(engines, running=3, waiting=1)
    assert ask(service, tensors("a")).wait().error is None, "the draft engine has answered"
    engines.draft.before = engines.target.before = hold
    others = [ask(service, tensors("a"))]
    eventually(lambda: len(calls) == 1, "the first call runs, by itself")
    leaver = ask(service, tensors("b"))
    others += [ask(service, tensors("c")), ask(service, tensors("d"))]
    first.set()
    eventually(lambda: len(calls) == 2, "the other two share a call")
    eventually(lambda: sink.values.get(m.WAITING.name) == 1, "the fourth waits")
    leaver.gone = True
    eventually(lambda: sink.values[m.WAITING.name] == 0, "the fourth has a place")
    assert not calls[1].stopped.is_set(), "the others need it"
    shared.set()
    assert all(answer.wait().error is None for answer in others)
    assert leaver.chunks == []
    assert leaver in [row.sequence.request.responder for row in calls[1].rows]
    assert leaver not in [row.sequence.request.responder for call in calls[2:] for row in call.rows]


def test_a_request_that_is_over_is_never_asked_about() -> None:
    answer = Answer()
    active = ActiveRequest(1, "", answer, deadline=0)
    active.send(BlsChunk(0, "", [], finish_reason="length"))
    answer.gone = True
    assert not active.abandoned()


def test_a_stop_without_an_id_ends_nobody_s_request() -> None:
    active_requests, answer = ActiveRequests[BlsChunk](timeout=1e9), Answer()
    active_requests.add(active_requests.make(1, "", answer))
    active_requests.cancel("")
    assert not answer.over.is_set()


def test_a_request_that_is_over_is_forgotten() -> None:
    """Its tensors are in Triton's shared memory for as long as anybody knows it."""
    active_requests = ActiveRequests[BlsChunk](timeout=1e9)
    active = active_requests.make(1, "", Answer())
    active_requests.add(active)
    active.send(BlsChunk(0, "", [], finish_reason="length"))
    kept = weakref.ref(active)
    del active
    assert not active_requests.watch(now=0.0)
    gc.collect()
    assert kept() is None


def test_a_response_that_was_made_in_time_is_not_sent_after_the_end() -> None:
    answer = Answer()
    active = ActiveRequest(2, "", answer, deadline=0)
    active.fail(CancelledError("stopped"))
    active.send(BlsChunk(0, "a", [1]))
    assert answer.chunks == []


def test_a_client_that_is_gone_gets_no_last_response_at_once() -> None:
    """With a response still being written, it would crash Triton's gRPC frontend."""
    answer, active_requests = Answer(gone=True), ActiveRequests[BlsChunk](timeout=1e9)
    active = active_requests.make(1, "", answer)
    active_requests.add(active)
    active.send(BlsChunk(0, "", []))
    active.send(BlsChunk(0, "", [], finish_reason="length"))
    assert active.over, "its engine calls can be stopped at once"
    active_requests.watch(now=100.0)
    assert not active_requests.watch(now=100.0 + 0.9 * LINGER_SECONDS)
    assert not answer.over.is_set()
    active_requests.watch(now=100.0 + LINGER_SECONDS)
    assert isinstance(answer.error, CancelledError)
    assert len(answer.chunks) == 1


def test_a_response_that_cannot_be_sent_ends_its_request_alone(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Its client would wait for ever."""
    service, broken = start(MockEngines()), Answer(broken=True)
    service.submit(tensors("def add("), "", broken)
    assert str(broken.wait().error) == "the server failed at this request; its log says why"
    assert "a response could not be sent" in caplog.text
    assert ask(service, tensors("def add(")).wait().error is None


def test_a_broken_engine_still_ends_the_request(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    def broken(role: str, call: MockCall) -> None:
        raise ZeroDivisionError

    service = start(MockEngines(before=broken))
    answer = ask(service, tensors("def add(", **ALONE)).wait()
    service.close()
    assert str(answer.error) == "the server failed at this request; its log says why"
    assert "ZeroDivisionError" in caplog.text


def test_a_fault_in_reading_a_request_is_its_error_alone(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Triton would send the trace to the client."""
    service = start(MockEngines())
    other = ask(service, tensors("a"))
    monkeypatch.setattr(Tokenizer, "encode", lambda self, text: 1 // 0)
    answer = ask(service, tensors("def add(")).wait()
    assert str(answer.error) == "the server failed at this request; its log says why"
    assert "ZeroDivisionError" in caplog.text
    assert other.wait().error is None


def marked(call: MockCall) -> bool:
    """Whether a row of the call is of the prompt `MARKED`."""
    return any(row.call.ids[: len(mark)].tolist() == mark for row in call.rows for mark in MARKS)


MARKED = "class Tree"
MARKS: list[list[int]] = []


@pytest.fixture(autouse=True)
def marks(tokenizer: Tokenizer) -> Iterator[None]:
    MARKS.append(tokenizer.encode(MARKED))
    yield
    MARKS.clear()


GOOD = [f"def f{i}(" for i in range(12)]


def test_sequences_share_engine_calls(start: Start) -> None:
    all_asked = threading.Event()

    def work(role: str, call: MockCall) -> None:
        assert all_asked.wait(LONG)
        time.sleep(0.005)

    engines = MockEngines(before=work)
    service = start(engines)
    answers = [ask(service, tensors(prompt, max_tokens=40)) for prompt in GOOD]
    all_asked.set()
    for answer in answers:
        answer.wait()
    rows = [len(call.rows) for call in engines.draft.calls]
    assert max(rows) == len(GOOD) / 2, "two cohorts"
    assert max(rows[len(rows) // 2 :]) > 1, "to the end: of a whole cohort, or what of it was there on a busy machine"


@pytest.mark.parametrize("role", ["draft", "target"])
def test_a_sequence_that_fails_fails_alone(start: Start, role: str) -> None:
    def refuse(called: str, call: MockCall) -> None:
        time.sleep(0.002)
        if called == role and marked(call):
            raise EngineError(f"{role} engine: not this one")

    service = start(MockEngines(before=refuse))
    expected = [ask(service, tensors(prompt)).wait().chunks[0].text for prompt in GOOD]
    answers = [ask(service, tensors(prompt)) for prompt in [*GOOD[:6], MARKED, *GOOD[6:]]]
    bad = answers.pop(6).wait()
    assert [answer.wait().chunks[0].text for answer in answers] == expected
    if role == "target":
        assert str(bad.error) == "target engine: not this one"
    else:
        (alone,) = ask(service, tensors(MARKED, **ALONE)).wait().chunks
        assert bad.chunks[0].ids == alone.ids, "it goes on with the target alone"


def test_a_request_that_failed_at_one_prompt_keeps_no_place_for_another(start: Start) -> None:
    """The line would stand still until the next request comes."""
    all_asked = threading.Event()

    def refuse(role: str, call: MockCall) -> None:
        assert all_asked.wait(LONG)
        if marked(call):
            raise EngineError("target engine: not this one")

    service = start(MockEngines(before=refuse), running=1, request_timeout=60)
    bad, behind = ask(service, tensors(MARKED, "a")), ask(service, tensors("b"))
    all_asked.set()
    assert str(bad.wait().error) == "target engine: not this one"
    assert behind.wait().error is None


def test_a_draft_that_hangs_for_one_sequence_is_not_waited_for(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    held = threading.Event()
    service = start(
        MockEngines(before=lambda role, call: role == "draft" and marked(call) and held.wait(LONG)), draft_timeout=1.5
    )
    answers = [ask(service, tensors(prompt)) for prompt in [*GOOD, MARKED]]
    assert all(answer.wait().error is None for answer in answers)
    held.set()
    alone = caplog.text.count("a sequence goes on with the target alone")
    assert alone <= 1, "only the one that hung by itself is given up for good"


def test_a_draft_engine_that_hangs_for_good_leaves_threads_for_the_target(start: Start) -> None:
    held = threading.Event()
    engines = MockEngines(before=lambda role, call: role == "draft" and held.wait(LONG))
    service = start(engines, running=1, draft_timeout=0.02)
    answers = [ask(service, tensors(prompt)).wait() for prompt in GOOD[:4]]
    held.set()
    assert [answer.error for answer in answers] == [None] * 4


def test_a_draft_engine_that_is_down_is_left_alone_for_a_while(start: Start, sink: Sink) -> None:
    """All who go without are counted, once: also those who were not let ask."""

    def down(role: str, call: MockCall) -> None:
        if role == "draft":
            raise EngineError("draft engine: down")

    engines = MockEngines(before=down)
    service = start(engines)
    for prompt in GOOD:
        assert ask(service, tensors(prompt)).wait().error is None
    assert len(engines.draft.calls) < len(GOOD)
    service.metrics.flush(sink)
    assert sink.values[m.DRAFT_FAILURES.name] == len(GOOD)


class Stuck(Answer):
    """A client to whom nothing can be sent: Triton does not take it."""

    def fail(self, error: ServingError) -> None:
        self.reached.set()
        assert self.let_go.wait(LONG)
        super().fail(error)

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.let_go = threading.Event(), threading.Event()


@pytest.mark.parametrize("fault", ["of the target", "of ours"])
def test_a_client_that_takes_no_error_holds_up_nobody_else(
    start: Start, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def refuse(role: str, call: MockCall) -> None:
        if fault == "of the target" and marked(call):
            raise EngineError("target engine: not this one")

    verified = SequenceLoop.verified

    def broken(loop: SequenceLoop, output: Output) -> NewTokens:
        if fault == "of ours" and loop is marked_loops[0]:
            raise ValueError("a fault")
        return verified(loop, output)

    monkeypatch.setattr(SequenceLoop, "verified", broken)
    marked_loops: list[SequenceLoop] = []
    service = start(MockEngines(before=refuse))
    make = service._sequence

    def kept(*how: Any) -> BlsSequence:
        made = make(*how)
        marked_loops.append(made.loop)
        return made

    monkeypatch.setattr(service, "_sequence", kept)
    stuck = Stuck()
    service.submit(tensors(MARKED, **ALONE), "", stuck)
    assert stuck.reached.wait(LONG)
    assert ask(service, tensors("def add(")).wait().error is None
    assert not stuck.over.is_set()
    stuck.let_go.set()
    assert stuck.wait().error is not None


def shared_calls(engines: MockEngines) -> list[int]:
    """Rows of each of the target's calls."""
    return [len(call.rows) for call in engines.target.calls]


@pytest.mark.parametrize("role", ["draft", "target"])
def test_sequences_share_calls_again_after_one_failure(start: Start, role: str) -> None:
    """Each sequence is in a call that fails; those that stayed by themselves would make no shared call any more."""
    failed: set[BlsSequence] = set()
    last_failed = 0
    go = threading.Event()

    def fail_once(called: str, call: MockCall) -> None:
        nonlocal last_failed
        assert go.wait(LONG)
        sequences = {row.sequence for row in call.rows}
        if called == role and len(sequences) > 1 and not sequences <= failed:
            failed.update(sequences)
            last_failed = len(engines.target.calls)
            raise EngineError(f"{role} engine: a hiccup")

    engines = MockEngines(before=fail_once)
    service = start(engines)
    answers = [ask(service, tensors(prompt, max_tokens=100)) for prompt in GOOD]
    go.set()
    assert [answer.wait().error for answer in answers] == [None] * len(GOOD)
    assert failed
    assert max(shared_calls(engines)[last_failed + 1 :]) > 1


def test_engines_that_fail_all_shared_calls_are_asked_for_few(start: Start) -> None:
    """Each sequence goes by itself for twice as long after each failure."""
    go = threading.Event()

    def refuse(called: str, call: MockCall) -> None:
        assert go.wait(LONG)
        if called == "target" and len(call.rows) > 1:
            raise EngineError("target engine: one row at a time")

    engines = MockEngines(before=refuse)
    service = start(engines)
    answers = [ask(service, tensors(prompt, max_tokens=100)) for prompt in GOOD]
    go.set()
    assert [answer.wait().error for answer in answers] == [None] * len(GOOD)
    rows = shared_calls(engines)
    assert rows.count(1) > 100
    failed_rows = sum(count for count in rows if count > 1)
    assert failed_rows <= 6 * len(GOOD), "1 + 2 + 4 + 8 + 16 rounds by itself between 6 shared ones"


def test_calls_that_never_return_leave_a_thread_for_whoever_runs(start: Start) -> None:
    """Others stay in the queue, whose time-out sends them to another replica."""
    held = threading.Event()
    engines = MockEngines(before=lambda role, call: held.wait(LONG))
    service = start(engines, running=1, queue_timeout=IN_LINE)
    for number in range(1, 1 + MOST_LOST + 1):
        leaver = ask(service, tensors("def add(", **ALONE))
        eventually(lambda number=number: len(engines.target.calls) == number, "a thread for each")  # type: ignore[misc]
        leaver.gone = True
        eventually(lambda: service._runner.load() == (0, 0), "its place is free")
    waits = ask(service, tensors("def add(")).wait()
    assert "all places were taken" in str(waits.error)
    assert len(engines.target.calls) == MOST_LOST + 1
    held.set()
    assert ask(service, tensors("def add(")).wait().error is None
