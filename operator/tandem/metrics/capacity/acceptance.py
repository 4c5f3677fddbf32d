"""How many tokens a draft-and-verify round gives: acceptance by position, from counts of a window. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

# Acceptance assumed before any was seen.
FIRST_GUESS = 0.7
# Weight of the earlier estimate against a window's rounds, in rounds. Windows of busy services have thousands.
PRIOR_ROUNDS = 50.0
# Most draft tokens a round that are reckoned with, as of the largest tree that a specification may ask for. A pod may
# say any number, and the time that it takes is everybody's.
MOST_DRAFTED = 256


@dataclass(frozen=True)
class Drafts:
    """Draft-and-verify rounds of a window: counts of tokens, all pods together."""

    rounds: float
    drafted: float
    accepted: float
    per_position: Sequence[float] = ()
    """Accepted tokens by position in the draft; empty where it is not reported."""


class PositionalAcceptance:
    """Estimates of p_1..p_depth: the probability that a draft token is accepted when those before it were."""

    def __init__(self, depth: int) -> None:
        self.rounds = 0.0
        """Rounds that were observed, ever."""
        self._p = [FIRST_GUESS] * depth

    @property
    def positions(self) -> tuple[float, ...]:
        """p_1..p_depth."""
        return tuple(self._p)

    def expected(self, k: int) -> float:
        """Tokens of a round with `k` draft tokens, its own one included.

        tau(k) = 1 + sum over i <= k of p_1 ... p_i (Leviathan et al., 2023, arXiv:2211.17192, where all p are equal).
        """
        reach = tokens = 1.0
        for p in self._p[:k]:
            reach *= p
            tokens += reach
        return tokens

    def observe(self, drafts: Drafts) -> None:
        """Learn from a window. A window's counts outweigh what was thought before, but for positions that it
        did not try: those stay as much better or worse than the position before as they were."""
        if drafts.rounds <= 0 or drafts.drafted <= 0 or not self._p:
            return
        self.rounds += drafts.rounds
        hits = drafts.per_position or _as_if_equal(drafts)
        mean = drafts.drafted / drafts.rounds
        old, reached = list(self._p), drafts.rounds
        for j in range(len(old)):
            trials = reached * _share(mean, j)
            accepted = min(hits[j] if j < len(hits) else 0.0, trials)
            start = old[j] if j == 0 else min(1.0, old[j] * self._p[j - 1] / max(old[j - 1], 1e-6))
            self._p[j] = (accepted + PRIOR_ROUNDS * start) / (trials + PRIOR_ROUNDS)
            reached = accepted


def _share(mean: float, j: int) -> float:
    """Of the rounds whose drafts reached position j - 1 the share that reached j: lengths are thought to be the two
    integers around their mean."""
    long, before = (min(max(mean - i, 0.0), 1.0) for i in (j, j - 1))
    return long / before if before > 0 else 0.0


def _as_if_equal(drafts: Drafts) -> list[float]:
    """Accepted tokens by position where only their sum is reported: as if all positions were alike."""
    k = max(1, round(min(drafts.drafted / drafts.rounds, MOST_DRAFTED)))
    wanted = min(drafts.accepted / drafts.rounds, k)
    low, high = 0.0, 1.0
    for _ in range(40):
        p = (low + high) / 2
        low, high = (p, high) if sum(p**i for i in range(1, k + 1)) < wanted else (low, p)
    return [drafts.rounds * low**i for i in range(1, k + 1)]
