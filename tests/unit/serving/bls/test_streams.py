"""The target alone where its engine streams: one call a sequence, whose tokens are read while it runs."""

import threading
import time
from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest

from support.serving.bls import (
    ALONE,
    NO_TENSORS,
    STREAM,
    MockCall,
    MockEngines,
    MockStream,
    MockStreams,
    Start,
    ask,
    tensors,
    text,
)
from support.serving.steady import Steady
from tandem_serving.bls.calls import NewTokens, Part
from tandem_serving.bls.loop import SequenceLoop
from tandem_serving.bls.sequence import EngineInputs
from tandem_serving.errors import EngineError

EACH = ALONE | STREAM


@pytest.fixture
def engines() -> MockEngines:
    return MockEngines(streams=True)


def streams(engines: MockEngines) -> MockStreams:
    assert engines.streams
    return engines.streams


def eventually(reached: Any) -> None:
    end = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.005)


def expected(start: Start, **how: Any) -> str:
    """The text by calls of some tokens each."""
    return text(ask(start(MockEngines()), tensors("def add(", **how)).wait().chunks)


@pytest.mark.parametrize("how", [EACH, ALONE], ids=["streamed", "one response"])
def test_the_target_alone_is_one_call(start: Start, engines: MockEngines, how: dict[str, Any]) -> None:
    chunks = ask(start(engines), tensors("def add(", max_tokens=40, **how)).wait().chunks
    assert text(chunks) == expected(start, max_tokens=40)
    assert len(chunks) == (40 if how is EACH else 1)
    assert [call.row.call.output_len for call in streams(engines).calls] == [40]
    assert not engines.target.calls
    assert not streams(engines).calls[0].stopped.is_set(), "the engine ends it by itself"


def test_tokens_are_delivered_while_the_call_runs(start: Start, engines: MockEngines) -> None:
    goes_on = threading.Event()
    streams(engines).before = lambda call, tokens: tokens < 5 or goes_on.wait(60)
    answer = ask(start(engines), tensors("def add(", **EACH))
    eventually(lambda: len(answer.chunks) == 5)
    goes_on.set()
    assert len(answer.wait().chunks) == 20


def test_many_sequences_are_read_together(start: Start, engines: MockEngines) -> None:
    service = start(engines)
    answers = [ask(service, tensors("def add(", **EACH)) for _ in range(32)]
    assert {text(answer.wait().chunks) for answer in answers} == {expected(start)}
    assert len(streams(engines).calls) == 32


def test_a_stop_word_ends_the_call(start: Start, engines: MockEngines) -> None:
    chunks = ask(start(MockEngines(streams=True)), tensors("def add(", **EACH)).wait().chunks
    word = text(chunks[2:4])
    first = next(i for i, chunk in enumerate(chunks) if word in text(chunks[: i + 1]))
    streams(engines).before = lambda call, tokens: tokens < first + 3 or call.stopped.wait(60)
    stop = {"stop_words": np.array([[word.encode()]], np.object_)}
    got = ask(start(engines), tensors("def add(", **EACH) | stop).wait().chunks
    assert got[-1].finish_reason == "stop"
    assert text(got).endswith(word)
    assert streams(engines).calls[0].stopped.wait(60)


@pytest.mark.parametrize("how", ["leaves", "by the request's id"])
def test_who_leaves_has_the_call_ended(start: Start, engines: MockEngines, how: str) -> None:
    streams(engines).before = lambda call, tokens: tokens < 3 or call.stopped.wait(60)
    service = start(engines)
    answer = ask(service, tensors("def add(", **EACH), "me")
    eventually(lambda: len(answer.chunks) == 3)
    if how == "leaves":
        answer.gone = True
    else:
        service.cancel("me")
    assert streams(engines).calls[0].stopped.wait(60)
    assert answer.wait().error is not None
    eventually(lambda: service._runner.load() == (0, 0))


class Changing(Steady):
    """Drafts `k` tokens, which a test changes."""

    def __init__(self) -> None:
        super().__init__(4, separate_devices=True)
        self.k = 0
        self.gained: list[tuple[int, int]] = []

    @property
    def off(self) -> bool:
        return not self.k

    def length(self, sequence: Hashable) -> int:
        return self.k

    def rounds_ended(self, rows: int, length: int) -> None:
        self.gained.append((rows, length))


