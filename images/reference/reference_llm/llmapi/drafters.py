"""Guesses of what comes next: by a draft model, or from the text so far."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from reference_engine.engine import Engine
from reference_engine.request import Request

from . import batch
from .llm_args import NGramConfig

IntArray = npt.NDArray[np.int32]


class Drafter(Protocol):
    """Proposes draft tokens."""

    def read(self, prompt: IntArray) -> None:
        """Begin to read a prompt, for the drafts to come. Raises EngineStopped."""
        ...

    def propose(self, requests: Sequence[Request]) -> list[IntArray]:
        """For each request at most `max_new_tokens` (0: none) tokens to follow `input_ids`. Raises EngineStopped."""
        ...

    def close(self) -> None:
        """End its engine, if it has one."""
        ...


class DraftModel:
    """A smaller model with the target's vocabulary, sampled as the target is: with the same seed they often agree."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def read(self, prompt: IntArray) -> None:
        """As Drafter says: its keys and values will be in the cache. The token that comes with them is not used."""
        if self._room(prompt):
            self._engine.submit(Request(prompt, 1), lambda output: None)

    def propose(self, requests: Sequence[Request]) -> list[IntArray]:
        """As Drafter says, all in the same passes; nothing where the draft's context ends."""
        bounded = [self._bounded(each) for each in requests]
        outputs = iter(batch.run(self._engine, [each for each in bounded if each.max_new_tokens]))
        return [np.array(next(outputs).tokens if each.max_new_tokens else [], np.int32) for each in bounded]

    def close(self) -> None:
        """End the engine."""
        self._engine.close()

    def _bounded(self, request: Request) -> Request:
        room = self._room(request.input_ids)
        return request if request.max_new_tokens <= room else replace(request, max_new_tokens=room)

    def _room(self, tokens: IntArray) -> int:
        return max(0, self._engine.limits.max_seq_len - len(tokens))


class NGram:
    """Prompt lookup: what followed the last tokens where they stood before, the longest match first."""

    def __init__(self, config: NGramConfig) -> None:
        self._config = config

    def read(self, prompt: IntArray) -> None:
        """Nothing to do."""

    def propose(self, requests: Sequence[Request]) -> list[IntArray]:
        """As Drafter says."""
        size, oldest = self._config.max_matching_ngram_size, self._config.is_use_oldest
        return [lookup(each.input_ids, size, oldest)[: each.max_new_tokens] for each in requests]

    def close(self) -> None:
        """Nothing to end."""


def lookup(tokens: IntArray, largest: int, oldest: bool) -> IntArray:
    """Tokens behind an earlier occurrence of the last 1 to `largest` tokens; none where there is none."""
    ends = np.flatnonzero(tokens[:-1] == tokens[-1])
    for back in range(1, min(largest, len(tokens))):
        longer = ends[ends >= back]
        longer = longer[tokens[longer - back] == tokens[-1 - back]]
        if not len(longer):
            break
        ends = longer
    return tokens[ends[0 if oldest else -1] + 1 :] if len(ends) else tokens[:0]
