import pytest

from tandem_serving.errors import CancelledError, EngineError
from tandem_serving.llmapi import outputs
from tandem_serving.llmapi.chunks import LlmApiChunk, LlmApiSummary, LlmApiWriter, RequestMetrics, SequenceOutput
from tandem_serving.llmapi.request import LlmApiPrompt, LlmApiRequest
from tandem_serving.requests.tokenizer import Tokenizer

TEXT = "def add(a, b):\n    return a + b  # 東京\n"


def progress(ids: list[int], sizes: list[int], finish: str = "length") -> list[SequenceOutput]:
    """The engine's responses when it gives `sizes` tokens one after the other."""
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [SequenceOutput(ids[:end], finish if end == ends[-1] else "") for end in ends]


def write(tokenizer: Tokenizer, request: LlmApiRequest, sizes: list[int], **prompt: object) -> list[LlmApiChunk]:
    ids = tokenizer.encode(TEXT)
    made = LlmApiPrompt(0, "# ", tokenizer.encode("# "), {"max_tokens": 32}, **prompt)  # type: ignore[arg-type]
    writer = LlmApiWriter(made, request, tokenizer.decode)
    chunks = []
    for each in progress(ids, [*sizes, len(ids) - sum(sizes)]):
        chunks.append(writer.write(each))
        if writer.over:
            break
    return [chunk for chunk in chunks if chunk]


@pytest.mark.parametrize("sizes", [[], [1], [3, 1, 4], [1] * 12, [0, 2]], ids=str)
def test_deltas_are_whole_characters_and_add_up(tokenizer: Tokenizer, sizes: list[int]) -> None:
    chunks = write(tokenizer, LlmApiRequest((), stream=True), sizes)
    assert "".join(chunk.text for chunk in chunks) == TEXT
    assert [token for chunk in chunks for token in chunk.ids] == tokenizer.encode(TEXT)
    assert not any("\ufffd" in chunk.text for chunk in chunks)
    assert [chunk.finish_reason for chunk in chunks] == [""] * len(sizes) + ["length"]
    assert [bool(chunk.summary) for chunk in chunks] == [False] * len(sizes) + [True]


def test_one_chunk_without_streaming(tokenizer: Tokenizer) -> None:
    (chunk,) = write(tokenizer, LlmApiRequest(()), [3, 1])
    assert (chunk.text, chunk.ids, chunk.finish_reason) == (TEXT, tokenizer.encode(TEXT), "length")
    (echoed,) = write(tokenizer, LlmApiRequest(()), [3, 1], echo=True)
    assert (echoed.text, echoed.ids) == ("# " + TEXT, tokenizer.encode("# ") + tokenizer.encode(TEXT))
    assert (
        echoed.summary
        == chunk.summary
        == LlmApiSummary(len(tokenizer.encode("# ")), len(chunk.ids), RequestMetrics())
    )


@pytest.mark.parametrize("stream", [True, False])
def test_a_stop_word_ends_it_and_is_named(tokenizer: Tokenizer, stream: bool) -> None:
    chunks = write(tokenizer, LlmApiRequest((), stream, stop_reason=True), [5, 3], stop_words=("never", "return"))
    assert "".join(chunk.text for chunk in chunks) == TEXT[: TEXT.index("return")]
    assert (chunks[-1].finish_reason, chunks[-1].stop_reason) == ("stop", "return")


@pytest.mark.parametrize("stream", [True, False])
def test_a_special_token_is_a_stop_word(tokenizer: Tokenizer, stream: bool) -> None:
    """It has no text to be found in."""
    before, behind = tokenizer.encode("for i"), tokenizer.encode(" in range")
    prompt = LlmApiPrompt(0, "# ", tokenizer.encode("# "), {}, ("i j", "<|endoftext|>"), {0: "<|endoftext|>"})
    writer = LlmApiWriter(prompt, LlmApiRequest((), stream, stop_reason=True), tokenizer.decode)
    chunks = [chunk for end in (2, None) if (chunk := writer.write(SequenceOutput([*before, 0, *behind][:end], "")))]
    assert "".join(chunk.text for chunk in chunks) == "for i"
    assert [token for chunk in chunks for token in chunk.ids] == [*before, 0]
    assert (chunks[-1].finish_reason, chunks[-1].stop_reason) == ("stop", "<|endoftext|>")


