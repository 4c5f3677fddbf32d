"""What calls of an engine take, and how long to wait for one. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tandem_serving.bls.batches import Row, S
from tandem_serving.bls.calls import Call
from tandem_serving.engine.health import PROMPT_TOKENS

# Weight of a new observation, which counts as so many times the known at most: a stalled machine is no slow engine.
NEW, SURPRISE = 0.2, 2.0
# A call is late when it takes so many times what it should; of the part of its text that the engine has seen before,
# and may have to read again, so many times.
LATE, AGAIN = 20.0, 3.0


class CallTimes:
    """Of one engine. `step`: seconds of one that does next to nothing; None: not known."""

    def __init__(self) -> None:
        self.step: float | None = None

    def timed(self, work: float, seconds: float) -> None:
        """A call of so much work took so long, and waited for no others."""
        observed = seconds / work
        known = observed if self.step is None else self.step
        self.step = known + NEW * (min(observed, SURPRISE * known) - known)

    def takes(self, work: float) -> float | None:
        """Seconds that a call of so much work should take; None: not known."""
        return None if self.step is None else self.step * work

    def late(self, work: float, known_tokens: int = 0) -> float | None:
        """Seconds after which a call of so much work is late, with so many tokens that the engine has seen before;
        None: not known."""
        again = AGAIN * known_tokens / PROMPT_TOKENS
        return None if self.step is None else self.step * (LATE * work + again)


def steps(rows: Sequence[Row[S]]) -> float:
    """What a call's steps cost, as many as its longest row needs, without its prompts: `PROMPT_TOKENS` tokens in a
    step cost as much as the step itself."""
    count = max(1 if row.call.draft_ids or row.stream else row.call.output_len for row in rows)
    tokens = sum(1 + len(row.call.draft_ids) for row in rows)
    return count * (1 + tokens / PROMPT_TOKENS)


def prompts(rows: Sequence[Row[S]]) -> float:
    """What a call's new prompts cost, in steps."""
    return sum(len(row.call.ids) for row in rows if row.call.first) / PROMPT_TOKENS


def verification(rows: Sequence[Row[S]]) -> float:
    """What the verification of a draft call costs, in steps."""
    return 1 + sum(_verified(row.call) for row in rows) / PROMPT_TOKENS


def known_tokens(rows: Sequence[Row[S]]) -> int:
    """Tokens of a call that its engine has seen before."""
    return sum(len(row.call.ids) for row in rows if not row.call.first)


def _verified(call: Call) -> int:
    return call.output_len + 1
