"""The service with mock engines: many requests on real threads, no Triton."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tandem_serving import metrics as m
from tandem_serving.chunks import Chunk
from tandem_serving.delivery import Delivery
from tandem_serving.errors import CancelledError, EngineError
from tandem_serving.generation import Binding, Generation
from tandem_serving.inputs import Array
from tandem_serving.jobs import LINGER_SECONDS, Job, Jobs
from tandem_serving.loop import Output, Role
from tandem_serving.policy import Fixed
from tandem_serving.request import Limits, Parser
from tandem_serving.runner import Engine
from tandem_serving.schedule import Turn
from tandem_serving.service import Options, Service
from tandem_serving.tokenizer import Tokenizer
from unit.serving.answer import Answer as AnyAnswer
from unit.serving.mock_engine import MockEngine, Model, counting, wrong_every


class Answer(AnyAnswer[Chunk]):
    """With the chunks of one prompt."""

    def of(self, index: int) -> list[Chunk]:
        return [chunk for chunk in self.chunks if chunk.batch_index == index]


OFTEN_RIGHT = wrong_every(3)


@dataclass
class MockModel:
    """An engine of the runner: rows of a call are answered together, by a mock engine each."""

    role: Role
    model: Model
    before: Callable[[str, "MockCall"], object]
    calls: list["MockCall"] = field(default_factory=list)

    def call(self, turns: Sequence[Turn[Generation]]) -> "MockCall":
        self.calls.append(MockCall(self, turns))
        return self.calls[-1]


@dataclass
class MockCall:
    engine: MockModel
    turns: Sequence[Turn[Generation]]
    stopped: threading.Event = field(default_factory=threading.Event)

    def __iter__(self) -> Iterator[list[tuple[int, Output]]]:
        self.engine.before(self.engine.role, self)
        engine = MockEngine(self.engine.model, end_ids=())
        yield [(row, engine.run(turn.call)) for row, turn in enumerate(self.turns)]

    def stop(self) -> None:
        self.stopped.set()


class MockEngines:
    """Both engines; `before` runs at each call."""

    def __init__(
        self,
        target_model: Model = counting,
        draft_model: Model = OFTEN_RIGHT,
        before: Callable[[str, MockCall], object] = lambda role, call: None,
    ) -> None:
        self.target = MockModel("target", target_model, before)
        self.draft = MockModel("draft", draft_model, before)


NO_TENSORS: dict[Role, Binding] = {"target": Binding({}), "draft": Binding({})}


@dataclass
class Sink:
    values: dict[str, float] = field(default_factory=dict)

    def add(self, family: m.Family, labels: m.Labels, value: float) -> None:
        self.values[family.name] = self.values.get(family.name, 0) + value

    def set(self, family: m.Family, value: float) -> None:
        self.values[family.name] = value


Start = Callable[..., Service]


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def start(tokenizer: Tokenizer, sink: Sink) -> Iterator[Start]:
    """Starts services, with their watchdogs, and closes them."""
    services: list[Service] = []

    def make(engines: MockEngines, **options: Any) -> Service:
        parser = Parser(tokenizer, Limits(128, 4, 300))
        settings = Options(**{"request_timeout": 10, "draft_timeout": 5, **options})
        both: dict[Role, Engine] = {"target": engines.target, "draft": engines.draft}
        policy = Fixed(4, separate_devices=True)
        services.append(Service(parser, tokenizer, both, lambda prompt, request: NO_TENSORS, policy, settings))
        threading.Thread(target=services[-1].watch, args=(sink,), daemon=True).start()
        return services[-1]

    yield make
    for service in services:
        service.close()


def tensors(*prompts: str, max_tokens: int = 20, **more: Array) -> dict[str, Array]:
    rows = len(prompts)
    return {
        "text_input": np.array([[p.encode()] for p in prompts], np.object_),
        "max_tokens": np.full((rows, 1), max_tokens, np.int32),
        "exclude_input_in_output": np.ones((rows, 1), np.bool_),
        **more,
    }


STREAM: dict[str, Any] = {"stream": np.array([[True]])}
ALONE_ROWS: dict[str, Any] = {"num_draft_tokens": np.zeros((2, 1), np.int32)}
ALONE: dict[str, Any] = {"num_draft_tokens": np.array([[0]], np.int32)}


def ask(service: Service, inputs: dict[str, Array], request_id: str = "") -> Answer:
    answer = Answer()
    service.submit(inputs, request_id, answer)
    return answer


def text(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


def test_streamed_unary_and_target_alone_agree(start: Start) -> None:
    service = start(MockEngines())
    streamed = ask(service, tensors("def add(", **STREAM)).wait().chunks
    (unary,) = ask(service, tensors("def add(")).wait().chunks
    (alone,) = ask(service, tensors("def add(", **ALONE)).wait().chunks
    assert len(streamed) > 3
    assert text(streamed) == unary.text == alone.text
    assert [token for chunk in streamed for token in chunk.ids] == unary.ids == alone.ids
    assert unary.summary == streamed[-1].summary
    assert alone.summary is not None
    assert alone.summary.draft_tokens == 0
    assert {chunk.finish_reason for chunk in streamed[:-1]} == {""}
    assert streamed[-1].finish_reason == unary.finish_reason == alone.finish_reason == "length"


def test_counts_add_up(start: Start) -> None:
    chunks = ask(start(MockEngines()), tensors("def add(", max_tokens=31, **STREAM)).wait().chunks
    summary = chunks[-1].summary
    assert summary is not None
    assert summary.accepted_draft_tokens == sum(chunk.accepted for chunk in chunks) > 0
    assert summary.output_tokens == sum(len(chunk.ids) for chunk in chunks) == 31
    assert summary.acceptance_rate == summary.accepted_draft_tokens / summary.draft_tokens
    assert sum(chunk.draft_length for chunk in chunks) > 0


def test_prompt_is_repeated_unless_excluded(start: Start) -> None:
    service = start(MockEngines())
    inputs = tensors("def add(")
    (without,) = ask(service, inputs).wait().chunks
    del inputs["exclude_input_in_output"]
    (repeated,) = ask(service, inputs).wait().chunks
    assert repeated.text == "def add(" + without.text
    streamed = ask(service, inputs | STREAM).wait().chunks
    assert text(streamed) == without.text, "a stream holds new text alone"


def test_each_prompt_ends_by_itself(start: Start) -> None:
    service = start(MockEngines())
    prompts = ("a", "def add(", "class Tree")
    inputs = tensors(*prompts) | {"max_tokens": np.array([[1], [9], [30]], np.int32), "stream": np.ones((3, 1), bool)}
    answer = ask(service, inputs).wait()
    for i, (prompt, length) in enumerate(zip(prompts, (1, 9, 30), strict=True)):
        (single,) = ask(service, tensors(prompt, max_tokens=length)).wait().chunks
        assert text(answer.of(i)) == single.text
        assert [chunk.finish_reason for chunk in answer.of(i)][-1] == "length"
    assert answer.chunks[-1].finish_reason, "the request ends with its last prompt"


def test_stop_word_ends_the_text_before_it(start: Start) -> None:
    service = start(MockEngines())
    (whole,) = ask(service, tensors("def add(", max_tokens=40)).wait().chunks
    for place in range(1, len(whole.text) - 2, 5):
        word = whole.text[place : place + 2]
        stop: dict[str, Any] = {"stop_words": np.array([[word.encode(), b"never there"]], np.object_)}
        for how in (STREAM, ALONE, ALONE | STREAM, {}):
            answer = ask(service, tensors("def add(", max_tokens=40, **stop, **how)).wait()
            assert text(answer.chunks) == whole.text[: whole.text.index(word)]
            assert answer.chunks[-1].finish_reason == "stop"
            log_probs = [chunk.log_probs for chunk in answer.chunks if chunk.log_probs is not None]
            assert np.concatenate(log_probs).tolist() == [-0.5 * t for chunk in answer.chunks for t in chunk.ids]


def test_steps_stay_in_order_whatever_thread_is_held_up(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may hold up the thread that took a step while others run its sequence's next round."""
    put, rng = Delivery.put_wave, random.Random(1)

    def late(delivery: Delivery, steps: Any) -> None:
        time.sleep(rng.random() * 0.01)
        put(delivery, steps)

    prompts = [f"def f{i}(" for i in range(12)]
    service = start(MockEngines(), running=12)
    expected = [ask(service, tensors(prompt)).wait().chunks[0].ids for prompt in prompts]
    monkeypatch.setattr(Delivery, "put_wave", late)
    answers = [
        ask(service, tensors(prompt, **STREAM, num_draft_tokens=np.array([[i % 4]], np.int32)))
        for i, prompt in enumerate(prompts)
    ]
    assert [[token for chunk in answer.wait().chunks for token in chunk.ids] for answer in answers] == expected