def test_what_was_not_asked_for_is_left_out(tokenizer: Tokenizer) -> None:
    over = SequenceOutput([5], "stop", "7", -1.5, RequestMetrics(2.0, 3, 1, {"arrival_time_ns": 1}))
    prompt = LlmApiPrompt(0, "#", [4], {})
    asked = LlmApiRequest((), stop_reason=True, cumulative_logprob=True, perf_metrics=True)
    without = LlmApiWriter(prompt, LlmApiRequest(()), tokenizer.decode).write(over)
    everything = LlmApiWriter(prompt, asked, tokenizer.decode).write(over)
    assert without and without.summary and everything and everything.summary
    assert (without.stop_reason, without.cumulative_logprob, without.summary.metrics.perf) == (None, None, {})
    assert (everything.stop_reason, everything.cumulative_logprob) == ("7", -1.5)
    assert everything.summary.metrics.perf == {"arrival_time_ns": 1}


@pytest.mark.parametrize("stream", [True, False])
def test_log_probs_are_of_the_tokens_that_are_sent(tokenizer: Tokenizer, stream: bool) -> None:
    """A stop word cuts them, too; those of the prompt come once, and one that has a single token has none."""
    ids = tokenizer.encode("return x end")
    known = [-float(place) for place in range(len(ids))]
    asked = LlmApiRequest((), stream, log_probs=True, prompt_log_probs=True)
    for prompt_ids, of_prompt in (([5, 6], [-0.5]), ([5], [])):
        writer = LlmApiWriter(LlmApiPrompt(0, "", prompt_ids, {}, (" x",)), asked, tokenizer.decode)
        outputs = [SequenceOutput(ids[:end], "", log_probs=known[:end], prompt_log_probs=of_prompt) for end in (1, 2)]
        outputs.append(SequenceOutput(ids, "length", log_probs=known, prompt_log_probs=of_prompt))
        chunks = [chunk for output in outputs if (chunk := writer.write(output))]
        sent = [len(chunk.ids) for chunk in chunks]
        assert sum(sent) < len(ids)
        assert [len(chunk.log_probs or ()) for chunk in chunks] == sent
        assert [value for chunk in chunks for value in chunk.log_probs or ()] == known[: sum(sent)]
        told = [(chunk.prompt_ids, chunk.prompt_log_probs) for chunk in chunks]
        assert told == [(prompt_ids, of_prompt or None)] + [(None, None)] * (len(chunks) - 1)


def test_log_probs_that_the_engine_does_not_give_are_an_error(tokenizer: Tokenizer) -> None:
    with pytest.raises(EngineError, match="leave return_log_probs out"):
        LlmApiWriter(LlmApiPrompt(0, "", [5], {}), LlmApiRequest((), log_probs=True), tokenizer.decode).write(
            SequenceOutput([5], "length")
        )


def test_a_sequence_that_the_engine_gave_up_is_an_error(tokenizer: Tokenizer) -> None:
    with pytest.raises(CancelledError, match="the engine cancelled the request: send it again"):
        LlmApiWriter(LlmApiPrompt(0, "#", [4], {}), LlmApiRequest(()), tokenizer.decode).write(
            SequenceOutput([5], "cancelled")
        )


FIGURES: list[tuple[str, RequestMetrics, int | None, int | None]] = [
    ("nothing told", RequestMetrics(), None, None),
    ("tokens an iteration: the rest of each was accepted", RequestMetrics(2.5), 4, 6),
    ("one token an iteration: nothing accepted", RequestMetrics(1.0), 10, 0),
    ("rounded by the engine", RequestMetrics(3.3333), 3, 7),
    ("accepted tokens told", RequestMetrics(2.5, 12, 5), 4, 5),
]


@pytest.mark.parametrize(("reason", "metrics", "iterations", "accepted"), FIGURES, ids=[row[0] for row in FIGURES])
def test_acceptance_of_ten_tokens(
    reason: str, metrics: RequestMetrics, iterations: int | None, accepted: int | None
) -> None:
    assert (metrics.iterations(10), metrics.accepted(10)) == (iterations, accepted)


