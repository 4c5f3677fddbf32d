"""Upstream's `preprocessing` and `postprocessing`, for clients that run the speculative loop themselves.

Pure: tensors in, tensors out, names and shapes of upstream's config.pbtxt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tandem_serving.errors import RequestError
from tandem_serving.requests.tensors import Array, RequestTensors, tokens_of_text
from tandem_serving.requests.tokenizer import Tokenizer, stack_word_lists

_UNSUPPORTED = ("DECODER_QUERY", "IMAGES", "IMAGE_BYTES", "IMAGE_URL", "VIDEO_BYTES", "PROMPT_TABLE_EXTRA_ID")


class Preprocessor:
    """Text to token tensors. `special`: add the special tokens that the tokenizer wants around a text."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, special: bool) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._special = special

    def run(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs for n rows of QUERY; rows shorter than the longest are padded at their ends.

        INPUT_ID int32[n, m], REQUEST_INPUT_LEN int32[n, 1], BAD_WORDS_IDS and STOP_WORDS_IDS
        int32[n, 2, w], EMBEDDING_BIAS float32[n, V] ([n, 0] without bias), REQUEST_OUTPUT_LEN,
        OUT_END_ID, OUT_PAD_ID, DECODER_INPUT_ID and REQUEST_DECODER_INPUT_LEN int32[n, 1].
        Raises RequestError.
        """
        for name in _UNSUPPORTED:
            if name in tensors:
                raise RequestError(f"{name} is not supported: this service takes text only; leave it out")
        inputs = RequestTensors(tensors, "QUERY")
        rows = range(inputs.count)
        ends = [inputs.scalar("END_ID", i, self._end_id()) for i in rows]
        pads = [inputs.scalar("PAD_ID", i, self._tokenizer.pad_id) for i in rows]
        ids = [self._encode(inputs, i) for i in rows]
        return {
            "INPUT_ID": _padded(ids, pads),
            "REQUEST_INPUT_LEN": _column([len(row) for row in ids]),
            "DECODER_INPUT_ID": _column(pads),
            "REQUEST_DECODER_INPUT_LEN": _column([1] * inputs.count),
            "BAD_WORDS_IDS": self._words(inputs, "BAD_WORDS_DICT"),
            "STOP_WORDS_IDS": self._words(inputs, "STOP_WORDS_DICT", self._more_ends(inputs)),
            "EMBEDDING_BIAS": self._bias(inputs),
            "REQUEST_OUTPUT_LEN": _column([inputs.scalar("REQUEST_OUTPUT_LEN", i) for i in rows]),
            "OUT_END_ID": _column(ends),
            "OUT_PAD_ID": _column(pads),
        }

    def _end_id(self) -> int:
        return self._tokenizer.end_ids[0] if self._tokenizer.end_ids else -1

    def _encode(self, inputs: RequestTensors, i: int) -> list[int]:
        texts = inputs.strings("QUERY", i)
        if len(texts) != 1:
            raise RequestError("QUERY is empty or holds several texts a row: send one prompt a row")
        return tokens_of_text(self._tokenizer.encode(texts[0], self._special), self._vocab_size)

    def _more_ends(self, inputs: RequestTensors) -> list[int]:
        """Engines take one end id: the model's others are stop words, unless the client names its own end."""
        return [] if "END_ID" in inputs.tensors else self._tokenizer.end_ids[1:]

    def _words(self, inputs: RequestTensors, name: str, tokens: Sequence[int] = ()) -> Array:
        words = (inputs.strings(name, i) for i in range(inputs.count))
        return stack_word_lists([self._tokenizer.word_list(each, tokens) for each in words])

    def _bias(self, inputs: RequestTensors) -> Array:
        names = ("EMBEDDING_BIAS_WORDS", "EMBEDDING_BIAS_WEIGHTS")
        if not any(name in inputs.tensors for name in names):
            return np.zeros((inputs.count, 0), np.float32)
        pairs = [inputs.weighted_words(*names, i) for i in range(inputs.count)]
        return np.stack([self._tokenizer.embedding_bias(*pair, self._vocab_size) for pair in pairs])


def decode_batch(tokenizer: Tokenizer, tokens: Array, lengths: Array) -> Array:
    """Texts of TOKENS_BATCH int32[n, beams, m] cut to SEQUENCE_LENGTH int32[n, beams]: object[n * beams].

    One dimension, row by row, as upstream's: its clients take the first element for a text.
    """
    if tokens.ndim != 3 or lengths.shape != tokens.shape[:2]:
        raise RequestError(
            f"TOKENS_BATCH has shape {list(tokens.shape)} and SEQUENCE_LENGTH {list(lengths.shape)}: "
            "send [n, beams, m] and [n, beams]"
        )
    rows = [tokens[place][: max(0, lengths[place])].tolist() for place in np.ndindex(*lengths.shape)]
    if negative := [token for row in rows for token in row if token < 0]:
        raise RequestError(
            f"TOKENS_BATCH holds {negative[0]}: send token ids, and in SEQUENCE_LENGTH how many there are"
        )
    return np.array([tokenizer.decode(row).encode() for row in rows], np.object_)


def _padded(rows: list[list[int]], pads: list[int]) -> Array:
    table = np.empty((len(rows), max(len(row) for row in rows)), np.int32)
    for line, row, pad in zip(table, rows, pads, strict=True):
        line[: len(row)] = row
        line[len(row) :] = pad
    return table


def _column(values: list[int]) -> Array:
    return np.array(values, np.int32).reshape(-1, 1)