def test_many_at_once_give_the_same(start: Start) -> None:
    service = start(MockEngines(), running=64)
    prompts = [f"def f{i}(" for i in range(64)]
    expected = [ask(service, tensors(prompt)).wait().chunks[0].text for prompt in prompts]
    answers = [ask(service, tensors(prompt, **STREAM)) for prompt in prompts]
    assert [text(answer.wait().chunks) for answer in answers] == expected


def test_a_bad_prompt_refuses_its_request_before_any_work(start: Start) -> None:
    engines = MockEngines()
    answer = ask(start(engines), tensors("def add(", "")).wait()
    assert answer.error is not None
    assert answer.error.code == "INVALID_ARG"
    assert not engines.target.calls + engines.draft.calls


SEED: dict[str, Any] = {"seed": np.array([[7]], np.uint64)}


def seeds(engines: MockEngines) -> list[int | None]:
    return [turn.call.seed for call in engines.target.calls for turn in call.turns]


def test_engines_that_start_at_the_seed_get_one_for_each_call(start: Start) -> None:
    """TensorRT-LLM takes 0 where there is none: each token would be drawn by the same number."""
    engines, again, other = MockEngines(), MockEngines(), MockEngines()
    for each, more in ((engines, {}), (again, {}), (other, SEED)):
        ask(start(each, mix_seed=True), tensors("def add(", **more)).wait()
    assert len({*seeds(engines), *seeds(again), *seeds(other)}) == sum(map(len, map(seeds, (engines, again, other))))
    assert None not in seeds(engines)


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_a_seed_s_calls_do_not_depend_on_how_long_they_take(start: Start, seconds: float) -> None:
    engines = MockEngines(before=lambda role, call: time.sleep(seconds))
    ask(start(engines, mix_seed=True), tensors("def add(", max_tokens=40, **SEED, **STREAM, **ALONE)).wait()
    assert [turn.call.output_len for call in engines.target.calls for turn in call.turns] == [1, 2, 4, 8, 16, 9]


