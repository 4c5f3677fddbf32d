"""The service on a fake engine: what ends a request, and what the engine hears of it."""

import threading
import time
from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest

from support.serving.answer import Answer
from support.serving.llmapi import (
    BREAKS,
    DROPPED,
    FAILED,
    FAILS,
    HANGS,
    PANICS,
    STREAM,
    FakeCall,
    Sink,
    Site,
    Start,
    eventually,
)
from tandem_serving import metrics as m
from tandem_serving import threads
from tandem_serving.engine import health
from tandem_serving.engine.health import PROMPT_TOKENS, EngineHealth
from tandem_serving.errors import ServingError
from tandem_serving.llmapi import tasks
from tandem_serving.llmapi.chunks import LlmApiChunk
from tandem_serving.requests.active import ActiveRequest, ActiveRequests


def test_deltas_add_up_to_the_one_answer(start: Start) -> None:
    site = start()
    streamed, whole = site.ask(b"x", **STREAM).wait(), site.ask(b"x").wait()
    assert "".join(chunk.text for chunk in streamed.chunks) == "aaaaaa"
    assert [chunk.text for chunk in whole.chunks] == ["aaaaaa"]
    assert not any(call.aborted for call in site.engine.calls)


def test_prompts_of_a_request_end_it_together(start: Start) -> None:
    answer = start().ask(b"x", b"yy", max_tokens=4).wait()
    assert sorted((chunk.batch_index, chunk.finish_reason) for chunk in answer.chunks) == [
        (0, "length"),
        (1, "length"),
    ]


def test_a_stop_word_ends_the_engine_s_call(start: Start) -> None:
    site = start()
    answer = site.ask(b"x", max_tokens=5000, sampling_param_stop=np.array([b"aaa"], np.object_)).wait()
    assert (answer.chunks[-1].text, answer.chunks[-1].finish_reason) == ("", "stop")
    eventually(lambda: site.engine.calls[0].aborted, "aborted")


ENDINGS = [
    ("the client leaves", "CANCELLED", "the client cancelled the request"),
    ("the client stops it", "CANCELLED", "the request was stopped"),
    ("time over", "UNAVAILABLE", "the request took longer than 0.3 s and was ended"),
    ("the engine dies", "UNAVAILABLE", "the engine has stopped: its log says why"),
    ("the server closes", "CANCELLED", "the server is shutting down"),
]


@pytest.mark.parametrize(("ending", "code", "message"), ENDINGS, ids=[row[0] for row in ENDINGS])
def test_whatever_ends_a_request_ends_its_calls(start: Start, ending: str, code: str, message: str) -> None:
    site = start(timeout=0.3 if ending == "time over" else 60)
    answer = site.ask(HANGS, HANGS, request_id="request-1")
    eventually(lambda: len(site.engine.calls) == 2, "started")
    if ending == "the client leaves":
        answer.gone = True
    elif ending == "the client stops it":
        site.service.cancel("")
        site.service.cancel("request-2")
        site.service.cancel("request-1")
    elif ending == "the engine dies":
        site.engine.alive = False
    elif ending == "the server closes":
        site.service.close()
        site.service.close = lambda: None  # type: ignore[method-assign]
    error = answer.wait().error
    assert error and (error.code, message in str(error)) == (code, True)
    eventually(lambda: all(call.aborted for call in site.engine.calls), "aborted")


WORK: list[tuple[bytes, dict[str, Any], float, str]] = [
    # prompt, what is asked for, steps of the engine until its first answer, why
    (b"x", {}, 1 + 1 / PROMPT_TOKENS, "one token"),
    (b"x" * 640, {}, 1 + 640 / PROMPT_TOKENS, "a long prompt"),
    (
        b"x",
        {"sampling_param_best_of": np.array([2])},
        50 + 1 / PROMPT_TOKENS,
        "the best of several is all it answers",
    ),
]


