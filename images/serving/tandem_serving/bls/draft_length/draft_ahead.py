"""When few sequences draft ahead, and how long a verification waits for drafts that are almost done. Pure.

In lock-step the draft engine is idle while the target verifies. With engines on devices of their own it can draft the
next round meanwhile (see loop.Loop.ahead). A sequence whose draft came true is then ready when the others begin
to draft; it goes on with a verification of its own, and they join in when theirs are done. That pays where much comes
true and few share the target: otherwise the sequences fall apart into groups that wait for each other's steps. It
costs new prompts some time, since a target that is always busy is rarely free when one comes.
"""

from __future__ import annotations

from tandem_serving.bls.calls import Role
from tandem_serving.bls.draft_length.acceptance import Acceptance

# How often all of a round must come true: at least, and more for each sequence that runs. Measured by tests/bench,
# 2 to 8 streams: at 0.2 and 0.04 it neither gains nor loses, at these it gains 7% and more.
LEAST, EACH = 0.3, 0.04
# Part of a verification's time that it waits for drafts: they would wait for all of it.
PATIENCE = 0.25
# A draft call and a verification side by side wait for each other the more, the more alike they are: they take the
# norm of this order of the two, 15% more than the longer one when they are equal. With it the gains by drafting
# ahead that tests/bench measures (draft lengths 1, 2, 4; 4 and 8 streams; acceptance 0.8 to 0.95) are foreseen
# within 7%, and of the orders from 2.5 to 8 it fits the speeds of two micro-batches best (lengths 1 to 8; 32 and 64
# streams; two machines).
WAIT_ORDER = 5
# Weight of a new observation of what a call takes, which counts as so many times the known at most: a stalled machine
# is no slow engine.
NEW = 0.2
SURPRISE = 2.0


def pays(sequences: float, hit_rate: float, draft: float, ahead: float, verification: float) -> bool:
    """Whether several sequences should draft ahead.

    `hit_rate`: how often all of a round comes true, the target's own token too; seconds of a `draft`, of one `ahead`,
    which is a token longer and has to be done when the verification is, or soon after.
    """
    often, in_time = hit_rate >= LEAST + EACH * sequences, ahead <= (1 + PATIENCE) * verification
    return often and in_time and period(hit_rate, ahead, verification) < draft + verification


def period(hit_rate: float, ahead: float, verification: float) -> float:
    """Seconds in which each of several sequences that draft ahead makes a round.

    Who was wrong drafts anew while the target verifies for others.
    """
    return (2 - hit_rate) * side_by_side(ahead, verification)


def side_by_side(draft: float, verification: float) -> float:
    """Seconds that a draft call and a verification take side by side."""
    seconds: float = (draft**WAIT_ORDER + verification**WAIT_ORDER) ** (1 / WAIT_ORDER)
    return seconds


class DraftAhead:
    """Times in seconds. `possible`: the engines run side by side."""

    def __init__(self, possible: bool) -> None:
        self._possible = possible
        self._seconds: dict[tuple[Role, int], float] = {}
        self._k = 0
        self._verification = 0.0

    def timed(self, role: Role, length: int, seconds: float) -> None:
        """A shared call of `length` output tokens at most took so long, without new prompts."""
        kind = role, length
        known = self._seconds.get(kind, seconds)
        self._seconds[kind] = known + NEW * (min(seconds, SURPRISE * known) - known)
        if role == "target" and length > 1:
            self._k, self._verification = length - 1, self._seconds[kind]

    def worth(self, sequences: int, acceptance: Acceptance) -> bool:
        """Whether so many sequences should draft ahead, with the draft length that they had of late."""
        if sequences == 1:  # no other sequence waits for what is drafted in vain
            return self._possible
        if not self._possible or not self._k or LEAST + EACH * sequences > 1:
            return False
        draft = self.expected(self._k) or 0.0
        ahead = draft * (self._k + 1) / self._k
        return pays(sequences, acceptance.ahead_hit_rate(self._k), draft, ahead, self._verification)

    def expected(self, length: int, role: Role = "draft") -> float | None:
        """What a shared call of so many tokens takes; None: not known."""
        return self._seconds.get((role, length))

    @property
    def patience(self) -> float:
        """How long a verification waits for drafts."""
        return PATIENCE * self._verification
