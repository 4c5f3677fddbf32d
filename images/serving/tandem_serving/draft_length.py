"""How many tokens to draft: the length with the most tokens a second, judged from what is observed. Pure.

With p_j the probability that the j-th draft token is accepted when those before it were, a round with k
draft tokens yields tau(k) = 1 + sum over i <= k of p_1 ... p_i tokens a sequence, a little less as answers begin
and end; it takes the time of a draft call and of a verification, both fitted to the calls observed. The goodput of k
is rows * tau(k) / period(k), and 0, the target alone, is a candidate like the others (Liu et al., 2024, "Optimizing
Speculative Decoding for Serving Large Language Models Using Goodput", arXiv:2406.14066).

The acceptance of a length that is never drafted and the cost of a call that is never made stay unknown,
so other lengths are tried now and then. What a trial is expected to lose is paid from a budget that is a
fixed share of the time passed, whatever the acceptance, costs and load: see `trial_budget`. While nothing is
drafted, a few sequences draft a token now and then, which shows the acceptance, and the draft engine is believed to
become cheaper, so that rounds of all sequences show its cost again in the end.

Nothing here reads a clock, locks or waits: times come in, in seconds, and the caller holds a lock.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

from tandem_serving.acceptance import PRIOR_ROUNDS, Acceptance, in_answers
from tandem_serving.call_costs import Costs
from tandem_serving.round_times import MIN_GAIN, RoundTimes
from tandem_serving.trial_budget import ALONE_SHARE, Budget

Devices = Literal["separate", "shared"]

# Draft length of the first rounds, while no cost is known.
FIRST_LENGTH = 4
# A length must be better by MIN_GAIN to be changed to, and for so long that the sum over rounds of what staying loses
# reaches so many rounds' worth: 10% better: 1 round, 2% better: 5 rounds.
PATIENCE = 0.1
# The same before drafting ends or comes back, for each row more: all sequences then begin something else together,
# with short calls, which loses several rounds' worth (0.4 s with 64 rows, by tests/bench/bls: ten). It ends with so
# many rows' patience at least: rounds that have just come back are not known well.
PATIENCE_ROW, PATIENCE_ROWS = 1 / 16, 12
# Rounds between decisions; fewer at the start and after speculation came back, and at once when the load changes.
DECIDE_EVERY = 24
# A trial is taken to lose this share of its round at least; one of another number of cohorts takes some rounds.
LEAST_LOSS = 0.02
REGROUP_ROUNDS = 4
# A trial of the target alone takes so many calls of each sequence: of 1, 2, 4 and 8 tokens. Only a call of several
# steps tells what the target takes by itself: all begin their first ones together, which takes far longer.
ALONE_CALLS = 4
# Rounds whose length says little: at the start, when the load has changed, and after speculation came back, from a
# trial of the target alone, too. Of calls little is known then, and sequences that do not come at once make more than
# two cohorts for a while.
UNSETTLED_ROUNDS = 16
# Trials without a budget at the start and whenever there are twice as many rows as ever before; the length
# stays until they are over.
FREE_TRIALS = 4
# While nothing is drafted: sequences of a trial, at most, or half of all, and seconds after which the draft engine is
# believed to cost half. Each time that speculation came back for nothing, for fewer rounds than `FRUITLESS`, those
# seconds become `MORE_DOUBT` times as many; `MOST_FRUITLESS` times at most.
TRIAL_ROWS = 8
DOUBT_SECONDS, MORE_DOUBT = 10.0, 3
FRUITLESS, MOST_FRUITLESS = 4 * DECIDE_EVERY, 3
# A sequence leaves the cohort when it is faster alone by this share and, over this many rounds of its own,
# has had less than half of the cohort's accepted tokens: what holds for all is decided by the length.
ALONE_GAIN = 0.05
ALONE_ROUNDS = 16
# Answers over which their length is averaged.
ANSWERS = 100


@dataclass(frozen=True)
class Choice:
    """The draft length `k` of the next `turns` rounds of a sequence."""

    k: int
    turns: int


class Order(NamedTuple):
    """A number of cohorts, and a draft length."""

    waves: int
    k: int


@dataclass(frozen=True)
class Decision:
    """What was decided and why: `goodput` (tokens/s by length), `acceptance` (p_1.. of the server)."""

    k: int
    rows: int
    goodput: dict[int, float]
    acceptance: tuple[float, ...]


class DraftLength:
    """The draft length of the sequences that speculate, between `minimum` and `maximum`, or 0.

    0 (the target alone) is a candidate unless `minimum` >= 1. `waves`: sequences share engine calls. One object
    decides for all cohorts; `server` is the prior of the sequences' acceptances. All methods are called under a lock.
    """

    def __init__(self, minimum: int, maximum: int, costs: Costs, devices: Devices, waves: bool = True) -> None:
        self.server = Acceptance(maximum)
        self._costs = costs
        self._times = RoundTimes(costs, self.server, devices == "separate", waves)
        self._candidates = [*([0] if minimum < 1 else []), *range(max(1, minimum), maximum + 1)]
        self._k = min(max(minimum, FIRST_LENGTH), maximum)
        self._trial: int | None = None
        self._trials = self._free = 0
        self._awaited = 0  # drafted rounds, ever, when a trial while off will be over
        self._explored = 0.5  # rows up to which all lengths around were tried
        self._fruitless = 0  # times in a row that speculation came back for nothing, and with how many rows
        self._fruitless_rows = 0
        self._back = False  # whether speculation came back since the start
        self._longest = 1.0  # seconds between two rounds that count, at most
        self._regroup = 0  # rounds left of a trial with the other number of cohorts, and with what
        self._order = Order(1, self._k)
        self._more = 0  # turns left of a trial of the target alone
        self._urge, self._better = 0.0, self._k  # to change, and to what
        self._rounds = self._waited = 0.0  # since nothing was known; since the latest decision
        self._unsettled = float(UNSETTLED_ROUNDS)  # rounds left of those whose length says little
        self._last = Order(1, self._k)  # in flight since the latest choice
        self._settled = False  # as many waves as before that
        self._tau: Sequence[float] = self.server.yields()  # expected tokens of a round of the cohort, by length
        self._budget, self._alone_budget = Budget(0.0), Budget(0.0, ALONE_SHARE)
        self._apart: WeakKeyDictionary[Acceptance, Budget] = WeakKeyDictionary()
        self._answer, self._answers = math.inf, 0  # tokens of an answer, on average; of how many
        self._decision = Decision(self._k, 0, {}, ())

    @property
    def off(self) -> bool:
        """Whether the target runs alone, but for trials."""
        return not self._k

    def choose(self, now: float, rows: int, sequences: Collection[Acceptance]) -> Choice:
        """The draft length of the next turns; call it when they are over (with 0, a call is a turn).

        `now` in seconds, `rows` how many sequences run and may speculate (all cohorts), `sequences` their
        acceptances (read only now and then). Those that are better off alone are left out of account.
        """
        rows = max(1, rows - len(self._apart))
        if not self._costs.known:
            return Choice(self._k, rows)
        self._settle(now, rows)
        if self._more:
            self._more -= 1
            return Choice(0, rows)
        if rows >= 2 * self._explored:  # nothing is known of such a load yet
            self._explored, self._free = rows, FREE_TRIALS
        if self._due(rows):
            self._decide(now, rows, sequences)
        self._trial = self._probe(rows)
        if self._trial and self.off:
            self._forget(rows, sequences)
            return Choice(self._trial, _few(rows))
        k = self._k if self._trial is None else self._trial
        k = self._order.k if self._regroup else k
        last, self._last = self._last, Order(self.slots(rows, k), k)
        self._settled = last.waves == self._last.waves
        return Choice(k, rows)

    def alone(self, now: float, sequence: Acceptance, rows: int) -> bool:
        """Whether this sequence is faster with the target alone than in the cohort's rounds.

        `rows`: all sequences that run. Told apart only while the others draft; asked again each round or
        call, it says False now and then so that the sequence drafts a round and shows what it has become.
        """
        budget = self._apart.get(sequence) if self._apart else None
        if budget is None:
            return False
        loss = self._loss_together(sequence, rows)
        if loss <= 0:
            del self._apart[sequence]
            return False
        budget.earn(now, self._longest)
        if budget.afford(loss):
            sequence.fade(PRIOR_ROUNDS)
            return False
        return True

    def slots(self, rows: int, k: int) -> int:
        """1: all rows in lock-step; 2: two cohorts, of which one drafts while the other verifies."""
        if not self._times.side_by_side(rows, k):
            return 1
        return self._order.waves if self._regroup else self._times.waves(rows, k)

    def ended(self, tokens: int) -> None:
        """An answer had so many."""
        if tokens > 0:
            self._answers = min(self._answers + 1, ANSWERS)
            mean = tokens if self._answers == 1 else self._answer
            self._answer = mean + (tokens - mean) / self._answers

    def explain(self) -> Decision:
        """The latest decision, for logs and metrics."""
        return self._decision

    def _settle(self, now: float, rows: int) -> None:
        """Book the time of the last turns."""
        passed = self._budget.earn(now, self._longest)
        self._times.passed(passed)
        # While off nobody spends it: when speculation is back, trials would follow each other.
        self._alone_budget.earn(now, 0.0 if self.off else self._longest)
        step = passed / self._times.period(rows, self._k)
        self._rounds += step
        self._waited += step
        self._unsettled = UNSETTLED_ROUNDS if self._trial == 0 else max(0.0, self._unsettled - step)
        self._regroup = max(0, self._regroup - 1)
        if 2 * rows <= self._fruitless_rows:
            self._fruitless = 0  # rounds of so many waited: of these nothing is known
        if self.off:
            keep = 0.5 ** (passed / (DOUBT_SECONDS * MORE_DOUBT**self._fruitless))
            self._costs.doubt_draft(keep)
            self._times.doubt(keep)
        elif self._trial is None and self._settled and not self._apart and not self._unsettled:
            self._times.took(self._last.waves, rows, self._last.k, passed)
        elif self._trial:  # of the target alone all calls are paid for
            self._budget.charge(passed - 2 * self._times.period(rows, self._trial))

    def _due(self, rows: int) -> bool:
        if self._awaited:
            if self.server.seen < self._awaited and self._waited < DECIDE_EVERY:
                return False
            self._awaited = 0
            self.server.revise()
            return True
        last = self._decision.rows
        moved = abs(rows - last) * 4 > last
        if moved:
            self._unsettled = UNSETTLED_ROUNDS
        return moved or self._waited >= min(DECIDE_EVERY, 1 + self._rounds / 8)

    def _decide(self, now: float, rows: int, sequences: Collection[Acceptance]) -> None:
        self._times.review()
        together = [sequence for sequence in sequences if sequence not in self._apart]
        yields = [sequence.yields() for sequence in together] or [self.server.yields()]
        tau = in_answers([sum(column) / len(yields) for column in zip(*yields, strict=True)], self._answer)
        tau[0] = 1.0  # calls of the target alone are counted, see Costs
        goodput = {k: rows * tau[k] / self._times.period(rows, k) for k in self._candidates}
        best = max(goodput, key=goodput.__getitem__)
        gain = goodput[best] / goodput[self._k] - 1
        if (best == 0) != (self._better == 0):
            self._urge = 0.0
        self._urge = self._urge + gain * max(1.0, self._waited) if gain > MIN_GAIN and not self._free else 0.0
        self._waited, self._better = 0.0, best
        self.server.remember(1 if self.off else rows)  # while off a few draft now and then
        if self._urge >= self._patience(rows, best):
            self._change(best)
        self._tau = tau
        self._longest = DECIDE_EVERY * self._times.period(rows, self._k)
        self._decision = Decision(self._k, rows, goodput, tuple(self.server.positions()))
        if self._k and not self._candidates[0]:
            for sequence in together:
                if self._is_poor(sequence) and self._loss_together(sequence, rows) > ALONE_GAIN * self._times.period(
                    rows, self._k
                ):
                    self._apart[sequence] = Budget(now)

    def _change(self, k: int) -> None:
        if not k:
            fruitless = self._back and self._rounds < FRUITLESS
            self._fruitless = min(self._fruitless + 1, MOST_FRUITLESS) if fruitless else 0
            self._fruitless_rows = self._decision.rows
        self._back |= self.off
        if self.off or not k:
            self._rounds, self._unsettled = 0.0, UNSETTLED_ROUNDS  # speculation comes back or ends: soon judged again
        self._k, self._urge, self._regroup = k, 0.0, 0
        self._budget.refresh()
        self._alone_budget.refresh()
        if not k:
            self._apart.clear()  # all run alone now, and are tried together

    def _patience(self, rows: int, best: int) -> float:
        """Rounds' worth that staying has to lose before the change to `best`."""
        if self.off:
            return PATIENCE + PATIENCE_ROW * rows
        return PATIENCE if best else PATIENCE + PATIENCE_ROW * max(rows, PATIENCE_ROWS)

    def _is_poor(self, sequence: Acceptance) -> bool:
        return sequence.rounds() >= ALONE_ROUNDS and 2 * (sequence.expected(self._k) - 1) < self._tau[self._k] - 1

    def _loss_together(self, sequence: Acceptance, rows: int) -> float:
        """Seconds of a round that this sequence loses in it."""
        period = self._times.period(self._decision.rows, self._k)
        return period - sequence.expected(self._k) * self._costs.alone(rows)

    def _forget(self, rows: int, sequences: Collection[Acceptance]) -> None:
        """A trial while off: nobody has drafted for a while."""
        self._awaited = self.server.seen + _few(rows)
        for sequence in sequences:
            sequence.fade(0)

    def _probe(self, rows: int) -> int | None:
        """Another length to try in this round, in turn, when the budget allows; else None.

        The other number of cohorts has a turn too, with the length that would be best for it. The target alone has a
        budget of its own, as that is dear: the others do not wait for it.
        """
        least = LEAST_LOSS * self._longest / DECIDE_EVERY
        if self._trial is not None or self._regroup or self._awaited:
            return None
        if not self._free and not self._budget.holds(least):
            return None
        goodput = self._decision.goodput
        lengths = (self._k + 1, self._k, self._k + 2, 0) if self._k else (1,)
        turns = [k for k in lengths if k in goodput and (k != self._k or self._times.side_by_side(rows, k))]
        if not turns:
            return None
        k = turns[self._trials % len(turns)]
        if k == self._k:
            order = self._other(rows)
            loss = self._regroup_loss(rows, order)
        else:
            loss = self._times.period(rows, k) * max(LEAST_LOSS, 1 - goodput[k] / goodput[self._k])
            if k == 0:
                loss = loss * (2**ALONE_CALLS - 1) + ALONE_CALLS * self._costs.together(rows)
        if self.off:  # a few rows, which wait for steps in flight and for each other
            loss = (loss + (rows > 1) * self._costs.alone(rows)) * _few(rows) / rows
        if not self._free and not (self._budget if k else self._alone_budget).afford(loss):
            if k == 0:
                self._trials += 1  # the next in turn does not wait for it
            return None
        self._free = max(0, self._free - 1)
        self._trials += 1
        if k != self._k:
            self._more = 0 if k else ALONE_CALLS - 1
            return k
        self._regroup, self._order = REGROUP_ROUNDS, order
        return None

    def _other(self, rows: int) -> Order:
        """The other number of cohorts, with the length that is best for it: two cohorts draft more, while the target
        works for the others."""
        waves = 3 - self._times.waves(rows, self._k)
        lengths = [k for k in self._candidates if k]
        return Order(waves, max(lengths, key=lambda k: self._tau[k] / self._times.by_waves(rows, k)[waves - 1]))

    def _regroup_loss(self, rows: int, order: Order) -> float:
        period = self._times.by_waves(rows, order.k)[order.waves - 1]
        goodput = rows * self._tau[order.k] / period
        return REGROUP_ROUNDS * period * max(LEAST_LOSS, 1 - goodput / self._decision.goodput[self._k])


def _few(rows: int) -> int:
    """Sequences that take part in a trial while off, of so many."""
    return min(TRIAL_ROWS, (rows + 1) // 2)
