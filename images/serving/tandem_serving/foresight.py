"""When few sequences draft ahead, and how long a verification waits for drafts that are almost done. Pure.

In lock-step the draft engine is idle while the target verifies. With engines on devices of their own it can draft the
round after next meanwhile (see loop.Loop.ahead). A sequence whose draft came true is then ready when the others begin
to draft; it goes on with a verification of its own, and they join in when theirs are done. That pays where much comes
true and few share the target: otherwise the sequences fall apart into groups that wait for each other's steps. It
costs new prompts some time, since a target that is always busy is rarely free when one comes.
"""

from __future__ import annotations

from tandem_serving.acceptance import Acceptance
from tandem_serving.loop import Role

# How often all of a round must come true: at least, and more for each sequence that runs. Measured by tests/bench,
# 2 to 8 streams: at 0.2 and 0.04 it neither gains nor loses, at these it gains 7% and more.
LEAST, EACH = 0.3, 0.04
# Part of a verification's time that it waits for drafts: they would wait for all of it.
PATIENCE = 0.25
# Weight of a new observation of what a call takes.
NEW = 0.2


class Foresight:
    """Times in seconds. `possible`: the engines run side by side."""

    def __init__(self, possible: bool) -> None:
        self._possible = possible
        self._seconds: dict[tuple[Role, int], float] = {}
        self._k = 0
        self._verification = 0.0

    def timed(self, role: Role, length: int, seconds: float) -> None:
        """A wave's call of `length` output tokens at most took so long, without new prompts."""
        kind = role, length
        known = self._seconds.get(kind, seconds)
        self._seconds[kind] = known + NEW * (seconds - known)
        if role == "target" and length > 1:
            self._k, self._verification = length - 1, self._seconds[kind]

    def worth(self, sequences: int, acceptance: Acceptance) -> bool:
        """Whether so many sequences should draft ahead, with the draft length that they had of late."""
        if sequences == 1:  # nobody waits for what is drafted in vain
            return self._possible
        least = LEAST + EACH * sequences
        if not self._possible or least > 1 or not self._k:
            return False
        return self._in_time() and acceptance.foreseen(self._k) >= least

    def expected(self, length: int) -> float | None:
        """What a draft call of so many tokens takes; None: not known."""
        return self._seconds.get(("draft", length))

    @property
    def patience(self) -> float:
        """How long a verification waits for drafts."""
        return PATIENCE * self._verification

    def _in_time(self) -> bool:
        """Whether a draft ahead is done when the verification is, or soon after: it is one token longer."""
        draft = self.expected(self._k) or 0.0
        return draft * (self._k + 1) / self._k <= self._verification + self.patience
