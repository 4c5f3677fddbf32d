"""Which tokens a pass's logits yield: the seam between the scheduler and what computes.

The scheduler says for each segment what its rows of logits are for (`Choice`); the backend that has the logits
answers with a `Pick` a choice. `on_host` is numpy's answer, row by row, when a row is asked for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reference_engine import acceptance, sampling
from reference_engine.request import Request

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Choice:
    """The tokens that a segment's `rows` rows of logits are for: row i's stands at position `length` + i.

    `tokens` int32[n] is the sequence; draft tokens stand from `length` on. A row is for the case that the draft
    tokens before it were accepted.
    """

    request: Request
    tokens: IntArray
    length: int
    rows: int

    @property
    def plain(self) -> bool:
        """Whether each token is the argmax of its raw logits, and nothing else of them is needed."""
        return self.request.sampling.plain and not (self.request.log_probs or self.request.logits)

    def history(self, row: int) -> IntArray:
        """The tokens before the row's."""
        return self.tokens[: self.length + row]

    def banned(self, row: int, vocabulary: int) -> list[int]:
        """The ids that may not come."""
        request = self.request
        early = self.length + row - len(request.input_ids) < request.sampling.min_tokens
        # Clients may name an end_id that no token has: it never comes.
        return [end for end in (request.end_id, *request.more_ends) if 0 <= end < vocabulary] if early else []

    def draft_logits(self, row: int) -> FloatArray | None:
        """The draft's raw logits float32[V] for the row's draft token; None: unknown, or there is no draft token."""
        logits = self.request.draft_logits
        return None if logits is None or row == len(logits) else logits[row]


@dataclass(frozen=True)
class Chosen:
    """A token; with Request.log_probs its log probability, with Request.logits the raw logits float32[V]."""

    token: int
    log_prob: float = 0.0
    logits: FloatArray | None = None


Pick = Callable[[int], Chosen]
"""What the rows of one `Choice` yield. Valid until the next pass, or where the backend feeds it, the one after."""


def on_host(logits: FloatArray, choices: Sequence[Choice]) -> list[Pick]:
    """Picks from float32[rows of all choices, V], one choice after the other."""
    top = logits.argmax(axis=1)
    picks: list[Pick] = []
    row = 0
    for choice in choices:
        rows = slice(row, row + choice.rows)
        picks.append(_pick(choice, logits[rows], top[rows]))
        row = rows.stop
    return picks


def _pick(choice: Choice, logits: FloatArray, top: npt.NDArray[np.intp]) -> Pick:
    request = choice.request

    def pick(row: int) -> Chosen:
        raw = logits[row].copy() if request.logits else None
        if request.sampling.plain and not request.log_probs:
            return Chosen(int(top[row]), logits=raw)
        return _choose(choice, row, logits[row], raw)

    return pick


def _choose(choice: Choice, row: int, logits: FloatArray, raw: FloatArray | None) -> Chosen:
    params, history, position = choice.request.sampling, choice.history(row), choice.length + row
    processed = sampling.process(logits, params, history, choice.banned(row, len(logits)))
    draft = choice.draft_logits(row)
    if draft is None:
        token = sampling.choose(processed, params, position)
    else:
        drafted, proposed = sampling.process(draft, params, history, ()), int(choice.tokens[position])
        token = acceptance.verify(processed, drafted, params, proposed, position)
    log_prob = sampling.log_prob(processed, token) if choice.request.log_probs else 0.0
    return Chosen(token, log_prob, raw)
