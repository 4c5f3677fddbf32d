"""The service: what requests get, and what is counted."""

import itertools
import random
import threading
import time
from typing import Any

import numpy as np
import pytest

from support.serving.bls import (
    ALONE,
    STREAM,
    Answer,
    MockEngines,
    Sink,
    Start,
    ask,
    tensors,
    text,
)
from support.serving.mock_engine import counting, wrong_every
from tandem_serving import metrics as m
from tandem_serving.bls.calls import NewTokens
from tandem_serving.bls.chunks import BlsChunk, BlsWriter
from tandem_serving.bls.draft_length.policy import AdaptiveDraftLength
from tandem_serving.requests.delivery import Delivery
from tandem_serving.requests.tensors import Array
from tandem_serving.requests.tokenizer import Tokenizer


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
    assert sum(accepted * rounds for accepted, rounds in enumerate(summary.rounds)) == summary.accepted_draft_tokens
    assert sum(summary.rounds) == sum(chunk.accepted < len(chunk.ids) for chunk in chunks) - 1, (
        "of the first token none"
    )
    assert sum(chunk.draft_length for chunk in chunks) > 0


@pytest.mark.parametrize("prompt", ["def add(", "caf\ufffd", "a\ufffd\ufffd", "a<|endoftext|>b", "b<|endoftext|>"])
def test_prompt_is_repeated_as_it_is_decoded_unless_excluded(start: Start, tokenizer: Tokenizer, prompt: str) -> None:
    """A special token has no text there, as in the text of upstream's `ensemble`, which decodes all tokens."""
    service = start(MockEngines())
    inputs = tensors(prompt)
    (without,) = ask(service, inputs).wait().chunks
    del inputs["exclude_input_in_output"]
    (repeated,) = ask(service, inputs).wait().chunks
    assert repeated.text == tokenizer.decode(repeated.ids) == prompt.replace("<|endoftext|>", "") + without.text
    streamed = ask(service, inputs | STREAM).wait().chunks
    assert text(streamed) == without.text, "a stream holds new text alone"


@pytest.mark.parametrize("echoed", [1, 2, 4, 5, 6, 7, 8, 12])
def test_repeated_prompt_ends_where_the_new_text_begins(start: Start, tokenizer: Tokenizer, echoed: int) -> None:
    """The end of its token ids may be a part of a character, which the answer completes."""
    whole = tokenizer.encode("é 🗼\ufffdaé🗼🗼")
    service = start(MockEngines(target_model=lambda ids: whole[len(ids)]))
    inputs = {
        "input_ids": np.array([whole[:echoed]], np.int32),
        "max_tokens": np.array([[len(whole) - echoed]], np.int32),
    }
    (answer,) = ask(service, inputs).wait().chunks
    assert answer.ids == whole
    assert answer.text == "é 🗼\ufffdaé🗼🗼"


@pytest.mark.parametrize("how", [STREAM, ALONE, ALONE | STREAM, {}], ids=["streamed", "alone", "alone, streamed", ""])
def test_a_special_token_is_a_stop_word(start: Start, tokenizer: Tokenizer, how: dict[str, Any]) -> None:
    """It has no text to be found in. It need not be one of the model's ends, or the request has another `end_id`."""
    answer = [*tokenizer.encode("for i"), 0, *tokenizer.encode(" in range")]
    first = len(tokenizer.encode("def add("))
    service = start(MockEngines(target_model=lambda ids: answer[len(ids) - first]))
    inputs = tensors("def add(", max_tokens=len(answer), **how) | {"end_id": np.array([[-1]], np.int32)}
    assert text(ask(service, inputs).wait().chunks) == "for i in range"
    stop = {"stop_words": np.array([[b"i j", b"<|endoftext|>"]], np.object_)}
    chunks = ask(service, inputs | stop).wait().chunks
    assert text(chunks) == "for i"
    assert chunks[-1].finish_reason == "stop"
    assert [token for chunk in chunks for token in chunk.ids] == answer[: answer.index(0) + 1]


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


