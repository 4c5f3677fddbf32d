"""How many tokens to draft: the length with the most tokens a second, judged from what is observed. Pure.

With p_j the probability that the j-th draft token is accepted when those before it were, a round with k
draft tokens yields tau(k) = 1 + sum over i <= k of p_1 ... p_i tokens a sequence; it takes the time of a draft call
and of a verification, both fitted to the calls observed. The goodput of k is rows * tau(k) / period(k), and 0,
the target alone, is a candidate like the others (Liu et al., 2024, "Optimizing Speculative Decoding for
Serving Large Language Models Using Goodput", arXiv:2406.14066).

The acceptance of a length that is never drafted and the cost of a call that is never made stay unknown,
so other lengths are tried now and then. What a trial is expected to lose is paid from a budget that is a
fixed share of the time passed, whatever the acceptance, costs and load: `PROBE_SHARE` at most.

Nothing here reads a clock, locks or waits: times come in, in seconds, and the caller holds a lock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal
from weakref import WeakKeyDictionary

from tandem_serving.call_costs import Costs

Devices = Literal["separate", "shared"]

# Acceptance of the first position assumed at the start, and the rounds that count as observed so.
FIRST_GUESS = 0.7
FIRST_ROUNDS = 4.0
# Rounds that the server's estimate weighs in a sequence's, and a position's in that of the next.
PRIOR_ROUNDS = 8
# Drafted rounds after which an observation counts half: of one sequence, and of all (its rows add up).
SEQUENCE_HALF_LIFE = 64
SERVER_HALF_LIFE = 128
# Rounds that the server's estimate still weighs when it may be out of date.
FADED_ROUNDS = 32
# Draft length of the first rounds, while no cost is known.
FIRST_LENGTH = 4
# A length must be better by this share to be changed to, and for so long that the sum over rounds of
# what staying loses reaches PATIENCE rounds' worth: 10% better: 1 round, 2% better: 5 rounds.
MIN_GAIN = 0.015
PATIENCE = 0.1
# Rounds between decisions; fewer at the start, and at once when the load changes, or after a trial while off.
DECIDE_EVERY = 24
# Share of the time that trials of other lengths may lose; fruitless ones halve it step by step.
PROBE_SHARE = 0.008
# A trial is taken to lose this share of its round at least; one of another number of cohorts takes some rounds.
LEAST_LOSS = 0.02
REGROUP_ROUNDS = 4
# Trials without a budget at the start and whenever there are twice as many rows as ever before.
FREE_TRIALS = 8
# A sequence leaves the cohort when it is faster alone by this share and, over this many rounds of its own,
# has had less than half of the cohort's accepted tokens: what holds for all is decided by the length.
ALONE_GAIN = 0.05
ALONE_ROUNDS = 16


class Acceptance:
    """Acceptance by position, p_1..p_depth, of one sequence or (without `prior`) of the whole server.

    Counts of trials and successes are discounted by drafted rounds; position j is tried only where j - 1
    was accepted. A sequence's estimate starts at the server's (`prior`), which learns from it too; the
    server's takes the estimate of the position before as its start, so depths never tried look like the last
    one that was.
    """

    def __init__(self, depth: int, prior: Acceptance | None = None) -> None:
        self._prior = prior
        self._growth = 2.0 ** (1 / (SERVER_HALF_LIFE if prior is None else SEQUENCE_HALF_LIFE))
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
        for j in range(min(drafted, accepted + 1)):
            self._trials[j] += self._weight
            if j < accepted:
                self._hits[j] += self._weight
        self._weight *= self._growth
        if self._weight > 1e9:
            self._scale(1 / self._weight)
            self._weight = 1.0
        self._p = []
        if self._prior is not None:
            self._prior.observe(drafted, accepted)

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

    def rounds(self) -> float:
        """Drafted rounds that were observed, the older ones discounted."""
        return self._trials[0] / self._weight

    def _scale(self, factor: float) -> None:
        self._trials = [value * factor for value in self._trials]
        self._hits = [value * factor for value in self._hits]
        self._p = []

    def _estimate(self) -> None:
        prior = None if self._prior is None else self._prior.positions()
        pseudo = PRIOR_ROUNDS * self._weight
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


class Budget:
    """Seconds that trials may lose: a share of the time passed, a smaller one after each fruitless trial."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._credit = 0.0
        self._share = PROBE_SHARE

    def earn(self, now: float, longest: float) -> float:
        """Count the time since the last call, `longest` at most (idle time earns nothing); returns it."""
        passed = min(max(0.0, now - self._now), longest)
        self._now = now
        self._credit += self._share * passed
        return passed

    def holds(self, seconds: float) -> bool:
        """Whether there is so much."""
        return self._credit >= seconds

    def afford(self, loss: float) -> bool:
        """Pay for a trial expected to lose `loss` seconds if there is enough; the rest is not kept for long."""
        if not self.holds(loss):
            return False
        self._credit = min(self._credit - loss, loss)
        self._share = max(self._share / 1.5, PROBE_SHARE / 2)
        return True

    def charge(self, seconds: float) -> None:
        """Pay for what a trial took beyond the expected."""
        self._credit -= max(0.0, seconds)

    def refresh(self) -> None:
        """A trial was fruitful: the full share again."""
        self._share = PROBE_SHARE


