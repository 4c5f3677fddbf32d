"""How many drafted tokens are accepted: estimates by position, of a sequence and of the server. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

# Acceptance of the first position assumed at the start, and the rounds that count as observed so.
FIRST_GUESS = 0.7
FIRST_ROUNDS = 4.0
# Rounds that a position's estimate weighs in that of the next.
PRIOR_ROUNDS = 8
# Rounds that the server's estimate may weigh in a sequence's: many where sequences are alike, few where they are not.
# The first is taken until that shows.
LIKENESS = (16, 4, 64)
# Rounds, of all sequences, after which it counts half how well each of these foretold.
LIKENESS_HALF_LIFE = 1000
# Drafted rounds after which an observation counts half: of one sequence, and of all (its rows add up), where many run
# so many of each.
SEQUENCE_HALF_LIFE = 64
SERVER_HALF_LIFE, SERVER_ROUNDS = 128, 16
# What was seen lately, of such a half-life, replaces what was known where it is so many standard deviations off.
LATELY_HALF_LIFE = 8
CONTRADICTION = 3.0


def in_answers(yields: Sequence[float], tokens: float) -> list[float]:
    """Tokens for each call of the target, by draft length, where answers have so many on average.

    `yields`: of a whole round, tau(k). The first token of an answer takes a call of its own, with the prompt, and of
    what the last round yields some is too much: (E[X^2] / E[X] - 1) / 2 of a round's X tokens, the mean overshoot of
    a renewal process on the integers (Feller 1968, An Introduction to Probability Theory I, XIII). Both cost the
    more the longer rounds are.
    """
    squares, before, answers = 0.0, 0.0, []
    for k, tau in enumerate(yields):
        squares += (2 * k + 1) * (tau - before)  # E[X^2] = sum of (2 j + 1) P(X > j)
        before = tau
        too_much = (squares / tau - 1) / 2
        answers.append(tau if math.isinf(tokens) else tokens / (1 + (tokens - 1 + too_much) / tau))
    return answers


class Likeness:
    """How alike sequences are: of the weights that the server's estimate may have in a sequence's, the one that has
    foretold best whether first draft tokens are accepted (prequential validation, Dawid 1984)."""

    def __init__(self) -> None:
        self._errors = [0.0] * len(LIKENESS)  # squared, the older ones discounted
        self._keep = 0.5 ** (1 / LIKENESS_HALF_LIFE)

    @property
    def rounds(self) -> int:
        """That weight."""
        return LIKENESS[self._errors.index(min(self._errors))]

    def observe(self, trials: float, hits: float, server: float, accepted: bool) -> None:
        """A sequence with so many `hits` of `trials` had a first draft token `accepted`; `server`: all have it with
        this probability."""
        for i, rounds in enumerate(LIKENESS):
            foretold = (hits + rounds * server) / (trials + rounds)
            self._errors[i] = self._keep * self._errors[i] + (foretold - accepted) ** 2


class Lately:
    """First draft tokens of the latest rounds of all sequences, the older ones discounted."""

    def __init__(self) -> None:
        self.trials = self.hits = self._squares = 0.0  # squares of the weights
        self._keep = 0.5 ** (1 / LATELY_HALF_LIFE)

    def observe(self, accepted: bool) -> None:
        """One more."""
        self.trials = self._keep * self.trials + 1
        self._squares = self._keep**2 * self._squares + 1
        self.hits = self._keep * self.hits + accepted

    def contradicts(self, p: float) -> bool:
        """Whether so many hits are not to be expected where the acceptance is `p`."""
        error, variance = self.hits - self.trials * p, self._squares * p * (1 - p)
        return error**2 > CONTRADICTION**2 * max(variance, 0.5)


class AcceptanceEstimate:
    """Acceptance by position, p_1..p_depth, of one sequence or (without `prior`) of the whole server.

    Counts of trials and successes are discounted by drafted rounds; position j is tried only where j - 1
    was accepted. A sequence's estimate starts at the server's (`prior`), which learns from it too; the
    server's takes the estimate of the position before as its start, so depths never tried look like the last
    one that was.
    """

    def __init__(self, depth: int, prior: AcceptanceEstimate | None = None) -> None:
        self.seen = 0  # drafted rounds, ever
        self._prior = prior
        self.likeness: Likeness = Likeness() if prior is None else prior.likeness
        self._growth = 2.0 ** (1 / (SERVER_HALF_LIFE if prior is None else SEQUENCE_HALF_LIFE))
        self._lately = Lately() if prior is None else None
        self._weight = 1.0  # of the next observation: it grows, which is the same as that all others fade
        self._trials = [0.0] * max(1, depth)
        self._hits = [0.0] * max(1, depth)
        if prior is None:
            self._trials[0], self._hits[0] = FIRST_ROUNDS, FIRST_ROUNDS * FIRST_GUESS
        self._p: list[float] = []
        self._tau: list[float] = []

    def observe(self, drafted: int, accepted: int) -> None:
        """Learn that `accepted` (0..drafted) of a round's `drafted` tokens were accepted."""
        drafted = min(drafted, len(self._trials))
        if drafted <= 0:
            return
        self.seen += 1
        if self._prior is not None:
            known = self._trials[0] / self._weight, self._hits[0] / self._weight
            self.likeness.observe(*known, self._prior._hits[0] / self._prior._trials[0], accepted > 0)
        for j in range(min(drafted, accepted + 1)):
            self._trials[j] += self._weight
            if j < accepted:
                self._hits[j] += self._weight
        self._weight *= self._growth
        if self._weight > 1e9:
            self._scale(1 / self._weight)
            self._weight = 1.0
        self._p = []
        if self._lately is not None:
            self._lately.observe(accepted > 0)
        if self._prior is not None:
            self._prior.observe(drafted, accepted)

    def remember(self, rows: int) -> None:
        """Of all: what was seen counts for some rounds of each, where so many sequences draft."""
        self._growth = 2.0 ** (1 / max(SERVER_HALF_LIFE, SERVER_ROUNDS * rows))

    def revise(self) -> None:
        """Of all: what was seen lately takes the place of what was known, where it contradicts that."""
        lately = self._lately
        if lately and lately.trials < self.rounds() and lately.contradicts(self._hits[0] / self._trials[0]):
            self.fade(lately.trials)
            self._hits[0] = self._trials[0] * lately.hits / lately.trials

    def fade(self, keep: float) -> None:
        """Let what is known weigh `keep` rounds at most: it may be out of date."""
        rounds = self.rounds()
        if rounds > keep:
            self._scale(keep / rounds)
        self._p = []

    def positions(self) -> Sequence[float]:
        """Estimates of p_1..p_depth."""
        if not self._p:
            self._estimate()
        return self._p

    def yields(self) -> Sequence[float]:
        """Expected tokens of a round, tau(k), for k = 0..depth."""
        if not self._p:
            self._estimate()
        return self._tau

    def expected(self, k: int) -> float:
        """Expected tokens of a round with `k` draft tokens, 1 + sum over i <= k of p_1 ... p_i."""
        return self.yields()[k]

    def ahead_hit_rate(self, k: int) -> float:
        """Probability that all of `k` draft tokens are accepted and the target's own is what the draft would say."""
        p = self.positions()
        return math.prod(p[:k]) * p[min(k, len(p) - 1)]

    def rounds(self) -> float:
        """Drafted rounds that were observed, the older ones discounted."""
        return self._trials[0] / self._weight

    def _scale(self, factor: float) -> None:
        self._trials = [value * factor for value in self._trials]
        self._hits = [value * factor for value in self._hits]
        self._p = []

    def _estimate(self) -> None:
        prior = None if self._prior is None else self._prior.positions()
        pseudo = (PRIOR_ROUNDS if prior is None else self.likeness.rounds) * self._weight
        p = start = self._hits[0] / self._trials[0] if prior is None else prior[0]
        reach = tokens = 1.0
        self._p, self._tau = [], [1.0]
        for j, trials in enumerate(self._trials):
            if j:  # as much better or worse than the server's as at the position before
                start = p if prior is None else min(prior[j] * p / max(prior[j - 1], 1e-6), 1.0)
            p = (self._hits[j] + pseudo * start) / (trials + pseudo)
            reach *= p
            tokens += reach
            self._p.append(p)
            self._tau.append(tokens)