@pytest.mark.parametrize(("prompt", "asked", "steps", "why"), WORK, ids=[why for *_, why in WORK])
def test_the_engine_is_judged_by_what_it_has_to_do(
    start: Start, monkeypatch: pytest.MonkeyPatch, prompt: bytes, asked: dict[str, Any], steps: float, why: str
) -> None:
    told: list[tuple[float, Hashable]] = []
    started = EngineHealth.started

    def keep(judge: EngineHealth, call: Hashable, work: float, kind: Hashable, now: float) -> None:
        told.append((work, kind))
        started(judge, call, work, kind, now)

    monkeypatch.setattr(EngineHealth, "started", keep)
    site = start(canary=0)
    others: list[dict[str, Any]] = [{}, {"sampling_param_top_k": np.array([5])}]
    for more in others:
        assert site.ask(prompt, max_tokens=50, **asked, **more).wait().error is None
    assert [work for work, _ in told] == pytest.approx([steps, steps]), why
    assert len({kind for _, kind in told}) == 2, "sampling may be code that is compiled"


def test_a_sequence_whose_answer_is_lost_ends_by_itself(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine answers those that came later."""
    monkeypatch.setattr(health, "NEW", 0.5)
    site = start(running=3)
    lost = site.ask(HANGS)
    eventually(lambda: site.ask(b"x").wait().error is None and lost.over.is_set(), "its client is told")
    assert lost.error and (lost.error.code, str(lost.error)) == ("UNAVAILABLE", tasks.LOST)
    eventually(lambda: site.engine.calls[0].aborted, "aborted")
    assert site.service.healthy


def test_a_client_who_leaves_before_the_first_step_costs_the_engine_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = ActiveRequests.add

    def add_and_look(jobs: ActiveRequests[LlmApiChunk], job: ActiveRequest[LlmApiChunk]) -> None:
        add(jobs, job)
        time.sleep(0.5)  # the watch looks in between, and finds the client gone

    monkeypatch.setattr(ActiveRequests, "add", add_and_look)
    site, answer = start(), Answer[LlmApiChunk](gone=True)
    site.service.submit({"text_input": np.array([HANGS], np.object_)}, "", answer)
    answer.wait()
    assert all(call.aborted for call in site.engine.calls)


@pytest.mark.parametrize(
    ("prompt", "message"), [(FAILS, "no blocks"), (BREAKS, FAILED), (PANICS, FAILED), (DROPPED, FAILED)]
)
def test_a_sequence_that_fails_ends_its_request_alone(start: Start, prompt: bytes, message: str) -> None:
    site = start()
    other = site.ask(b"x", max_tokens=50)
    assert str(site.ask(HANGS, prompt).wait().error) == message
    sibling = next(call for call in site.engine.calls if bytes(call.prompt.ids) == HANGS)
    eventually(lambda: sibling.aborted, "the request's other sequence is aborted")
    assert other.wait().chunks[-1].text == "a" * 50
    assert faults(site) == ({} if prompt == FAILS else {"request": 1})


def faults(site: Site) -> dict[str, float]:
    """Faults of the model's own, by what they ended."""
    values = {labels[0][1]: n for (family, labels), n in site.service.metrics._values.items() if family is m.FAULTS}
    return {ended: number for ended, number in values.items() if number}


def test_what_ends_a_call_or_counts_it_costs_no_answer(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeCall, "abort", lambda call: 1 // 0)
    monkeypatch.setattr(m.Metrics, "observe", lambda *_, **__: 1 // 0)
    site = start()
    assert site.ask(b"x").wait().error is None
    eventually(lambda: faults(site) == {"none": 1}, "what could not be counted is not, either")


def test_a_loop_that_breaks_off_ends_the_process(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """All sequences are on it."""
    ended = threading.Event()
    monkeypatch.setattr(threads, "end_process", ended.set)
    site = start()

    def leave() -> None:
        raise SystemExit

    site.service._tasks.loop.call_soon_threadsafe(leave)
    assert ended.wait(60)
    site.service._tasks._thread = threads.start("llmapi", site.service._tasks.loop.run_forever)  # for `close`


@pytest.mark.parametrize(
    ("stream", "which"), [(True, "one of many"), (False, "the only one, which would have been the last")]
)
def test_a_response_that_cannot_be_sent_ends_its_request(
    start: Start, caplog: pytest.LogCaptureFixture, stream: bool, which: str
) -> None:
    site = start()
    answer = Answer[LlmApiChunk](broken=True)
    tensors = {
        "text_input": np.array([b"x"], np.object_),
        "sampling_param_max_tokens": np.array([5000 if stream else 6], np.int32),
        "streaming": np.array([stream]),
    }
    site.service.submit(tensors, "", answer)
    assert str(answer.wait().error) == "the server failed at this request; its log says why", which
    eventually(lambda: site.engine.calls[0].aborted or site.engine.calls[0].over, "aborted, if it was not over")
    assert "OSError" in caplog.text


def test_a_client_who_cannot_be_told_costs_no_other_s_deadline(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    site = start(timeout=0.3, running=3)
    lost, gone, other = (
        Answer[LlmApiChunk](lost=True),
        Answer[LlmApiChunk](lost=True, gone=True),
        Answer[LlmApiChunk](),
    )
    for answer in (lost, gone, other):
        site.service.submit({"text_input": np.array([HANGS], np.object_)}, "", answer)
        assert answer is other or answer.wait().error
    assert "the request took longer than 0.3 s" in str(other.wait().error)
    assert "a client could not be sent the end of its request" in caplog.text


def test_a_full_queue_refuses_and_takes_requests_again(start: Start) -> None:
    site = start(running=2, waiting=1)
    hanging = site.ask(HANGS, HANGS, request_id="hanging")
    refused = site.ask(b"x", b"y").wait()
    assert refused.error and refused.error.code == "UNAVAILABLE"
    assert "2 of 3 places to run or wait in are taken: no room for 2 more" in str(refused.error)
    counted = Sink()
    site.service.metrics.flush(counted)
    assert counted.values[m.REFUSED.name] == 2
    site.service.cancel("hanging")
    hanging.wait()
    eventually(lambda: site.ask(b"x", b"y").wait().error is None, "room again")


class Stuck(Answer[LlmApiChunk]):
    """A client to whom nothing can be sent until it is let go: Triton does not take it."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.let_go = threading.Event(), threading.Event()

    def send(self, chunk: LlmApiChunk, last: bool) -> None:
        self._wait()
        super().send(chunk, last)

    def fail(self, error: ServingError) -> None:
        self._wait()
        super().fail(error)

    def _wait(self) -> None:
        self.reached.set()
        assert self.let_go.wait(60)


def test_what_waits_for_a_client_is_one_response(start: Start) -> None:
    site, stuck = start(), Stuck()
    tensors = {"text_input": np.array([b"x"], np.object_), "sampling_param_max_tokens": np.array([200], np.int32)}
    site.service.submit({**tensors, **STREAM}, "", stuck)
    assert stuck.reached.wait(60)
    eventually(lambda: site.engine.calls[0].over, "all of it is generated")
    stuck.let_go.set()
    first, rest = stuck.wait().chunks
    assert (first.text + rest.text, rest.finish_reason) == ("a" * 200, "length")
    assert rest.summary and rest.summary.output_tokens == 200


def test_a_client_that_takes_no_error_does_not_hold_up_the_engine_s_answers(start: Start) -> None:
    site, stuck = start(), Stuck()
    tensors = {"text_input": np.array([FAILS], np.object_), "sampling_param_max_tokens": np.array([6], np.int32)}
    site.service.submit(tensors, "", stuck)
    assert stuck.reached.wait(60)
    site.ask(b"x")
    eventually(lambda: len(site.engine.calls) == 2 and site.engine.calls[1].over, "the other one is generated")
    stuck.let_go.set()
    stuck.wait()