def test_a_stop_word_ends_the_text_and_stays_in_it(start: Start) -> None:
    service = start(MockEngines())
    (whole,) = ask(service, tensors("def add(", max_tokens=40)).wait().chunks
    for place in range(1, len(whole.text) - 2, 5):
        word = whole.text[place : place + 2]
        stop: dict[str, Any] = {"stop_words": np.array([[word.encode(), b"never there"]], np.object_)}
        for how in (STREAM, ALONE, ALONE | STREAM, {}):
            answer = ask(service, tensors("def add(", max_tokens=40, **stop, **how)).wait()
            assert text(answer.chunks) == whole.text[: whole.text.index(word) + len(word)]
            assert answer.chunks[-1].finish_reason == "stop"
            log_probs = [chunk.log_probs for chunk in answer.chunks if chunk.log_probs is not None]
            assert np.concatenate(log_probs).tolist() == [-0.5 * t for chunk in answer.chunks for t in chunk.ids]


def test_steps_stay_in_order_whatever_thread_is_held_up(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may hold up the thread that took a step while others run its sequence's next round."""
    put, rng = Delivery.put_batch, random.Random(1)

    def late(delivery: Delivery[Any], steps: Any, first: bool = False) -> None:
        time.sleep(rng.random() * 0.01)
        put(delivery, steps, first)

    prompts = [f"def f{i}(" for i in range(12)]
    service = start(MockEngines(), running=12)
    expected = [ask(service, tensors(prompt)).wait().chunks[0].ids for prompt in prompts]
    monkeypatch.setattr(Delivery, "put_batch", late)
    answers = [
        ask(service, tensors(prompt, **STREAM, num_draft_tokens=np.array([[i % 4]], np.int32)))
        for i, prompt in enumerate(prompts)
    ]
    assert [[token for chunk in answer.wait().chunks for token in chunk.ids] for answer in answers] == expected


class Slow(Answer):
    """A client whose responses Triton does not take for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = threading.Event()

    def send(self, chunk: BlsChunk, last: bool) -> None:
        self.taken.wait(60)
        super().send(chunk, last)


@pytest.mark.parametrize("rows", [1, 64], ids=["each sequence on its own", "calls of many rows"])
def test_engine_calls_do_not_run_ahead_of_responses(start: Start, rows: int) -> None:
    engines = MockEngines(draft_model=wrong_every(1))  # a token a round
    service, slow = start(engines, running=4, max_rows=rows), Slow()
    service.submit(tensors("def add(", max_tokens=100, **STREAM), "", slow)
    time.sleep(1)  # enough for all rounds
    assert len(engines.target.calls) < 30
    slow.taken.set()
    assert len(slow.wait().chunks) == len(engines.target.calls) == 100


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
    return [row.call.seed for call in engines.target.calls for row in call.rows]


def test_engines_that_start_at_the_seed_get_one_for_each_call(start: Start) -> None:
    """TensorRT-LLM takes 0 where there is none: each token would be drawn by the same number."""
    engines, again, other = MockEngines(), MockEngines(), MockEngines()
    for each, more in ((engines, {}), (again, {}), (other, SEED)):
        ask(start(each, mix_seed=True), tensors("def add(", **more)).wait()
    assert len({*seeds(engines), *seeds(again), *seeds(other)}) == sum(map(len, map(seeds, (engines, again, other))))
    assert None not in seeds(engines)


@pytest.mark.parametrize("sampled", [False, True])
def test_drafts_are_filled_up_unless_what_is_refused_is_drawn_once_more(start: Start, sampled: bool) -> None:
    """Where one prompt drafts four tokens and the other two, both unseeded, on TensorRT-LLM."""
    engines = MockEngines(before=lambda role, call: time.sleep(0.02))
    more = {"top_k": np.array([[5]] * 2, np.int32)} if sampled else {}
    lengths = {"num_draft_tokens": np.array([[4], [2]], np.int32)}
    ask(start(engines, mix_seed=True), tensors("def add(", "def sub(", max_tokens=40, **lengths, **more)).wait()
    rows = [row for call in engines.target.calls for row in call.rows if row.sequence.draft_length == 2]
    assert max(len(row.call.draft_ids) for row in rows) == (2 if sampled else 4)


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_a_seed_s_calls_do_not_depend_on_how_long_they_take(start: Start, seconds: float) -> None:
    engines = MockEngines(before=lambda role, call: time.sleep(seconds))
    ask(start(engines, mix_seed=True), tensors("def add(", max_tokens=40, **SEED, **STREAM, **ALONE)).wait()
    assert [row.call.output_len for call in engines.target.calls for row in call.rows] == [1, 2, 4, 8, 16, 9]


def test_metrics_count_rounds_tokens_and_positions(start: Start, sink: Sink) -> None:
    service = start(MockEngines(draft_model=counting))
    ask(service, tensors("def add(", max_tokens=10)).wait()
    service.metrics.flush(sink)
    rounds = {name: value for name, value in sink.values.items() if "spec_decode" in name}
    assert rounds == {  # the target makes the first token alone, 4 + 1 follow, and 3 + 1
        m.DRAFTS.name: 2,
        m.DRAFT_TOKENS.name: 7,
        m.ACCEPTED.name: 7,
        m.ACCEPTED_PER_POS.name: 7,
        m.DRAFT_FAILURES.name: 0,
    }
    assert sink.values[m.GENERATION_TOKENS.name] == 10


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


@pytest.mark.parametrize("streams", [False, True], ids=["calls", "streams"])
def test_at_a_fixed_length_the_target_alone_is_measured_too(start: Start, sink: Sink, streams: bool) -> None:
    """Nothing else would show what speculation is worth. Texts are the same, and who asks for a length keeps it."""
    ticks = itertools.count()
    policy = AdaptiveDraftLength(4, 4, separate_devices=False, clock=lambda: float(next(ticks)))
    service = start(MockEngines(draft_model=counting, streams=streams), policy=policy)
    (alone,) = ask(service, tensors("def add(", max_tokens=100, **ALONE)).wait().chunks
    asked = {"num_draft_tokens": np.array([[4]], np.int32)}
    for _ in range(40):
        (own,) = ask(service, tensors("def add(", max_tokens=100, **asked)).wait().chunks
        assert own.summary is not None
        assert (own.ids, own.summary.accepted_draft_tokens) == (alone.ids, 79), "20 rounds after the first token"
    service.metrics.flush(sink)
    assert sink.values[m.PROBES.name] == 0
    texts = [ask(service, tensors("def add(", max_tokens=100)).wait().chunks[0].ids for _ in range(80)]
    assert texts == [alone.ids] * 80
    service.metrics.flush(sink)
    name = m.PROBE_INTER_TOKEN.name
    assert sink.values[m.PROBES.name] >= 1
    assert sink.values[f"{name}_count"] >= 10 * sink.values[m.PROBES.name]
    assert sink.values[f"{name}_count"] <= 0.1 * sink.values[m.GENERATION_TOKENS.name], "a small share"
    assert sink.values[m.DRAFTS.name] > 1000


def test_stop_words_are_looked_for_while_the_engines_work(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where the next call is chosen: 64 texts with stop words take as long as an eighth of a round."""
    threads: set[str] = set()
    write = BlsWriter.write

    def noted(writer: BlsWriter, step: NewTokens) -> list[BlsChunk]:
        threads.add(threading.current_thread().name.partition("-")[0])
        return write(writer, step)

    monkeypatch.setattr(BlsWriter, "write", noted)
    engines = MockEngines()
    service = start(engines, running=1)
    whole = text(ask(service, tensors("def add(", max_tokens=100)).wait().chunks)
    calls = len(engines.target.calls)
    word = whole[10:13]
    stop = {"stop_words": np.array([[word.encode()]], np.object_)}
    stopped = ask(service, tensors("def add(", max_tokens=100, **stop)).wait()
    assert text(stopped.chunks) == whole[: whole.index(word) + 3]
    assert ask(service, tensors("b")).wait().error is None, "its place is free"
    assert threads == {"delivery"}
    assert len(engines.target.calls) < 2 * calls, "it ended long before all of it"
