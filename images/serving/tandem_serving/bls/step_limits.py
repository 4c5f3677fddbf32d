"""How many sequences an engine takes into one step. Pure.

TensorRT-LLM counts a context request with all its tokens, also those whose keys and values it reuses, and with its
draft tokens, and stops at the first that does not fit into `max_num_tokens` (docs/reference/engines.md, "Tokens of a
step"). Each call of the BLS is such a request.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tandem_serving.bls.calls import Call, Role

UNLIMITED = 1 << 60


@dataclass(frozen=True)
class StepLimits:
    """`rows` of a call, and of a step; tokens of a step, of each engine."""

    rows: int
    draft_tokens: int = UNLIMITED
    target_tokens: int = UNLIMITED

    def room(self, role: Role, generating: int = 0) -> StepRoom:
        """An engine's step, in which so many sequences may generate, which takes a token for each."""
        tokens = self.draft_tokens if role == "draft" else self.target_tokens
        return StepRoom(self.rows, tokens - generating)

    @property
    def tokens(self) -> int:
        """Tokens of a step, of either engine."""
        return min(self.draft_tokens, self.target_tokens)


@dataclass
class StepRoom:
    """What is left of a step that has `taken` so many rows, with tokens."""

    rows: int
    tokens: int
    taken: int = 0
    used: int = 0

    @property
    def full(self) -> bool:
        """Whether there is no room for one more like those that are in it."""
        return self.rows == 0 or self.tokens * self.taken < self.used

    def take(self, calls: Sequence[Call]) -> int:
        """How many of these calls, which are to be one batch, are in the step: its first one in any case."""
        count = used = 0
        for tokens in itertools.islice(_tokens(calls), self.rows):
            if tokens > self.tokens and self.taken + count:
                break
            count, used = count + 1, tokens
        self.rows, self.tokens = self.rows - count, self.tokens - used
        self.taken, self.used = self.taken + count, self.used + used
        return count


def tokens_of(calls: Iterable[Call]) -> int:
    """Tokens of a batch of these."""
    return max(_tokens(calls), default=0)


def _tokens(calls: Iterable[Call]) -> Iterator[int]:
    """Tokens of the batch of the first call, of the first two, and so on: shorter drafts are filled up."""
    ids = longest = 0
    for count, call in enumerate(calls, 1):
        ids, longest = ids + len(call.ids), max(longest, _drafted(call))
        yield ids + count * longest


def _drafted(call: Call) -> int:
    """Draft tokens that are verified with this call, or after it."""
    return call.output_len if call.role == "draft" else len(call.draft_ids)
