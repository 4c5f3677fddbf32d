"""Trials of other draft lengths, of another number of micro-batches, and of the target alone: which, and when. Pure.

What a trial is expected to lose is paid from a budget that is a fixed share of the time passed, whatever the
acceptance, costs and load: see `trial_budget`. Where engines work side by side it takes some rounds, as the first
ones after a change say nothing, and is made for what it may gain.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

from tandem_serving.bls.draft_length.call_costs import Costs
from tandem_serving.bls.draft_length.round_times import RoundPlan, RoundTimes
from tandem_serving.bls.draft_length.trial_budget import ALONE_SHARE, Budget

# A trial is taken to lose this share of its rounds at least.
LEAST_LOSS = 0.02
# Side by side it takes so many rounds, of which the first ones say nothing. Micro-batches wait for each other then:
# another length costs so much of a round, there and back, another number of micro-batches more than one; measured
# with tests/bench/bls.
TRIAL_ROUNDS, AFTER_CHANGE = 6, 2
RETIMED, REGROUPED = 0.4, 1.5
# On a shared device the first one still has the draft that was made ahead.
SHARED_ROUNDS = 2
# What it finds has to be worth what it loses within so many rounds.
HORIZON = 300
# A trial of the target alone takes so many calls of each sequence: of 1, 2, 4 and 8 tokens. Only a call of several
# steps shows what the target takes by itself: all begin their first ones together, which takes far longer.
ALONE_CALLS = 4
# Trials without a budget at the start and whenever there are twice as many rows as ever before.
FREE_TRIALS = 4
# Sequences of a trial while nothing is drafted, at most, or half of all.
TRIAL_ROWS = 8

NORMAL = NormalDist()


class Trial(NamedTuple):
    """Rounds by another plan, for so many rounds of each sequence."""

    plan: RoundPlan
    rounds: int


class Standing(NamedTuple):
    """What is known: `rows` run by this `plan`, and `goodput` is thought of each (tokens/s)."""

    rows: int
    plan: RoundPlan
    goodput: dict[RoundPlan, float]


class Trials:
    """When what is tried, by what rounds and calls take (`times`, `costs`)."""

    def __init__(self, times: RoundTimes, costs: Costs) -> None:
        self._times = times
        self._costs = costs
        self._free = 0
        self._next = 0  # whose turn it is
        self._explored = 0.5  # rows up to which all plans around were tried
        self._budget, self._alone_budget = Budget(0.0), Budget(0.0, ALONE_SHARE)

    @property
    def free(self) -> bool:
        """Whether the first ones at such a load are still to come."""
        return self._free > 0

    def earn(self, now: float, longest: float, off: bool) -> float:
        """Count the time since the last call, `longest` at most; returns it.

        While the target runs alone (`off`) what trials of it may lose is not spent: they would follow each other
        when speculation is back.
        """
        self._alone_budget.earn(now, 0.0 if off else longest)
        return self._budget.earn(now, longest)

    def charge(self, seconds: float) -> None:
        """Pay for what a trial took beyond the expected."""
        self._budget.charge(seconds)

    def grown(self, rows: int) -> None:
        """Of twice as many rows as ever before nothing is known yet."""
        if rows >= 2 * self._explored:
            self._explored, self._free = rows, FREE_TRIALS

    def fruitful(self, drafts: bool) -> None:
        """The plan was changed; `drafts`: from one with drafts to another."""
        if drafts:
            self._budget.forgive()
        self._budget.refresh()
        self._alone_budget.refresh()

    def next(self, standing: Standing, period: float, settled: bool) -> Trial | None:
        """Another plan to try now, in turn, when the budget allows; else None.

        `period`: seconds of a round at the latest decision; `settled`: whether it is known what rounds take as they
        go. The target alone has a budget of its own, as that is dear: the others do not wait for it.
        """
        rows, now, _ = standing
        side_by_side = self._times.side_by_side(rows, now.k)
        candidates = self._worth_knowing(standing, settled) if side_by_side else _neighbours(standing)
        if not candidates:
            return None
        plan = candidates[self._next % len(candidates)]
        if not self._free and not self._afford(self._loss(standing, plan), plan, period, side_by_side):
            return None
        self._free = max(0, self._free - 1) if plan.k or not side_by_side else 0
        self._next += 1
        return Trial(plan, self._rounds(rows, now, plan))

    def _afford(self, loss: float, plan: RoundPlan, period: float, side_by_side: bool) -> bool:
        if not plan.k:
            affordable = self._alone_budget.afford(loss)
            self._next += not affordable  # the next in turn does not wait for it
            return affordable
        if side_by_side:  # what may be much better is not waited for
            return self._budget.borrow(loss)
        return self._budget.holds(LEAST_LOSS * period) and self._budget.afford(loss)

    def _worth_knowing(self, standing: Standing, settled: bool) -> list[RoundPlan]:
        """Side by side, rounds are compared by what such rounds took: the plan that may gain most for what its trial
        loses, three times for each trial of the target alone.

        Of another number of micro-batches the length that is best for it: two micro-batches draft more, while the
        target works for the others. It comes first of all, as calls tell little of it.
        """
        _, now, goodput = standing
        if not settled:
            return []
        others = [plan for plan in goodput if plan.micro_batches != now.micro_batches and plan.k]
        near = [
            max(others, key=goodput.__getitem__),
            *(RoundPlan(now.micro_batches, now.k + more) for more in (1, 2, -1)),
        ]
        near = [plan for plan in near if plan.k and plan in goodput]
        alone = [plan for plan in [RoundPlan(1, 0)] if plan in goodput]
        worth = {plan: self._worth(standing, plan) for plan in near}
        best = near[0] if self._free == FREE_TRIALS else max(near, key=worth.__getitem__)
        return [best, *alone, best, best] if worth[best] > 1 else alone

    def _worth(self, standing: Standing, plan: RoundPlan) -> float:
        """How many times its loss a trial gains within `HORIZON` rounds, by the expected improvement (Jones,
        Schonlau, Welch, 1998, "Efficient Global Optimization of Expensive Black-Box Functions", equation 15)."""
        rows, now, goodput = standing
        known = [now, *([RoundPlan(1, 0)] if self._costs.alone_known and RoundPlan(1, 0) in goodput else [])]
        ratio = goodput[plan] / max(goodput[other] for other in known)
        better, spread = ratio - 1, ratio * self._times.uncertainty(rows, plan)
        gain = better * NORMAL.cdf(better / spread) + spread * NORMAL.pdf(better / spread)
        return HORIZON * gain * self._times.seconds(rows, now) / self._loss(standing, plan)

    def _rounds(self, rows: int, now: RoundPlan, plan: RoundPlan) -> int:
        if not plan.k:
            return ALONE_CALLS
        if not now.k:
            return 1
        return TRIAL_ROUNDS if self._times.side_by_side(rows, plan.k) else SHARED_ROUNDS

    def _loss(self, standing: Standing, plan: RoundPlan) -> float:
        """Seconds that a trial is expected to lose."""
        rows, now, goodput = standing
        worse = max(LEAST_LOSS, 1 - goodput[plan] / goodput[now])
        seconds, rounds = self._times.seconds(rows, plan), self._rounds(rows, now, plan)
        if not now.k:  # a few rows, which wait for steps in flight and for each other; all for a shared device
            share = few(rows) / rows
            others = self._costs.draft(few(rows), plan.k) * (1 - share) if self._times.shared else 0.0
            return others + (seconds * worse + (rows > 1) * self._costs.alone(rows)) * share
        if not plan.k:
            tokens: int = 2**ALONE_CALLS - 1
            return tokens * seconds * worse + ALONE_CALLS * self._costs.together(rows)
        if not self._times.side_by_side(rows, plan.k):
            return rounds * seconds * worse
        changed = REGROUPED if plan.micro_batches != now.micro_batches else RETIMED
        return rounds * seconds * worse + changed * self._times.seconds(rows, now)


def few(rows: int) -> int:
    """Sequences that take part in a trial while nothing is drafted, of so many."""
    return min(TRIAL_ROWS, (rows + 1) // 2)


def _neighbours(standing: Standing) -> list[RoundPlan]:
    k = standing.plan.k
    lengths = (k + 1, k + 2, 0) if k else (1,)
    return [RoundPlan(1, length) for length in lengths if RoundPlan(1, length) in standing.goodput]
