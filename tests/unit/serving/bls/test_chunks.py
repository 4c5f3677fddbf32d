"""What the chunks of a sequence say beside its text; the text itself: test_text.py, test_service.py."""

from typing import Any

import numpy as np
import pytest

from tandem_serving.bls.calls import FloatArray, NewTokens
from tandem_serving.bls.chunks import BlsWriter
from tandem_serving.bls.loop import FINISH_LENGTH
from tandem_serving.bls.request import BlsPrompt
from tandem_serving.requests.text import Detokenizer, StopText, TextStream
from tandem_serving.requests.tokenizer import Tokenizer


def writer(tokenizer: Tokenizer, stream: bool, refused: bool = False, stop: tuple[str, ...] = ()) -> BlsWriter:
    ids = np.array([5, 6], np.int32)
    prompt = BlsPrompt(
        index=0,
        text="",
        ids=ids,
        max_tokens=9,
        num_draft_tokens=4,
        min_tokens=0,
        seed=None,
        end_ids=frozenset(),
        stop_words=(),
        echo=False,
        tensors={},
    )
    text = TextStream(Detokenizer(tokenizer.decode, ids.tolist()), StopText(stop, keep=True))
    return BlsWriter(prompt, text, stream, refused)


FIRST = {"arrival_time_ns": 1, "first_token_time_ns": 2, "last_token_time_ns": 3, "kv_cache_reused_blocks": 0}
SECOND = {"arrival_time_ns": 4, "first_token_time_ns": 5, "last_token_time_ns": 6, "kv_cache_reused_blocks": 2}
THIRD = {"arrival_time_ns": 7, "first_token_time_ns": 8, "last_token_time_ns": 9, "kv_cache_reused_blocks": 3}


@pytest.mark.parametrize("stream", [True, False])
def test_performance_metrics_are_of_the_whole_sequence(tokenizer: Tokenizer, stream: bool) -> None:
    made = writer(tokenizer, stream)
    chunks = [
        *made.write(NewTokens([40, 41], perf_metrics=FIRST)),
        *made.write(NewTokens([42], perf_metrics=SECOND)),
        *made.write(NewTokens([43], perf_metrics=THIRD, finish=FINISH_LENGTH)),
    ]
    assert [chunk.perf_metrics for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].perf_metrics == {
        "arrival_time_ns": 1,
        "first_token_time_ns": 2,
        "last_token_time_ns": 9,
        "kv_cache_reused_blocks": 3,
    }


def test_without_them_there_are_none(tokenizer: Tokenizer) -> None:
    assert writer(tokenizer, True).write(NewTokens([40], finish=FINISH_LENGTH))[-1].perf_metrics is None


@pytest.mark.parametrize("name", ["log_probs", "logits"])
def test_what_is_not_streamed_is_copied_once(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Logits of 1,000 tokens of a vocabulary of 128,000 are 512 MB: copied at each step they would be 256 GB."""
    copied: list[int] = []
    concatenate = np.concatenate

    def counting(parts: list[FloatArray]) -> FloatArray:
        whole = concatenate(parts)
        copied.append(len(whole))
        return whole

    monkeypatch.setattr(np, "concatenate", counting)
    made, rows = writer(tokenizer, stream=False), np.arange(400, dtype=np.float32).reshape(100, 4)
    values = rows if name == "logits" else rows[:, 0]
    chunks = []
    for i in range(100):
        more: dict[str, Any] = {name: values[i : i + 1], "finish": FINISH_LENGTH if i == 99 else ""}
        chunks += made.write(NewTokens([40 + i], **more))
    assert sum(copied) == 100
    assert np.array_equal(getattr(chunks[-1], name), values)
    assert (len(chunks), chunks[-1].ids) == (1, list(range(40, 140)))


REFUSING = NewTokens([40, 41, 42], accepted=2, drafted=4, refused=(43, 44))


def test_refused_draft_tokens_have_the_text_that_they_would_have_added(tokenizer: Tokenizer) -> None:
    made = writer(tokenizer, stream=True, refused=True)
    ends = [tokenizer.decode([5, 6, *ids]) for ids in ([40, 41], [40, 41, 43, 44], [40, 41, 42])]
    (chunk,) = made.write(REFUSING)
    assert ends[0] + (chunk.refused or "") == ends[1] != ends[0]
    assert tokenizer.decode([5, 6]) + chunk.text == ends[2], "the text goes on as if none had been asked for"
    assert [each.refused for each in made.write(NewTokens([45]))] == [""]


def test_without_a_wish_for_it_there_is_no_refused_text(tokenizer: Tokenizer) -> None:
    assert [chunk.refused for chunk in writer(tokenizer, stream=True).write(REFUSING)] == [None]


def test_nothing_is_refused_behind_a_stop_word(tokenizer: Tokenizer) -> None:
    word = tokenizer.decode([5, 6, 40])[len(tokenizer.decode([5, 6])) :]
    assert word
    (chunk,) = writer(tokenizer, stream=True, refused=True, stop=(word,)).write(REFUSING)
    assert (chunk.finish_reason, chunk.refused) == ("stop", "")