def test_full_queue_is_refused(start: Start) -> None:
    held = threading.Event()
    service = start(MockEngines(before=lambda role, call: held.wait(10)), running=2, waiting=1)
    running = [ask(service, tensors("a")) for _ in range(3)]
    refused = ask(service, tensors("b")).wait()
    assert refused.error is not None
    assert (refused.error.code, "no room for 1 more" in str(refused.error)) == ("UNAVAILABLE", True)
    held.set()
    assert all(answer.wait().error is None for answer in running)
    assert ask(service, tensors("b")).wait().error is None


def test_slow_draft_is_given_up_and_counted(start: Start, sink: Sink) -> None:
    held = threading.Event()
    engines = MockEngines(before=lambda role, call: role == "draft" and held.wait(10))
    service = start(engines, draft_timeout=0.05)
    (chunk,) = ask(service, tensors("def add(")).wait().chunks
    held.set()
    (alone,) = ask(service, tensors("def add(", **ALONE)).wait().chunks
    assert chunk.ids == alone.ids
    service.metrics.flush(sink)
    assert sink.values[m.DRAFT_FAILURES.name] == 1


def until_stopped(role: str, call: MockCall) -> None:
    assert call.stopped.wait(10), "the engine call was never stopped"
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
    end = time.monotonic() + 10
    while not reached():
        assert time.monotonic() < end, f"not within 10 s: {what}"
        time.sleep(0.005)


def test_a_row_of_a_shared_call_whose_client_leaves_frees_its_place_at_once(start: Start, sink: Sink) -> None:
    """It cannot be stopped by itself: its answer is not used, and the sequence is in no further call."""
    calls: list[MockCall] = []
    first, shared = threading.Event(), threading.Event()

    def hold(role: str, call: MockCall) -> None:
        calls.append(call)
        assert (shared if len(call.turns) > 1 else first).wait(10)

    service = start(MockEngines(before=hold), running=3, waiting=1)
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
    assert leaver in [turn.sequence.job.responder for turn in calls[1].turns]
    assert leaver not in [turn.sequence.job.responder for call in calls[2:] for turn in call.turns]


def test_a_request_that_is_over_is_never_asked_about() -> None:
    answer = Answer()
    job = Job(1, "", answer, deadline=0)
    job.send(Chunk(0, finish_reason="length"))
    answer.gone = True
    assert not job.abandoned()


