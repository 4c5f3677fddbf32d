"""How many draft tokens are accepted, by position, of the whole server. Pure."""

from __future__ import annotations

import math

# Acceptance that is assumed at first, and the rounds that this counts for.
FIRST_GUESS, FIRST_ROUNDS = 0.7, 4.0
# Rounds that the estimate of a position counts for in that of the next.
PRIOR_ROUNDS = 8.0


class Acceptance:
    """p_1..p_depth: p_j is the probability that the j-th draft token is accepted when those before it were.

    Counts of tokens tried and accepted, which fade as rounds go by. A position that was seldom tried takes the
    estimate of the one before it. `yields`: expected tokens of a round, tau(k) = 1 + sum over i <= k of p_1 ... p_i,
    for k = 0..depth.
    """

    def __init__(self, depth: int) -> None:
        self._tried = [0.0] * max(1, depth)
        self._accepted = [0.0] * max(1, depth)
        self._tried[0], self._accepted[0] = FIRST_ROUNDS, FIRST_ROUNDS * FIRST_GUESS
        self._new = 0  # rounds since the counts last faded
        self.yields: list[float] = []
        self._estimate()

    def observe(self, drafted: int, accepted: int) -> None:
        """A round of `drafted` tokens kept the first `accepted` of them (0..drafted)."""
        drafted = min(drafted, len(self._tried))
        self._new += drafted > 0
        for j in range(min(drafted, accepted + 1)):
            self._tried[j] += 1
            self._accepted[j] += j < accepted

    def update(self, half_life: float, most: float = math.inf) -> None:
        """Make estimates of what was observed; it counts half after `half_life` rounds, as `most` rounds at most."""
        keep = min(0.5 ** (self._new / half_life), most / max(self._tried[0], most))
        self._tried = [count * keep for count in self._tried]
        self._accepted = [count * keep for count in self._accepted]
        self._new = 0
        self._estimate()

    def _estimate(self) -> None:
        p = self._accepted[0] / max(self._tried[0], 1e-9)
        reach = tokens = 1.0
        self.yields = [1.0]
        for tried, accepted in zip(self._tried, self._accepted, strict=True):
            p = (accepted + PRIOR_ROUNDS * p) / (tried + PRIOR_ROUNDS)
            reach *= p
            tokens += reach
            self.yields.append(tokens)
