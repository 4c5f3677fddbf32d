"""The session on a fake engine: what ends a request, and what the engine hears of it."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from support.serving.answer import Answer
from tandem_serving import metrics as m
from tandem_serving import threads
from tandem_serving.checkpoint import ModelLimits
from tandem_serving.engine.health import IDLE
from tandem_serving.errors import EngineError
from tandem_serving.llmapi import session
from tandem_serving.llmapi.chunks import LlmApiChunk, RequestMetrics, SequenceOutput
from tandem_serving.llmapi.request import Codec, Features, LlmApiParser, LlmApiPrompt, LlmApiRequest
from tandem_serving.llmapi.session import LlmApiOptions, LlmApiService
from tandem_serving.llmapi.statistics import EngineState
from tandem_serving.requests.active import ActiveRequest, ActiveRequests

FAILS, BREAKS, PANICS, DROPPED, HANGS = b"fails", b"breaks", b"panics", b"dropped", b"hangs"
FAILED = "the server failed at this request; its log says why"
CODEC = Codec(
    encode=lambda text: list(text.encode()),
    decode=lambda ids: bytes(ids).decode(errors="replace"),
    longest_token=1,
    special=lambda words: {},
)


class Panic(BaseException):
    """As libraries in Rust raise it."""


@dataclass
class FakeCall:
    """Two tokens a response, until max_tokens; the prompt asks for faults."""

    prompt: LlmApiPrompt
    aborted: bool = False
    over: bool = False

    def abort(self) -> None:
        self.aborted = not self.over

    async def __aiter__(self) -> AsyncIterator[SequenceOutput]:
        if bytes(self.prompt.ids) == FAILS:
            raise EngineError("no blocks")
        if bytes(self.prompt.ids) == BREAKS:
            raise ZeroDivisionError
        if bytes(self.prompt.ids) == PANICS:
            raise Panic("out of bounds")
        if bytes(self.prompt.ids) == DROPPED:
            raise asyncio.CancelledError
        length = self.prompt.sampling["max_tokens"]
        for end in range(2, length + 2, 2):
            await asyncio.sleep(3600 if bytes(self.prompt.ids) == HANGS else 0.001)
            self.over = end >= length
            yield SequenceOutput(
                [ord("a")] * min(end, length), "length" if self.over else "", metrics=RequestMetrics(2.0)
            )


@dataclass
class FakeEngine:
    codec: Codec = CODEC
    calls: list[FakeCall] = field(default_factory=list)
    alive: bool = True
    closed: bool = False
    told: list[Callable[[], EngineState]] = field(default_factory=list)

    def start(self, prompt: LlmApiPrompt, request: LlmApiRequest) -> FakeCall:
        self.calls.append(FakeCall(prompt))
        return self.calls[-1]

    async def states(self) -> AsyncIterator[EngineState]:
        for state in self.told:
            yield state()

    def healthy(self) -> bool:
        return self.alive

    def close(self) -> None:
        self.closed = True


class Sink:
    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def add(self, family: m.Family, labels: m.Labels, value: float) -> None:
        name = " ".join((family.name, *(value for key, value in labels if key.endswith("_type"))))
        self.values[name] = self.values.get(name, 0) + value

    def set(self, family: m.Family, value: float) -> None:
        self.values[family.name] = value


@dataclass
class Site:
    session: LlmApiService
    engine: FakeEngine
    sink: Sink
    ended: threading.Event

    def ask(self, *prompts: bytes, max_tokens: int = 6, request_id: str = "", **more: Any) -> Answer[LlmApiChunk]:
        answer = Answer[LlmApiChunk]()
        tensors: dict[str, Any] = {
            "text_input": np.array(prompts, np.object_),
            "sampling_param_max_tokens": np.array([max_tokens], np.int32),
            "sampling_param_exclude_input_from_output": np.array([True]),
            **more,
        }
        self.session.submit(tensors, request_id, answer)
        return answer


Start = Callable[..., Site]


@pytest.fixture
def start() -> Iterator[Start]:
    sites: list[Site] = []

    def make(
        timeout: float = 60, running: int = 2, waiting: int = 2, speculates: bool = True, canary: float = IDLE
    ) -> Site:
        engine, sink, ended = FakeEngine(), Sink(), threading.Event()
        parser = LlmApiParser(CODEC, ModelLimits(10_000, 256), Features())
        session = LlmApiService(engine, parser, LlmApiOptions(timeout, running, waiting, speculates, canary))
        session.guard(end=ended.set)
        threading.Thread(target=session.watch, args=(sink,), daemon=True).start()
        sites.append(Site(session, engine, sink, ended))
        return sites[-1]

    yield make
    for site in sites:
        site.session.close()
        assert site.engine.closed


def eventually(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


STREAM: dict[str, Any] = {"streaming": np.array([True])}


def test_deltas_add_up_to_the_one_answer(start: Start) -> None:
    site = start()
    streamed, whole = site.ask(b"x", **STREAM).wait(), site.ask(b"x").wait()
    assert [chunk.text for chunk in streamed.chunks] == ["aa", "aa", "aa"]
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
        site.session.cancel("")
        site.session.cancel("request-2")
        site.session.cancel("request-1")
    elif ending == "the engine dies":
        site.engine.alive = False
    elif ending == "the server closes":
        site.session.close()
        site.session.close = lambda: None  # type: ignore[method-assign]
    error = answer.wait().error
    assert error and (error.code, message in str(error)) == (code, True)
    eventually(lambda: all(call.aborted for call in site.engine.calls), "aborted")


def test_a_client_who_leaves_before_the_first_step_costs_the_engine_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = ActiveRequests.add

    def add_and_look(jobs: ActiveRequests[LlmApiChunk], job: ActiveRequest[LlmApiChunk]) -> None:
        add(jobs, job)
        time.sleep(0.5)  # the watch looks in between, and finds the client gone

    monkeypatch.setattr(ActiveRequests, "add", add_and_look)
    site, answer = start(), Answer[LlmApiChunk](gone=True)
    site.session.submit({"text_input": np.array([HANGS], np.object_)}, "", answer)
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
    values = {labels[0][1]: n for (family, labels), n in site.session.metrics._values.items() if family is m.FAULTS}
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

    site.session._loop.call_soon_threadsafe(leave)
    assert ended.wait(30)
    site.session._thread = threads.start("llmapi", site.session._loop.run_forever)  # for the session's end


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
    site.session.submit(tensors, "", answer)
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
        site.session.submit({"text_input": np.array([HANGS], np.object_)}, "", answer)
        assert answer is other or answer.wait().error
    assert "the request took longer than 0.3 s" in str(other.wait().error)
    assert "a client could not be told that its request is over" in caplog.text


def test_a_full_queue_refuses_and_takes_requests_again(start: Start) -> None:
    site = start(running=2, waiting=1)
    hanging = site.ask(HANGS, HANGS, request_id="hanging")
    refused = site.ask(b"x", b"y").wait()
    assert refused.error and refused.error.code == "UNAVAILABLE"
    assert "2 sequences are running or waiting and the limit is 3: no room for 2 more" in str(refused.error)
    counted = Sink()
    site.session.metrics.flush(counted)
    assert counted.values[m.REFUSED.name] == 2
    site.session.cancel("hanging")
    hanging.wait()
    eventually(lambda: site.ask(b"x", b"y").wait().error is None, "room again")


def test_a_dead_engine_takes_nothing(start: Start) -> None:
    site = start()
    site.engine.alive = False
    eventually(lambda: not site.session.healthy, "noticed")
    error = site.ask(b"x").wait().error
    assert error and error.code == "UNAVAILABLE"
    assert site.engine.calls == []
    assert site.ended.wait(60), "and does not stay for ever"


def test_an_engine_whose_health_cannot_be_told_is_dead(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    site = start()
    site.engine.healthy = lambda: 1 / 0 > 0  # type: ignore[method-assign]
    eventually(lambda: not site.session.healthy, "noticed")
    assert "ZeroDivisionError" in caplog.text


CUDA = "the engine failed at this request: CUDA runtime error: an illegal memory access was encountered"


def break_down(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, hangs: bool = False) -> None:
    """As after a CUDA error: all sequences fail, or none gets on, and the engine calls itself well."""

    async def respond(call: FakeCall) -> AsyncIterator[SequenceOutput]:
        if hangs:
            await asyncio.sleep(3600)
        raise EngineError(CUDA)
        yield

    monkeypatch.setattr(FakeCall, "__aiter__", respond)


@pytest.mark.parametrize("hangs", [False, True], ids=["fails", "hangs"])
@pytest.mark.parametrize("idle", [False, True], ids=["requests", "idle"])
def test_an_engine_that_breaks_ends_the_process(
    start: Start, monkeypatch: pytest.MonkeyPatch, hangs: bool, idle: bool
) -> None:
    monkeypatch.setattr("tandem_serving.engine.health.AGAIN", 0.02)
    monkeypatch.setattr("tandem_serving.engine.health.SILENCE", 1.0)
    site = start(canary=0.1)
    site.ask(b"x").wait()
    eventually(lambda: len(site.engine.calls) > 1, "the canary asks")
    time.sleep(0.2)
    break_down(site.engine, monkeypatch, hangs)
    asked = None if idle else site.ask(b"x")
    assert site.ended.wait(60)
    error = site.ask(b"x").wait().error
    assert error and error.code == "UNAVAILABLE"
    assert ("the engine hangs" if hangs else CUDA) in str(error)
    if asked:
        assert asked.wait().error, "what was in flight has ended"
    assert site.engine.alive, "it says nothing itself"


def test_one_prompt_that_always_fails_ends_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandem_serving.engine.health.AGAIN", 0.02)
    site = start(canary=0.1)
    site.ask(b"x").wait()
    for _ in range(50):
        assert str(site.ask(FAILS).wait().error) == "no blocks"
    assert site.ask(b"x").wait().error is None
    assert site.session.healthy
    assert not site.ended.is_set()


def test_the_canary_is_no_request_in_metrics(start: Start) -> None:
    site = start(canary=0.05)
    site.ask(b"xyz").wait()
    eventually(lambda: len(site.engine.calls) > 5, "canaries")
    assert all(call.prompt.sampling["max_tokens"] == 1 for call in site.engine.calls[1:])
    eventually(lambda: site.sink.values.get("tandem_prompt_tokens_total") == 3, "counted")
    assert site.sink.values["tandem_generation_tokens_total"] == 6
    assert site.sink.values.get("tandem_requests_running", 0) == 0


@pytest.mark.parametrize("speculates", [True, False])
def test_what_is_counted(start: Start, speculates: bool) -> None:
    site = start(speculates=speculates)
    site.ask(b"xyz", **STREAM).wait()
    expected = {
        "tandem_prompt_tokens_total": 3,
        "tandem_generation_tokens_total": 6,
        "tandem_time_to_first_token_seconds_count": 1,
        "tandem_inter_token_latency_seconds_count": 4,
        "tandem_request_latency_seconds_count": 1,
    }
    if speculates:
        expected |= {
            "tandem_spec_decode_num_drafts_total": 3,
            "tandem_spec_decode_num_accepted_tokens_total": 3,
        }
    eventually(lambda: expected.items() <= site.sink.values.items(), f"{expected} in {site.sink.values}")
    assert any("spec_decode" in name for name in site.sink.values) == speculates
    assert "tandem_spec_decode_num_draft_tokens_total" not in site.sink.values, "the engine does not tell"


def test_the_best_of_several_has_no_first_token(start: Start) -> None:
    site = start()
    site.ask(b"xyz", sampling_param_best_of=np.array([2], np.int32)).wait()
    eventually(lambda: site.sink.values.get("tandem_request_latency_seconds_count") == 1, "counted")
    assert "tandem_time_to_first_token_seconds_count" not in site.sink.values


def test_load_is_counted_by_what_the_engine_runs_at_once(start: Start) -> None:
    site = start(running=2, waiting=2)
    site.ask(HANGS, HANGS, HANGS)
    load = ("tandem_requests_running", "tandem_requests_waiting")
    eventually(lambda: [site.sink.values.get(name) for name in load] == [2, 1], "two run, one waits")


ACTIVE, BLOCKS, USED = (
    f"nv_trt_llm_{name}"
    for name in ("request_metrics active", "kv_cache_block_metrics max", "kv_cache_block_metrics used")
)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "STATE_SECONDS", 0.01)


@pytest.mark.usefixtures("soon")
def test_the_engine_s_state_is_told_while_sequences_run(start: Start) -> None:
    site = start()
    site.engine.told = [
        lambda: EngineState(requests=9, blocks=40, used=30),
        lambda: EngineState(requests=2, blocks=40, used=12),
    ]
    time.sleep(1)
    assert ACTIVE not in site.sink.values, "nobody asked for anything yet"
    site.ask(HANGS, request_id="x")

    def told() -> list[float | None]:
        return [site.sink.values.get(name) for name in (ACTIVE, BLOCKS, USED)]

    eventually(lambda: told() == [2, 40, 12], "the latest iteration's")
    site.session.cancel("x")
    eventually(lambda: told() == [0, 40, 0], "nothing is held any more")


@pytest.mark.usefixtures("soon")
def test_statistics_that_fail_cost_nothing_else(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    site = start()
    site.engine.told = [lambda: 1 / 0]  # type: ignore[list-item, return-value]
    site.ask(HANGS)
    eventually(lambda: "the engine's state cannot be told any more" in caplog.text, "noticed")
    assert site.ask(b"x").wait().chunks[-1].finish_reason == "length"
    assert site.session.healthy
    site.engine.told = [lambda: EngineState(requests=2, blocks=40, used=12)]
    eventually(lambda: site.sink.values.get(ACTIVE) == 2, "it is told again once it can be")
