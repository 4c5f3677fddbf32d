"""Guesses of what comes next: by a draft model, or from the text so far."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from reference_engine.engine import Engine
from reference_engine.request import Output, Request
from reference_engine.sampling import SamplingParams

from .llm_args import NGramConfig

IntArray = npt.NDArray[np.int32]
Start = Callable[[Engine, Request, Callable[[Output], None]], None]
"""Submits a request to an engine, with the sink of its outputs."""


class Drafter(Protocol):
    """Proposes draft tokens."""

    def propose(
        self, tokens: IntArray, count: int, sampling: SamplingParams, start: Start, use: Callable[[IntArray], None]
    ) -> None:
        """Call `use` once with at most `count` tokens to follow `tokens`, now or when an engine has made them."""
        ...

    def close(self) -> None:
        """End its engine, if it has one."""
        ...


class DraftModel:
    """A smaller model with the target's vocabulary, sampled as the target is: with the same seed they often agree."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def propose(
        self, tokens: IntArray, count: int, sampling: SamplingParams, start: Start, use: Callable[[IntArray], None]
    ) -> None:
        """As Drafter says; nothing where the draft's context ends."""
        count = min(count, self._engine.limits.max_seq_len - len(tokens))
        if count < 1:
            use(tokens[:0])
            return
        # Neither end_id nor min_tokens: the end of the text is the target's to find.
        request = Request(tokens, count, sampling=replace(sampling, min_tokens=0))
        start(self._engine, request, lambda output: use(np.array(output.tokens, np.int32)))

    def close(self) -> None:
        """End the engine."""
        self._engine.close()


class NGram:
    """Prompt lookup: what followed the last tokens where they stood before, the longest match first."""

    def __init__(self, config: NGramConfig) -> None:
        self._config = config

    def propose(
        self, tokens: IntArray, count: int, sampling: SamplingParams, start: Start, use: Callable[[IntArray], None]
    ) -> None:
        """As Drafter says, at once."""
        use(lookup(tokens, self._config.max_matching_ngram_size, self._config.is_use_oldest)[:count])

    def close(self) -> None:
        """Nothing to end."""


def lookup(tokens: IntArray, largest: int, oldest: bool) -> IntArray:
    """Tokens behind an earlier occurrence of the last 1 to `largest` tokens; none where there is none."""
    for size in range(min(largest, len(tokens) - 1), 0, -1):
        windows = np.lib.stride_tricks.sliding_window_view(tokens[:-1], size)
        found = np.flatnonzero((windows == tokens[-size:]).all(axis=1))
        if len(found):
            return tokens[found[0 if oldest else -1] + size :]
    return tokens[:0]
