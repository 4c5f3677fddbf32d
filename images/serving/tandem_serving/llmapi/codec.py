"""A Codec of an engine's tokenizer: one of transformers', or with its calls."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from tandem_serving.llmapi.request import Codec
from tandem_serving.requests.tokenizer import panics_as_errors


def codec(tokenizer: Any) -> Codec:
    """Two of the tokenizer: they are not made for several threads, and a long prompt takes seconds, for which all
    streams would wait."""
    encoder, encoding, decoding = copy.deepcopy(tokenizer), threading.Lock(), threading.Lock()

    def encode(text: str) -> list[int]:
        with encoding, panics_as_errors():
            return list(encoder.encode(text))

    def decode(ids: list[int]) -> str:
        with decoding, panics_as_errors():
            # Without the clean-up of spaces, which would change text that was sent already.
            return str(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def special(words: Iterable[str]) -> dict[int, str]:
        with encoding:
            tokens = {word: encoder.encode(word, add_special_tokens=False) for word in words if word.strip()}
        return {ids[0]: word for word, ids in tokens.items() if len(ids) == 1 and not decode(ids)}

    return Codec(encode, decode, longest_token(tokenizer), special)


def longest_token(tokenizer: Any) -> int:
    """Characters of the longest token. TensorRT-LLM's `LLM.tokenizer` wraps one of transformers'."""
    vocabulary: Mapping[str, int] = getattr(tokenizer, "tokenizer", tokenizer).get_vocab()
    return max(map(len, vocabulary), default=1)
