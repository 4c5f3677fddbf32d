"""Sequences speculate in rounds: they share the passes of both models, and none waits for another's prompt."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from reference_engine.backend import Segment
from reference_engine.choice import Choice, Pick
from reference_engine.engine import EngineStopped
from reference_engine.request import Finish, Output, Request, Stats
from reference_engine.sampling import SamplingParams
from reference_engine.scheduler import Capacity, Scheduler
from reference_llm.llmapi.drafters import DraftModel
from reference_llm.llmapi.llm_args import DraftTargetConfig
from reference_llm.llmapi.speculation import Speculator, _Sequence
from unit.reference_engine import tiny_llama

K, SLOTS, SECONDS = 4, 8, 120
Logits = npt.NDArray[np.float32]


class Recorder:
    """A tiny Llama that keeps the segments of its passes. Each waits for `gate`, and calls `before` first."""

    def __init__(self) -> None:
        self.passes: list[list[Segment]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.before: Callable[[Sequence[Segment]], None] = lambda segments: None
        self._model = tiny_llama.model(slots=SLOTS)

    def forward(self, segments: Sequence[Segment]) -> Logits:
        assert self.gate.wait(SECONDS)
        self.before(segments)
        self.passes.append(list(segments))
        return self._model.forward(segments)

    def choose(self, logits: Logits, choices: Sequence[Choice]) -> Sequence[Pick]:
        return self._model.choose(logits, choices)

    def feeds(self, choices: Sequence[Choice]) -> bool:
        return self._model.feeds(choices)

    def copy_kv(self, source: int, destination: int, tokens: int) -> None:
        self._model.copy_kv(source, destination, tokens)

    def scheduler(self, max_num_tokens: int) -> Scheduler:
        return Scheduler(self, Capacity(max_num_tokens, SLOTS, 256), 97)

    def verified(self) -> list[int]:
        """How many sequences each pass verified, of those that verified any."""
        counts = [sum(each.logits > 1 for each in segments) for segments in self.passes]
        return [count for count in counts if count]


class Pair:
    """A target, and a draft of the same weights, which is always right: a round is K + 1 tokens."""

    def __init__(self, max_num_tokens: int = 64, most: int = SLOTS) -> None:
        self.target, self.draft = Recorder(), Recorder()
        drafter = DraftModel(self.draft.scheduler(64))
        config = DraftTargetConfig(max_draft_len=K, speculative_model="", max_concurrency=SLOTS)
        self.speculator = Speculator(self.target.scheduler(max_num_tokens), drafter, config, most)

    def start(self, prompt: int, tokens: int, length: int = 4) -> "Stream":
        return Stream(self.speculator, Request(prompt_of(prompt, length), tokens))


class Stream:
    """A sequence, its outputs so far, and `then`, which is called with each."""

    def __init__(self, speculator: Speculator, request: Request, then: Callable[[], None] = lambda: None) -> None:
        self.outputs: list[Output] = []
        self.then = then
        self._ended: queue.Queue[Output] = queue.Queue()
        self.cancel = speculator.submit(request, self._take)

    def _take(self, output: Output) -> None:
        self.outputs.append(output)
        self.then()
        if output.finish:
            self._ended.put(output)

    def end(self) -> Output:
        return self._ended.get(timeout=SECONDS)

    @property
    def tokens(self) -> list[int]:
        return [token for output in self.outputs for token in output.tokens]


def prompt_of(number: int, length: int = 4) -> npt.NDArray[np.int32]:
    return ((np.arange(length) * 7 + 11 * number) % 97).astype(np.int32)


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.speculator.close()


def test_eight_streams_take_the_passes_of_one(pair: Pair) -> None:
    """Each needs a pass for its prompt, and 20 rounds. The first is a round or two ahead of the others."""
    pair.target.gate.clear()
    streams = [pair.start(number, 1 + 20 * (K + 1)) for number in range(SLOTS)]
    pair.target.gate.set()
    for stream in streams:
        assert stream.end().finish == Finish.LENGTH
    assert sum(pair.target.verified()) == SLOTS * 20
    assert len(pair.target.passes) <= 1 + 20 + 4
    assert len(pair.draft.passes) <= 1 + K * (20 + 4) + SLOTS  # and the prompts


def test_a_later_stream_joins_the_next_round(pair: Pair) -> None:
    later: list[Stream] = []

    def on_third_output() -> None:
        if len(first.outputs) == 3:
            later.append(pair.start(1, 1 + 10 * (K + 1)))

    first = Stream(pair.speculator, Request(prompt_of(0), 1 + 20 * (K + 1)), on_third_output)
    first.end()
    later[0].end()
    alone = pair.target.verified().index(2)
    assert 2 <= alone <= 4, "two rounds before it comes, two at most until its prompt is read"
    assert pair.target.verified() == [1] * alone + [2] * 10 + [1] * (20 - alone - 10)


def test_nobody_waits_for_a_long_prompt() -> None:
    """Each of its pieces has what a verification leaves of a pass: 11 tokens of 16."""
    pair = Pair(max_num_tokens=16)
    later: list[Stream] = []

    def on_third_output() -> None:
        if len(first.outputs) == 3:
            later.append(pair.start(1, 1 + K + 1, length=200))

    first = Stream(pair.speculator, Request(prompt_of(0), 1 + 30 * (K + 1)), on_third_output)
    first.end()
    later[0].end()
    pair.speculator.close()
    pieces = [segments for segments in pair.target.passes if not segments[-1].logits]
    assert [segments[0].logits for segments in pieces] == [K + 1] * (200 // 11)
    assert pair.target.verified().count(2) == 1


def test_more_streams_than_slots_wait_their_turn(pair: Pair) -> None:
    streams = [pair.start(number, 40) for number in range(SLOTS + 3)]
    assert pair.speculator.statistics.running <= SLOTS
    for stream in streams:
        assert stream.end().finish == Finish.LENGTH
        assert len(stream.tokens) == 40
    assert max(pair.target.verified()) <= SLOTS


def test_with_a_spare_slot_no_text_that_goes_on_is_computed_again() -> None:
    """What is computed are the prompts, and not much more than what is generated."""
    pair = Pair(most=SLOTS - 1)
    streams = [pair.start(number, 15 + 9 * (number % 5), length=100) for number in range(3 * SLOTS)]
    for stream in streams:
        stream.end()
    made = sum(len(stream.tokens) for stream in streams)
    pair.speculator.close()
    computed = sum(len(segment.tokens) for segments in pair.target.passes for segment in segments)
    assert computed < len(streams) * 100 + 1.5 * made


def test_one_that_waits_is_cancelled_before_it_starts(pair: Pair) -> None:
    """All slots are taken by those that came before."""
    pair.target.gate.clear()
    streams = [pair.start(number, 40) for number in range(SLOTS + 1)]
    streams[-1].cancel()
    pair.target.gate.set()
    assert streams[-1].end().finish == Finish.CANCELLED
    assert [stream.end().finish for stream in streams[:-1]] == [Finish.LENGTH] * SLOTS
    assert not streams[-1].tokens


def test_a_prompt_that_is_read_can_be_cancelled() -> None:
    pair = Pair(max_num_tokens=16)
    pair.target.gate.clear()
    stream = pair.start(0, 40, length=200)
    stream.cancel()
    pair.target.gate.set()
    assert stream.end().finish == Finish.CANCELLED
    pair.speculator.close()
    assert len(pair.target.passes) <= 1


def test_a_sequence_holds_its_blocks_between_rounds(pair: Pair) -> None:
    """While drafts are made the target has nothing to do; its sequences are there, though."""
    stream = Stream(pair.speculator, Request(prompt_of(0, 70), 40), pair.draft.gate.clear)
    while pair.draft.gate.is_set():
        time.sleep(0.001)
    state = pair.speculator.statistics
    stream.then = lambda: None
    pair.draft.gate.set()
    stream.end()
    assert (state.running, state.waiting, state.used) == (1, 0, 2)
    assert pair.speculator.statistics.running == 0


def test_a_draft_is_no_longer_than_a_verification_can_be() -> None:
    """A pass has 16 tokens: 15 of a draft, and the one before them."""
    recorder = Recorder()
    config = DraftTargetConfig(max_draft_len=60, speculative_model="")
    speculator = Speculator(recorder.scheduler(16), DraftModel(Recorder().scheduler(64)), config, SLOTS)
    stream = Stream(speculator, Request(prompt_of(0), 1 + 2 * 16))
    assert stream.end().finish == Finish.LENGTH
    speculator.close()
    assert [len(output.tokens) for output in stream.outputs] == [1, 16, 16]


@pytest.mark.parametrize("when", ["waiting", "reading", "in a round"])
def test_closing_ends_what_runs(when: str) -> None:
    pair = Pair()
    gate = (pair.draft if when == "in a round" else pair.target).gate
    gate.clear()
    streams = [pair.start(number, 200) for number in range(SLOTS + 1 if when == "waiting" else 1)]
    closing = threading.Thread(target=pair.speculator.close)
    closing.start()
    while pair.speculator.alive:
        pass
    gate.set()
    closing.join(SECONDS)
    assert streams[-1].end().finish == Finish.ERROR
    with pytest.raises(EngineStopped):
        pair.start(0, 1)


@pytest.mark.parametrize("role", ["target", "draft"])
def test_an_engine_that_stops_ends_all(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", logged.append)
    pair = Pair()
    broken: Recorder = getattr(pair, role)

    def fail(segments: Sequence[Segment]) -> None:
        raise FloatingPointError("broken")

    def on_third_output() -> None:
        if len(streams[0].outputs) == 3:
            broken.before = fail

    streams: list[Stream] = []
    pair.target.gate.clear()
    streams.append(Stream(pair.speculator, Request(prompt_of(0), 200), on_third_output))
    streams += [pair.start(number, 200) for number in range(1, SLOTS + 2)]
    pair.target.gate.set()
    for stream in streams:
        output = stream.end()
        assert output.finish == Finish.ERROR
        assert "its log says which" in output.error
    assert not pair.speculator.alive
    with pytest.raises(EngineStopped):
        pair.start(0, 1)
    pair.speculator.close()
    assert [str(each.exc_value) for each in logged] == ["broken"]


@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(top_p=0.9, temperature=1.2, seed=5)])
def test_streams_of_all_lengths_give_the_target_s_tokens(pair: Pair, sampling: SamplingParams) -> None:
    """More than there are slots, so that they come and go at any round."""
    requests = [Request(prompt_of(n, 1 + 3 * n), 5 + 9 * (n % 4), sampling=sampling) for n in range(2 * SLOTS)]
    streams = [Stream(pair.speculator, request) for request in requests]
    for stream, request in zip(streams, requests, strict=True):
        stream.end()
        alone: list[Output] = []
        scheduler = tiny_llama.scheduler()
        scheduler.submit(request, alone.append)
        while not scheduler.idle:
            scheduler.step()
        assert stream.tokens == alone[0].tokens


def test_an_engine_s_error_ends_the_sequence_with_it() -> None:
    sent: list[Output] = []
    sequence = _Sequence(Request(np.array([5, 6], np.int32), 4), sent.append)
    sequence.take(Output([], [], [], Finish.ERROR, Stats(), "an illegal memory access was encountered"))
    assert [(each.finish, each.error) for each in sent] == [
        (Finish.ERROR, "an illegal memory access was encountered")
    ]
    assert sequence.finish == Finish.ERROR, "else it goes round again, and its client waits for ever"