def test_a_client_that_is_gone_gets_no_last_response_at_once() -> None:
    """With a response still being written, it would crash Triton's gRPC frontend."""
    answer, jobs = Answer(gone=True), Jobs[Chunk](timeout=1e9)
    job = jobs.make(1, "", answer)
    jobs.add(job)
    job.send(Chunk(0))
    job.send(Chunk(0, finish_reason="length"))
    assert jobs.watch(now=100.0), "its engine calls can be stopped at once"
    assert not jobs.watch(now=100.0 + 0.9 * LINGER_SECONDS)
    assert not answer.over.is_set()
    jobs.watch(now=100.0 + LINGER_SECONDS)
    assert isinstance(answer.error, CancelledError)
    assert len(answer.chunks) == 1


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


def test_metrics_count_rounds_tokens_and_positions(start: Start, sink: Sink) -> None:
    service = start(MockEngines(draft_model=counting))
    ask(service, tensors("def add(", max_tokens=10)).wait()
    service.metrics.flush(sink)
    rounds = {name: value for name, value in sink.values.items() if "spec_decode" in name}
    assert rounds == {
        m.DRAFTS.name: 2,
        m.DRAFT_TOKENS.name: 8,
        m.ACCEPTED.name: 8,
        m.ACCEPTED_PER_POS.name: 8,
        m.DRAFT_FAILURES.name: 0,
    }
    assert sink.values[m.GENERATION_TOKENS.name] == 10


def marked(call: MockCall) -> bool:
    """Whether a row of the call is of the prompt `MARKED`."""
    return any(turn.call.ids[: len(mark)].tolist() == mark for turn in call.turns for mark in MARKS)


MARKED = "class Tree"
MARKS: list[list[int]] = []


@pytest.fixture(autouse=True)
def marks(tokenizer: Tokenizer) -> Iterator[None]:
    MARKS.append(tokenizer.encode(MARKED))
    yield
    MARKS.clear()


GOOD = [f"def f{i}(" for i in range(12)]


def test_sequences_share_engine_calls(start: Start) -> None:
    engines = MockEngines(before=lambda role, call: time.sleep(0.005))
    service = start(engines)
    for answer in [ask(service, tensors(prompt, max_tokens=40)) for prompt in GOOD]:
        answer.wait()
    rows = [len(call.turns) for call in engines.draft.calls]
    assert max(rows) == len(GOOD) / 2, "two cohorts"
    assert sum(rows) / len(rows) > len(GOOD) / 3, "most calls are of a whole cohort"


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


def test_a_draft_that_hangs_for_one_sequence_is_not_waited_for(start: Start, sink: Sink) -> None:
    held = threading.Event()
    service = start(
        MockEngines(before=lambda role, call: role == "draft" and marked(call) and held.wait(10)), draft_timeout=0.1
    )
    answers = [ask(service, tensors(prompt)) for prompt in [*GOOD, MARKED]]
    assert all(answer.wait().error is None for answer in answers)
    held.set()
    service.metrics.flush(sink)
    assert sink.values[m.DRAFT_FAILURES.name] <= 1, "only the one that hung by itself is given up for good"


def test_a_draft_engine_that_is_down_is_left_alone_for_a_while(start: Start) -> None:
    def down(role: str, call: MockCall) -> None:
        if role == "draft":
            raise EngineError("draft engine: down")

    engines = MockEngines(before=down)
    service = start(engines)
    for prompt in GOOD:
        assert ask(service, tensors(prompt)).wait().error is None
    assert len(engines.draft.calls) < len(GOOD)


@pytest.mark.parametrize(
    ("share", "asked", "drafts", "probed", "reason"),
    [
        (1.0, {}, False, True, "a request that leaves the length to the service may be a probe"),
        (1.0, {"num_draft_tokens": np.array([[4]], np.int32)}, True, False, "one that asks for a length gets it"),
        (0.0, {}, True, False, "without a share there are no probes"),
    ],
)
def test_probes_run_without_speculation_and_are_counted_apart(
    start: Start, sink: Sink, share: float, asked: dict[str, Array], drafts: bool, probed: bool, reason: str
) -> None:
    service = start(MockEngines(draft_model=counting), probe_share=share)
    plain = ask(start(MockEngines(draft_model=counting)), tensors("def add(", max_tokens=10)).wait()
    answer = ask(service, tensors("def add(", max_tokens=10, **asked, **STREAM)).wait()
    service.metrics.flush(sink)
    assert text(answer.chunks) == text(plain.chunks)
    assert (sink.values[m.DRAFTS.name] > 0) is drafts, reason
    # The first call of the target alone gives one token: the time to the first token is not between tokens.
    assert sink.values.get("tandem_probe_inter_token_latency_seconds_count", 0) == (9 if probed else 0), reason
    assert sink.values.get(m.PROBES.name) == (None if share == 0 else int(probed)), reason
