"""How much runs at once, and for how long."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tandem_serving.bls.step_limits import UNLIMITED, StepLimits


@dataclass(frozen=True)
class RoundLimits:
    """`running` sequences at once, `waiting` more in the queue; `max_rows` of an engine call; seconds of a draft
    call; `queue_timeout`: seconds in the queue; `whole_rounds`: the longest draft of those that the server makes by
    itself, 0: it makes none; `target_tokens` and `draft_tokens`: see step_limits."""

    running: int
    waiting: int
    max_rows: int
    draft_timeout: float
    queue_timeout: float = math.inf
    whole_rounds: int = 0
    target_tokens: int = UNLIMITED
    draft_tokens: int = UNLIMITED

    @property
    def steps(self) -> StepLimits:
        """Of the engines."""
        return StepLimits(self.max_rows, self.draft_tokens, self.target_tokens)
