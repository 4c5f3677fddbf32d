"""A model's tokenizer (tokenizer.json) and the token-level tensors made with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tokenizers

from tandem_serving import checkpoint

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raise a fault of the Rust library as a RuntimeError: its panics are no `Exception`, which no thread expects."""
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as panic:
        raise RuntimeError(f"the tokenizer's library failed: {panic}") from panic


class Tokenizer:
    """Encodes and decodes; `end_ids` and `pad_id` are the model's own. Thread-safe."""

    def __init__(self, folder: Path, model: Path | None = None) -> None:
        """Load from `folder`; `model` may say more of how texts end. Raises checkpoint.CheckpointError."""
        path = folder / "tokenizer.json"
        checkpoint.read_json(path)  # a clear error instead of the library's
        self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.ends = checkpoint.end_ids((folder, model or folder), self._tokenizer.token_to_id, self._is_special)
        self.end_ids = self.ends.all
        self.pad_id = self.end_ids[0] if self.end_ids else 0
        self._longest_token = max(map(len, self._tokenizer.get_vocab()), default=1)

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token ids; `special`: with what the model wants around a text (e.g. a begin token)."""
        # A batch, as only batches let go of the interpreter's lock: a long text takes seconds.
        with panics_as_errors():
            [encoding] = self._tokenizer.encode_batch_fast([text], add_special_tokens=special)
        ids: list[int] = encoding.ids
        return ids

    def most_characters(self, tokens: int) -> int:
        """Characters that so many tokens can stand for: a longer text need not be tokenized to know its fate."""
        return tokens * self._longest_token

    def decode(self, ids: list[int]) -> str:
        """Text without special tokens; bytes that are no character become U+FFFD."""
        with panics_as_errors():
            text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text

    def name(self, token: int) -> str:
        """A token as the vocabulary has it; "" where there is no such token."""
        return self._tokenizer.id_to_token(token) or ""

    def words(self, words: Iterable[str]) -> dict[tuple[int, ...], str]:
        """Words by their tokens; those without a token are left out."""
        return {tuple(ids): word for word in words if (ids := self.encode(word, special=False))}

    def word_list(self, words: list[str], tokens: Iterable[int] = ()) -> IntArray:
        """Words as TensorRT-LLM's word list: int32[2, m], flat token ids over end offsets, padded with -1.

        No words: int32[2, 0]. Words without a token are left out. `tokens`: words of one token each.
        """
        lists = [ids for word in words if (ids := self.encode(word, special=False))] + [[token] for token in tokens]
        flat = [token for ids in lists for token in ids]
        ends = np.cumsum([len(ids) for ids in lists], dtype=np.int32)
        table = np.full((2, len(flat)), -1, np.int32)
        table[0] = flat
        table[1, : len(lists)] = ends
        return table

    def embedding_bias(self, words: list[str], weights: list[float], vocab_size: int) -> FloatArray:
        """float32[vocab_size]: each word's weight added to the logits of all its tokens."""
        bias = np.zeros(vocab_size, np.float32)
        for word, weight in zip(words, weights, strict=True):
            np.add.at(bias, self.encode(word, special=False), np.float32(weight))
        return bias

    def _is_special(self, token: int) -> bool:
        return bool(self.name(token)) and not self.decode([token])


def stack_word_lists(tables: list[IntArray]) -> IntArray:
    """Word lists of several prompts as int32[n, 2, m]: shorter ones filled with id 0 and offset -1."""
    width = max(table.shape[1] for table in tables)
    stacked = np.zeros((len(tables), 2, width), np.int32)
    stacked[:, 1] = -1
    for row, table in zip(stacked, tables, strict=True):
        row[:, : table.shape[1]] = table
    return stacked