def test_a_sequence_leaves_its_stream_to_draft_and_comes_back(start: Start, engines: MockEngines) -> None:
    policy, asked = Changing(), threading.Event()

    def before(call: MockStream, tokens: int) -> None:
        if len(streams(engines).calls) == 1 and tokens == 2:
            policy.k = 4
        if len(streams(engines).calls) == 1 and tokens == 3:
            assert call.stopped.wait(60), "it has to end"

    def drafted(role: str, call: MockCall) -> None:
        if role == "target" and call.rows[0].call.draft_ids:
            policy.k = 0
            asked.set()

    engines = MockEngines(streams=True, before=drafted)
    streams(engines).before = before
    chunks = ask(start(engines, policy=policy), tensors("def add(", max_tokens=40, **STREAM)).wait().chunks
    assert text(chunks) == expected(start, max_tokens=40)
    assert asked.is_set()
    first, then = streams(engines).calls
    assert first.stopped.is_set()
    assert (first.row.call.output_len, len(engines.target.calls)) == (40, 1)
    assert then.row.call.output_len == 40 - sum(len(chunk.ids) for chunk in chunks[: -then.row.call.output_len])
    assert sum(rows for rows, length in policy.gained if not length) == 3 + then.row.call.output_len


def test_a_new_prompt_s_first_token_is_no_stream_where_it_is_to_draft(start: Start, engines: MockEngines) -> None:
    answer = ask(start(engines), tensors("def add(", **STREAM)).wait()
    assert text(answer.chunks) == expected(start)
    assert engines.target.calls[0].rows[0].call.output_len == 1
    assert not streams(engines).calls


def test_without_its_draft_engine_a_sequence_streams(start: Start) -> None:
    def before(role: str, call: MockCall) -> None:
        if role == "draft":
            raise EngineError("draft engine: broken")

    engines = MockEngines(before=before, streams=True)
    assert text(ask(start(engines), tensors("def add(", **STREAM)).wait().chunks) == expected(start)
    assert len(streams(engines).calls) == 1


def test_a_call_that_breaks_off_is_its_request_s_error(start: Start, engines: MockEngines) -> None:
    def before(call: MockStream, tokens: int) -> None:
        if tokens == 3 and call is streams(engines).calls[0]:
            raise EngineError("target engine: CUDA error")

    streams(engines).before = before
    service = start(engines)
    bad = ask(service, tensors("def add(", **EACH)).wait()
    assert bad.error is not None
    assert "CUDA error" in str(bad.error)
    assert text(ask(service, tensors("def add(", **EACH)).wait().chunks) == expected(start)


def test_where_streams_cannot_be_read_the_answer_brings_all(start: Start, engines: MockEngines) -> None:
    streams(engines).broken = True
    chunks = ask(start(engines), tensors("def add(", **EACH)).wait().chunks
    assert text(chunks) == expected(start)
    assert len(chunks) == 1


def test_a_fault_of_ours_in_a_part_ends_its_request_alone(
    start: Start, engines: MockEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams(engines).before = lambda call, tokens: (
        tokens < 2 or call is not streams(engines).calls[0] or call.stopped.wait(60)
    )
    part = SequenceLoop.part

    def broken(loop: SequenceLoop, start: int, ids: list[int]) -> NewTokens | None:
        if start == 1 and loop is streams(engines).calls[0].row.sequence.loop:
            raise ValueError("a fault")
        return part(loop, start, ids)

    monkeypatch.setattr(SequenceLoop, "part", broken)
    service = start(engines)
    bad = ask(service, tensors("def add(", **EACH))
    eventually(lambda: streams(engines).calls)
    good = ask(service, tensors("def add(", **EACH))
    assert bad.wait().error is not None
    assert text(good.wait().chunks) == expected(start)
    assert streams(engines).calls[0].stopped.wait(60)


def test_parts_of_unknown_calls_mean_nothing(start: Start, engines: MockEngines) -> None:
    streams(engines).parts.put(Part(-1, 0, [1, 2, 3]))
    assert text(ask(start(engines), tensors("def add(", **EACH)).wait().chunks) == expected(start)


def test_what_is_more_than_tokens_comes_by_calls_of_some_tokens(start: Start, engines: MockEngines) -> None:
    """Engines do not agree on which of it a part of an answer has."""
    more = {**NO_TENSORS, "target": EngineInputs({}, ("output_log_probs",))}
    service = start(engines, bind=lambda prompt, request: more)
    assert text(ask(service, tensors("def add(", **EACH)).wait().chunks) == expected(start)
    assert not streams(engines).calls
    assert [call.rows[0].call.output_len for call in engines.target.calls] == [1, 2, 4, 8, 5]


def test_a_closed_service_reads_no_more(start: Start, engines: MockEngines) -> None:
    streams(engines).before = lambda call, tokens: tokens < 3 or call.stopped.wait(60)
    service = start(engines)
    answer = ask(service, tensors("def add(", **EACH))
    eventually(lambda: len(answer.chunks) == 3)
    service.close()
    assert answer.wait().error is not None
    assert service._runner._reader is not None
    assert not service._runner._reader.is_alive()
