"""Guesses of what comes next: by a draft model, or from the text so far."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from reference_engine.request import Request
from reference_engine.scheduler import Scheduler

from . import batch
from .llm_args import NGramConfig

IntArray = npt.NDArray[np.int32]


class Drafter(Protocol):
    """Proposes draft tokens."""

    def read(self, prompt: IntArray) -> None:
        """Queue a prompt, for the drafts to come."""
        ...

    def step(self) -> None:
        """Do a pass's work on the prompts queued, if there is any."""
        ...

    def propose(self, requests: Sequence[Request]) -> list[IntArray]:
        """For each request at most `max_new_tokens` (0: none) tokens to follow `input_ids`."""
        ...


class DraftModel:
    """A smaller model with the target's vocabulary, sampled as the target is: with the same seed they often agree."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def read(self, prompt: IntArray) -> None:
        """As Drafter says: its keys and values will be in the cache. The token that comes with them is not used."""
        if self._room(prompt):
            self._scheduler.submit(Request(prompt, 1), lambda output: None)

    def step(self) -> None:
        """As Drafter says."""
        self._scheduler.step()

    def propose(self, requests: Sequence[Request]) -> list[IntArray]:
        """As Drafter says, all in the same passes; nothing where the draft's context ends."""
        bounded = [self._bounded(each) for each in requests]
        outputs = iter(batch.run(self._scheduler, [each for each in bounded if each.max_new_tokens]))
        return [np.array(next(outputs).tokens if each.max_new_tokens else [], np.int32) for each in bounded]

    def _bounded(self, request: Request) -> Request:
        room = self._room(request.input_ids)
        return request if request.max_new_tokens <= room else replace(request, max_new_tokens=room)

    def _room(self, tokens: IntArray) -> int:
        return max(0, self._scheduler.limits.max_seq_len - len(tokens))


class NGram:
    """Prompt lookup: what followed the last tokens where they stood before, the longest match first."""

    def __init__(self, config: NGramConfig) -> None:
        self._config = config

    def read(self, prompt: IntArray) -> None:
        """Nothing to do."""

    def step(self) -> None:
        """Nothing to do."""

    def propose(self, requests: Sequence[Request]) -> list[IntArray]:
        """As Drafter says."""
        size, oldest = self._config.max_matching_ngram_size, self._config.is_use_oldest
        return [lookup(each.input_ids, size, oldest)[: each.max_new_tokens] for each in requests]


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