def test_figures_that_the_engine_does_not_tell_are_no_outputs() -> None:
    def names(metrics: RequestMetrics) -> set[str]:
        return set(outputs.arrays(LlmApiChunk(0, "a", [5], "stop", summary=LlmApiSummary(1, 1, metrics))))

    always = {"text_output", "output_ids", "batch_index", "finish_reason", "num_input_tokens", "num_output_tokens"}
    acceptance = {"acceptance_rate", "total_accepted_draft_tokens", "total_draft_tokens"}
    assert names(RequestMetrics()) == always
    assert names(RequestMetrics(2.0)) == always | {"avg_decoded_tokens_per_iter"}
    assert names(RequestMetrics(2.0, 4, 1, {"kv_cache_hit_rate": 0.5})) == always | acceptance | {
        "avg_decoded_tokens_per_iter",
        "kv_cache_hit_rate",
    }


def test_rounds_and_log_probs_are_rows_of_outputs() -> None:
    metrics = RequestMetrics(2.0, 12, 4, rounds=(1, 2, 1, 0))
    summary = LlmApiSummary(1, 1, metrics)
    chunk = LlmApiChunk(0, "a", [5], "stop", None, None, summary, [-0.5], [4, 5], [-2.0])
    made = {name: array.tolist() for name, array in outputs.arrays(chunk).items()}
    assert made["acceptance_histogram"] == [[1, 2, 1, 0]]
    assert (made["output_log_probs"], made["prompt_ids"], made["prompt_log_probs"]) == ([[-0.5]], [[4, 5]], [[-2.0]])


def test_nothing_drafted_is_no_division_by_it() -> None:
    metrics = RequestMetrics(draft_tokens=0, accepted_draft_tokens=0)
    made = outputs.arrays(LlmApiChunk(0, "a", [5], "stop", summary=LlmApiSummary(1, 1, metrics)))
    assert (made["acceptance_rate"].item(), made["total_draft_tokens"].item()) == (0, 0)


ENDS: list[tuple[str, list[int], dict[str, object], int, str]] = [
    # why, sizes of the engine's responses, fields of the prompt, tokens that are left of TEXT's, finish reason
    ("one that the engine does not know", [3], {}, 7, "stop"),
    ("in its first response", [], {}, 7, "stop"),
    ("not before the least number of tokens", [2], {"sampling": {"min_tokens": 8}}, 0, "length"),
    ("at the least number of tokens", [2], {"sampling": {"min_tokens": 7}}, 7, "stop"),
    ("nothing is to end it", [2], {"end_ids": frozenset()}, 0, "length"),
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("why", "sizes", "fields", "left", "finish"), ENDS, ids=[row[0] for row in ENDS])
def test_every_end_token_ends_it(
    tokenizer: Tokenizer, stream: bool, why: str, sizes: list[int], fields: dict[str, object], left: int, finish: str
) -> None:
    ids = tokenizer.encode(TEXT)
    end = ids[7]
    assert ids.index(end) == 7
    assert ids.count(end) == 1
    made = LlmApiPrompt(0, "", [5], **{"sampling": {}, "end_ids": frozenset({end}), **fields})  # type: ignore[arg-type]
    writer = LlmApiWriter(made, LlmApiRequest((), stream), tokenizer.decode)
    chunks = []
    for each in progress(ids, [*sizes, len(ids) - sum(sizes)]):
        chunks.append(writer.write(each))
        if writer.over:
            break
    kept = [token for chunk in chunks if chunk for token in chunk.ids]
    assert kept == (ids[:left] if left else ids), why
    last = chunks[-1]
    assert last is not None
    assert (last.finish_reason, last.summary and last.summary.output_tokens) == (finish, len(kept))


def test_the_end_token_with_which_an_engine_ends_stays_its_own(tokenizer: Tokenizer) -> None:
    prompt = LlmApiPrompt(0, "", [5], {}, end_ids=frozenset({7}))
    chunk = LlmApiWriter(prompt, LlmApiRequest(()), tokenizer.decode).write(SequenceOutput([8, 9, 7], "stop"))
    assert chunk is not None
    assert (chunk.ids, chunk.finish_reason) == ([8, 9, 7], "stop")
