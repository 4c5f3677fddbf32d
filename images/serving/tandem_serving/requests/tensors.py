"""A request's tensors, read row by row: a batch dimension of n prompts first, scalars as [n, 1]."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tandem_serving.errors import RequestError

Array = npt.NDArray[Any]
NUMPY: Mapping[str, type[np.generic]] = {
    "BOOL": np.bool_,
    "FP32": np.float32,
    "INT32": np.int32,
    "UINT64": np.uint64,
}
"""By Triton's datatype."""
TO_THE_LIMIT = -1
"""Sent as the number of tokens: as many as the model's limit leaves behind the prompt."""


class RequestTensors:
    """A request's tensors with checked shapes: n rows each."""

    def __init__(self, tensors: Mapping[str, Array], text: str = "text_input") -> None:
        """`text` names the tensor that holds the prompts and so says how many there are."""
        if text not in tensors:
            raise RequestError(f"{text} is missing: send the prompts as [n, 1] strings")
        self.tensors = tensors
        self.count = len(tensors[text]) if tensors[text].ndim else 0
        if self.count == 0:
            raise RequestError(f"{text} is empty: send at least one prompt")

    def row(self, name: str, index: int) -> list[Any] | None:
        """Row `index` of a tensor as a flat list; None: the tensor is absent."""
        return list(self._row(name, index).tolist()) if name in self.tensors else None

    def _row(self, name: str, index: int) -> Array:
        tensor = self.tensors[name]
        if tensor.ndim == 0 or len(tensor) != self.count:
            raise RequestError(
                f"{name} has shape {list(tensor.shape)}, but there are {self.count} prompts: send one row a prompt"
            )
        return tensor[index : index + 1].reshape(-1)

    def scalar(self, name: str, index: int, default: Any = None) -> Any:
        """The one value of row `index`."""
        row = self.row(name, index)
        if row is None:
            return default
        if len(row) != 1:
            raise RequestError(f"{name} holds {len(row)} values a prompt: send one")
        return row[0]

    def text(self, name: str, index: int) -> str:
        """The one string of row `index`, UTF-8; empty where the tensor is absent."""
        value = self.scalar(name, index)
        return "" if value is None else _text(name, value)

    def token_ids(self, name: str, lengths: str, index: int, most: int, vocab_size: int) -> list[int]:
        """Row `index` of ids filled up behind as many as `lengths` says (absent: all), 1 to `most`."""
        ids = self._row(name, index)
        length = self.scalar(lengths, index, ids.size)
        if not 0 < length <= ids.size:
            raise RequestError(f"{lengths} is {length}, {name} holds {ids.size}: send 1 token or more")
        if length > most:
            raise RequestError(f"{name} holds {length} tokens, the model's limit is {most}: shorten the prompt")
        ids = ids[:length]
        wrong = ids[(ids < 0) | (ids >= vocab_size)]
        if wrong.size:
            raise RequestError(f"{name} holds {wrong[0]}: the vocabulary ends at {vocab_size - 1}")
        return list(ids.tolist())

    def strings(self, name: str, index: int) -> list[str]:
        """The strings of row `index`, UTF-8; empty ones are padding and left out."""
        texts = [_text(name, value) for value in self.row(name, index) or []]
        return [text for text in texts if text]

    def weighted_words(self, words: str, weights: str, index: int) -> tuple[list[str], list[float]]:
        """Row `index` of two tensors that belong together, value by value."""
        texts = [_text(words, value) for value in self.row(words, index) or []]
        values = self.row(weights, index) or []
        if len(texts) != len(values):
            raise RequestError(
                f"{words} holds {len(texts)} words and {weights} {len(values)} weights: send one weight a word"
            )
        for weight in values:
            if not weight < math.inf:
                raise RequestError(f"{weights} holds {weight}: send numbers (-inf bans a word's tokens)")
        return texts, values

    def flag(self, name: str, default: bool = False) -> bool:
        """A flag of the whole request: set for any prompt."""
        return any(bool(self.scalar(name, i, default)) for i in range(self.count))


def tokens_of_text(ids: list[int], vocab_size: int) -> list[int]:
    """The tokens of a prompt's text, if the model has them all: a tokenizer may know more, such as one for images."""
    if not ids:
        raise RequestError("the prompt has no tokens: send some text")
    if (highest := max(ids)) >= vocab_size:
        raise RequestError(
            f"the prompt holds the token {highest}, and the model's vocabulary ends at {vocab_size - 1}: leave the"
            " placeholders of images and the like out of the text"
        )
    return ids


def _text(name: str, value: bytes | str) -> str:
    if isinstance(value, str):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"{name} is not valid UTF-8 ({error.reason} at byte {error.start})") from None