@dataclass(frozen=True)
class Decision:
    """What was decided and why: `goodput` (tokens/s by length), `acceptance` (p_1.. of the server)."""

    k: int
    rows: int
    goodput: dict[int, float]
    acceptance: tuple[float, ...]


class DraftLength:
    """The draft length of the sequences that speculate, between `minimum` and `maximum`, or 0.

    0 (the target alone) is a candidate unless `minimum` >= 1. One object decides for all cohorts; `server`
    is the prior of the sequences' acceptances. All methods are called under one lock.
    """

    def __init__(self, minimum: int, maximum: int, costs: Costs, devices: Devices) -> None:
        self.server = Acceptance(maximum)
        self._costs = costs
        self._separate = devices == "separate"
        self._candidates = [*([0] if minimum < 1 else []), *range(max(1, minimum), maximum + 1)]
        self._k = min(max(minimum, FIRST_LENGTH), maximum)
        self._trial: int | None = None
        self._trials = self._free = 0
        self._explored = 0.5  # rows up to which all lengths around were tried
        self._longest = 1.0  # seconds between two rounds that count, at most
        self._regroup = 0  # rounds left of a trial with the other number of cohorts
        self._urge = 0.0
        self._rounds = self._decided = 0
        self._slots = 1
        self._mean = 1.0  # expected tokens of a round of the cohort
        self._budget = Budget(0.0)
        self._apart: WeakKeyDictionary[Acceptance, Budget] = WeakKeyDictionary()
        self._decision = Decision(self._k, 0, {}, ())

    def choose(self, now: float, rows: int, sequences: Collection[Acceptance]) -> int:
        """The draft length of the next round; call it once a round (with 0, once a target step or call).

        `now` in seconds, `rows` how many sequences run and may speculate (all cohorts), `sequences` their
        acceptances (read only now and then). Those that are better off alone are left out of account.
        """
        rows = max(1, rows - len(self._apart))
        if not self._costs.known:
            return self._k
        self._rounds += 1
        self._regroup = max(0, self._regroup - 1)
        self._settle(now, rows)
        if self._due(rows):
            self._decide(rows, [sequence for sequence in sequences if sequence not in self._apart])
        self._trial = self._probe(rows)
        if self._trial and not self._k:
            self.server.fade(FADED_ROUNDS)
            for sequence in sequences:
                sequence.fade(0)
        return self._k if self._trial is None else self._trial

    def alone(self, now: float, sequence: Acceptance, rows: int) -> bool:
        """Whether this sequence is faster with the target alone than in the cohort's rounds.

        `rows`: all sequences that run. Told apart only while the others draft; asked again each round or
        call, it says False now and then so that the sequence drafts a round and shows what it has become.
        """
        if not self._k or self._candidates[0] or not self._decision.rows:
            return False
        tokens = sequence.expected(self._k)
        period = self._period(self._decision.rows, self._k)
        loss = period - tokens * self._costs.target(rows, 0)
        budget = self._apart.get(sequence)
        if budget is None:
            poor = 2 * (tokens - 1) < self._mean - 1 and sequence.rounds() >= ALONE_ROUNDS
            if leaves := poor and loss > ALONE_GAIN * period:
                self._apart[sequence] = Budget(now)
            return leaves
        if loss <= 0:
            del self._apart[sequence]
            return False
        budget.earn(now, DECIDE_EVERY * period)
        if budget.afford(loss):
            sequence.fade(PRIOR_ROUNDS)
            return False
        return True

    def slots(self, rows: int, k: int) -> int:
        """1: all rows in lock-step; 2: two cohorts, of which one drafts while the other verifies."""
        if not self._separate or rows < 2 or k < 1:
            return 1
        one, two = self._lock_step(rows, k), self._alternating(rows, k)
        if two < one * (1 - MIN_GAIN) if self._slots == 1 else one < two * (1 - MIN_GAIN):
            self._slots = 3 - self._slots
        return 3 - self._slots if self._regroup else self._slots

    def explain(self) -> Decision:
        """The latest decision, for logs and metrics."""
        return self._decision

    def _lock_step(self, rows: float, k: int) -> float:
        return self._costs.draft(rows, k) + self._costs.target(rows, k)

    def _alternating(self, rows: float, k: int) -> float:
        return 2 * max(self._costs.draft(rows / 2, k), self._costs.target(rows / 2, k))

    def _period(self, rows: int, k: int) -> float:
        """Seconds in which every row makes one round with `k` draft tokens."""
        if k == 0:
            return self._costs.target(rows, 0)
        lock_step = self._lock_step(rows, k)
        return min(lock_step, self._alternating(rows, k)) if self._separate and rows > 1 else lock_step

    def _settle(self, now: float, rows: int) -> None:
        """Book the time of the last round; a trial that took far longer than expected pays for it."""
        passed = self._budget.earn(now, self._longest)
        if self._trial is not None:
            self._budget.charge(passed - 2 * self._period(rows, self._trial))

    def _due(self, rows: int) -> bool:
        last = self._decision.rows
        wait = min(DECIDE_EVERY, 1 + self._rounds // 8)
        moved = abs(rows - last) * 4 > last
        back = self._trial is not None and not self._k  # it pays to come back at once
        return moved or back or self._rounds - self._decided >= wait

    def _decide(self, rows: int, sequences: Collection[Acceptance]) -> None:
        yields = [sequence.yields() for sequence in sequences] or [self.server.yields()]
        tau = [sum(column) / len(yields) for column in zip(*yields, strict=True)]
        goodput = {k: rows * tau[k] / self._period(rows, k) for k in self._candidates}
        best = max(goodput, key=goodput.__getitem__)
        gain = goodput[best] / goodput[self._k] - 1
        self._urge = self._urge + gain * (self._rounds - self._decided) if gain > MIN_GAIN else 0.0
        self._decided = self._rounds
        if self._urge >= PATIENCE:
            self._k, self._urge = best, 0.0
            self._budget.refresh()
            if not best:
                self._apart.clear()  # all run alone now, and are tried together
        self._mean = tau[self._k]
        self._longest = DECIDE_EVERY * self._period(rows, self._k)
        self._decision = Decision(self._k, rows, goodput, tuple(self.server.positions()))

    def _probe(self, rows: int) -> int | None:
        """Another length to try in this round, in turn, when the budget allows; else None.

        Its own length has a turn too, with the other number of cohorts.
        """
        if rows >= 2 * self._explored:  # nothing is known of such a load yet
            self._explored, self._free = rows, FREE_TRIALS
        least = LEAST_LOSS * self._longest / DECIDE_EVERY
        if self._trial is not None or self._regroup or not (self._free or self._budget.holds(least)):
            return None
        goodput = self._decision.goodput
        lengths = (self._k + 1, self._k, self._k + 2, 0) if self._k else (1,)
        turns = [k for k in lengths if k in goodput and (k != self._k or (self._separate and rows > 1))]
        if not turns:
            return None
        k = turns[self._trials % len(turns)]
        if k == self._k:
            loss = self._regroup_loss(rows)
        else:
            loss = self._period(rows, k) * max(LEAST_LOSS, 1 - goodput[k] / goodput[self._k])
        if not self._free and not self._budget.afford(loss):
            return None
        self._free = max(0, self._free - 1)
        self._trials += 1
        if k != self._k:
            return k
        self._regroup = REGROUP_ROUNDS
        return None

    def _regroup_loss(self, rows: int) -> float:
        periods = self._lock_step(rows, self._k), self._alternating(rows, self._k)
        return REGROUP_ROUNDS * max(LEAST_LOSS * periods[0], periods[2 - self._slots] - periods[self._slots - 1])
