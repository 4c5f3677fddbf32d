"""How many tokens to draft: the length with the most tokens a second, judged from what is observed. Pure.

With p_j the probability that the j-th draft token is accepted when those before it were, a round with k
draft tokens yields tau(k) = 1 + sum over i <= k of p_1 ... p_i tokens a sequence, a little less as answers begin
and end; it takes the time of a draft call and of a verification, both fitted to the calls observed. The goodput of k
is rows * tau(k) / period(k), and 0, the target alone, is a candidate like the others (Liu et al., 2024, "Optimizing
Speculative Decoding for Serving Large Language Models Using Goodput", arXiv:2406.14066).

The acceptance of a length that is never drafted and the cost of a call that is never made stay unknown,
so other lengths are tried now and then: see `trials`. While nothing is drafted, a few sequences draft a token now
and then, which shows the acceptance, and the draft engine is believed to become cheaper, so that rounds of all
sequences show its cost again in the end.

Nothing here reads a clock, locks or waits: times come in, in seconds, and the caller holds a lock.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal
from weakref import WeakKeyDictionary

from tandem_serving.bls.draft_length.acceptance import PRIOR_ROUNDS, AcceptanceEstimate, in_answers
from tandem_serving.bls.draft_length.call_costs import Costs
from tandem_serving.bls.draft_length.round_times import RoundPlan, RoundTimes
from tandem_serving.bls.draft_length.trial_budget import Budget
from tandem_serving.bls.draft_length.trials import AFTER_CHANGE, REGROUPED, TRIAL_ROUNDS, Standing, Trial, Trials, few

Devices = Literal["separate", "shared"]

# Draft length of the first rounds, while no cost is known.
FIRST_LENGTH = 4
# A plan of rounds must be better by MIN_GAIN to be changed to, and for so long that the sum over rounds of what
# staying loses reaches so many rounds' worth: 10% better: 1 round, 2% better: 5 rounds; and what it costs to make two
# micro-batches of one batch, or one of two. Side by side what is changed to has to be known so well.
MIN_GAIN = 0.015
PATIENCE = 0.1
TRIED = 0.06
# The same before drafting ends or comes back, for each row more: all sequences then begin something else together,
# with short calls, which loses several rounds' worth (0.4 s with 64 rows, by tests/bench/bls: ten). It ends with so
# many rows' patience at least: rounds that have just come back are not known well.
PATIENCE_ROW, PATIENCE_ROWS = 1 / 16, 12
# Rounds between decisions; fewer at the start and after speculation came back, and at once when the load changes.
DECIDE_EVERY = 24
# How well it is known how long rounds take as they go, or after how many, before others are tried.
KNOWN, MANY_ROUNDS = 0.055, 8
# Rounds whose length says little: at the start, when the load has changed, and after speculation came back, from a
# trial of the target alone, too. Of calls little is known then, and sequences that do not come at once make more than
# two micro-batches for a while.
UNSETTLED_ROUNDS = 16
# Seconds after which, while nothing is drafted, the draft engine is believed to cost half. Each time that speculation
# came back for nothing, for fewer rounds than `FRUITLESS`, they become `MORE_DOUBT` times as many; `MOST_FRUITLESS`
# times at most.
DOUBT_SECONDS, MORE_DOUBT = 10.0, 3
FRUITLESS, MOST_FRUITLESS = 4 * DECIDE_EVERY, 3
# A sequence goes on alone when it is faster alone by this share and, over this many rounds of its own,
# has had less than half of the others' accepted tokens: what holds for all is decided by the length.
ALONE_GAIN = 0.05
ALONE_ROUNDS = 16
# Answers over which their length is averaged.
ANSWERS = 100


@dataclass(frozen=True)
class DraftLengthChoice:
    """The draft length `k` of the next `rounds` of a sequence."""

    k: int
    rounds: int


@dataclass(frozen=True)
class DraftLengthDecision:
    """What was decided and why: `goodput` (tokens/s by length), `acceptance` (p_1.. of the server)."""

    k: int
    rows: int
    goodput: dict[int, float]
    acceptance: tuple[float, ...]


class GoodputDraftLength:
    """The draft length of the sequences that speculate, between `minimum` and `maximum`, or 0.

    0 (the target alone) is a candidate unless `minimum` >= 1. `batched`: sequences share engine calls. One object
    decides for all micro-batches; `server` is the prior of the sequences' acceptances. All methods are called under a
    lock.
    """

    def __init__(self, minimum: int, maximum: int, costs: Costs, devices: Devices, batched: bool = True) -> None:
        self.server = AcceptanceEstimate(maximum)
        self._costs = costs
        self._times = RoundTimes(costs, self.server, devices == "separate", batched)
        self._minimum, self._maximum = minimum, maximum
        self._candidates = self._up_to(maximum)
        self._plan = RoundPlan(
            0, min(max(minimum, FIRST_LENGTH), maximum)
        )  # decided; 0 micro-batches: whichever is faster
        self._trial: RoundPlan | None = None
        self._left = 0  # rounds left of it
        self._wanted: RoundPlan | None = None  # what will be changed to, if its trial shows that it is better
        self._shown: set[RoundPlan] = set()  # had such a trial since the latest change
        self._trials = Trials(self._times, costs)
        self._awaited = 0  # drafted rounds, ever, when a trial while off will be over
        self._fruitless = 0  # times in a row that speculation came back for nothing, and with how many rows
        self._fruitless_rows = 0
        self._back = False  # whether speculation came back since the start
        self._longest = 1.0  # seconds between two rounds that count, at most
        self._urge, self._better = 0.0, self._k  # to change, and to what length
        self._rounds = self._waited = 0.0  # since nothing was known; since the latest decision
        self._unsettled = float(UNSETTLED_ROUNDS)  # rounds left of those whose length says little
        self._last = RoundPlan(1, self._k)  # in flight since the latest choice
        self._same = 0  # choices of it in a row before that
        self._made: int | None = None  # draft tokens of the latest rounds, where all had as many
        self._goodput: dict[RoundPlan, float] = {}
        self._tau: Sequence[float] = self.server.yields()  # expected tokens of a round of the others, by length
        self._apart: WeakKeyDictionary[AcceptanceEstimate, Budget] = WeakKeyDictionary()
        self._answer, self._answers = math.inf, 0  # tokens of an answer, on average; of how many
        self._decision = DraftLengthDecision(self._k, 0, {}, ())

    def limit(self, longest: int) -> None:
        """Choose no more than `longest` tokens from now on, whatever the minimum: no request that runs takes more."""
        candidates = self._up_to(longest)
        if candidates == self._candidates:
            return
        self._candidates = candidates
        if self._k not in candidates:
            self._plan, self._waited = RoundPlan(0, candidates[-1]), float(DECIDE_EVERY)
            self._trial = self._wanted = None

    def _up_to(self, longest: int) -> list[int]:
        least, most = min(self._minimum, longest), min(self._maximum, longest)
        return [*([0] if self._minimum < 1 else []), *range(max(1, least), most + 1)]

    @property
    def _k(self) -> int:
        return self._plan.k

    @property
    def off(self) -> bool:
        """Whether the target runs alone, but for trials."""
        return not self._k

    def choose(
        self, now: float, rows: int, sequences: Collection[AcceptanceEstimate], made: int | None
    ) -> DraftLengthChoice:
        """The draft length of the next rounds; call it when they are over (with 0, a call counts as one).

        `now` in seconds, `rows` how many sequences run and may speculate (all micro-batches), `sequences` their
        acceptances (read only now and then). Those that are better off alone are left out of account. `made`: draft
        tokens that the rounds since the latest choice had, some of which had begun before it; None: different ones.
        """
        rows = max(1, rows - len(self._apart))
        if not self._costs.known:
            return DraftLengthChoice(self._k, rows)
        self._book(now, rows, made)
        if self._trial and self._left and not self._moved(rows):
            self._left -= 1
            return self._choose(rows, self._trial)
        self._trials.grown(rows)
        if self._due(rows):
            self._decide(now, rows, sequences)
        self._try(rows)
        if self._trial and self.off:
            self._forget(rows, sequences)
            return DraftLengthChoice(self._trial.k, few(rows))
        return self._choose(rows, self._trial or self._plan)

    def alone(self, now: float, sequence: AcceptanceEstimate, rows: int) -> bool:
        """Whether this sequence is faster with the target alone than in the others' rounds.

        `rows`: all sequences that run. Distinguished only while the others draft; asked again each round or
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

    def micro_batches(self, rows: int, k: int) -> int:
        """1: all rows in lock-step; 2: two micro-batches, of which one drafts while the other verifies."""
        if not self._times.side_by_side(rows, k):
            return 1
        plan = self._trial or self._plan
        return (
            plan.micro_batches if plan.micro_batches and plan.k == k else self._times.fastest(rows, k).micro_batches
        )

    def ended(self, tokens: int) -> None:
        """An answer had so many."""
        if tokens > 0:
            self._answers = min(self._answers + 1, ANSWERS)
            mean = tokens if self._answers == 1 else self._answer
            self._answer = mean + (tokens - mean) / self._answers

    def explain(self) -> DraftLengthDecision:
        """The latest decision, for logs and metrics."""
        return self._decision

    def _try(self, rows: int) -> None:
        """Another plan of rounds for a while, when it is time for that. What is to be changed to is tried at once,
        and not paid for: it loses no more than the change would."""
        trial = None
        if self._wanted and not self._trial and not self._unsettled:
            trial, self._wanted = Trial(self._wanted, TRIAL_ROUNDS), None
            self._shown.add(trial.plan)
        elif not self._trial and not self._awaited:
            standing = Standing(rows, self._plan, self._goodput)
            trial = self._trials.next(standing, self._longest / DECIDE_EVERY, self._settled(rows))
        self._trial, self._left = (trial.plan, trial.rounds - 1) if trial else (None, 0)

    def _settled(self, rows: int) -> bool:
        """Whether it is known how long rounds take as they go now: with that trials are compared. It may not be known
        any better where they become longer and longer."""
        known = self._same >= MANY_ROUNDS or self._times.uncertainty(rows, self._plan) <= KNOWN
        return known and not self._unsettled

    def _choose(self, rows: int, plan: RoundPlan) -> DraftLengthChoice:
        self._same = self._same + 1 if plan == self._last else 0
        self._last = plan
        return DraftLengthChoice(plan.k, rows)

    def _book(self, now: float, rows: int, made: int | None) -> None:
        """The time of the last rounds."""
        before, self._made = self._made, made
        passed = self._trials.earn(now, self._longest, self.off)
        self._times.passed(passed)
        step = passed / self._times.period(rows, self._k)
        plan, alone = self._last, self._trial is not None and not self._trial.k
        self._rounds += step
        self._waited += step
        self._unsettled = UNSETTLED_ROUNDS if alone else max(0.0, self._unsettled - step)
        if 2 * rows <= self._fruitless_rows:
            self._fruitless = 0  # rounds of so many waited: of these nothing is known
        if self.off:
            keep = 0.5 ** (passed / (DOUBT_SECONDS * MORE_DOUBT**self._fruitless))
            self._costs.doubt_draft(keep)
            self._times.doubt(keep)
        elif made is not None and self._counts(rows, made, before) and not self._apart and not self._unsettled:
            self._times.took(plan.micro_batches, rows, made, passed)
        elif self._trial and not alone:  # of the target alone all calls are paid for
            self._trials.charge(passed - 2 * self._times.seconds(rows, plan))

    def _counts(self, rows: int, made: int, before: int | None) -> bool:
        """Whether the round that is over shows what such rounds take.

        One that follows a longer one has taken over its draft, which was made ahead.
        """
        if self._times.side_by_side(rows, self._last.k):
            return self._same >= AFTER_CHANGE and made == self._last.k
        return before is not None and made >= before

    def _moved(self, rows: int) -> bool:
        """Whether the load is another one than at the latest decision."""
        return abs(rows - self._decision.rows) * 4 > self._decision.rows

    def _due(self, rows: int) -> bool:
        if self._awaited:
            if self.server.seen < self._awaited and self._waited < DECIDE_EVERY:
                return False
            self._awaited = 0
            self.server.revise()
            return True
        return self._moved(rows) or self._waited >= min(DECIDE_EVERY, 1 + self._rounds / 8)

    def _decide(self, now: float, rows: int, sequences: Collection[AcceptanceEstimate]) -> None:
        self._times.review()
        together = [sequence for sequence in sequences if sequence not in self._apart]
        tau = self._expected_tokens(together)
        plans = [plan for k in self._candidates for plan in self._times.plans(rows, k)]
        self._goodput = {plan: rows * tau[plan.k] / self._times.seconds(rows, plan) for plan in plans}
        if self._moved(rows) or self._plan not in self._goodput:
            self._unsettled, self._plan = UNSETTLED_ROUNDS, self._times.fastest(rows, self._k)
            self._shown.clear()
        best = self._best(rows)
        gain = self._goodput[best] / self._goodput[self._plan] - 1
        if (best.k == 0) != (self._better == 0):
            self._urge = 0.0
        # While little is known of such a load the length stays; not side by side, where what is changed to was tried.
        waits = self._trials.free and not (best.k and self._times.side_by_side(rows, self._k))
        self._urge = self._urge + gain * max(1.0, self._waited) if gain > MIN_GAIN and not waits else 0.0
        self._waited, self._better = 0.0, best.k
        self.server.remember(1 if self.off else rows)  # while off a few draft now and then
        self._wanted = None
        if self._urge >= self._patience(rows, best):
            if self._tried(rows, best):
                self._change(best)
            else:
                self._wanted = best
        self._tau = tau
        self._longest = DECIDE_EVERY * self._times.period(rows, self._k)
        goodput = {k: max(self._goodput[plan] for plan in self._times.plans(rows, k)) for k in self._candidates}
        self._decision = DraftLengthDecision(self._k, rows, goodput, tuple(self.server.positions()))
        if self._k and not self._candidates[0]:
            self._set_apart(now, rows, together)

    def _expected_tokens(self, sequences: Collection[AcceptanceEstimate]) -> list[float]:
        """Of a round of these sequences, on average, by draft length."""
        yields = [sequence.yields() for sequence in sequences] or [self.server.yields()]
        tau = in_answers([sum(column) / len(yields) for column in zip(*yields, strict=True)], self._answer)
        tau[0] = 1.0  # calls of the target alone are counted, see Costs
        return tau

    def _set_apart(self, now: float, rows: int, sequences: Collection[AcceptanceEstimate]) -> None:
        """Those of these sequences that are better off with the target alone."""
        for sequence in sequences:
            least = ALONE_GAIN * self._times.period(rows, self._k)
            if self._is_poor(sequence) and self._loss_together(sequence, rows) > least:
                self._apart[sequence] = Budget(now)

    def _best(self, rows: int) -> RoundPlan:
        """The plan with the most tokens a second; of two that are as good, the one that can be changed to."""
        best = max(self._goodput, key=self._goodput.__getitem__)
        tried = max((plan for plan in self._goodput if self._tried(rows, plan)), key=self._goodput.__getitem__)
        return best if self._goodput[best] > (1 + MIN_GAIN) * self._goodput[tried] else tried

    def _tried(self, rows: int, plan: RoundPlan) -> bool:
        """Whether it can be changed to without a trial: side by side, what calls tell of rounds never made is too far
        off."""
        known = plan == self._plan or not plan.k or not self._k or not self._times.side_by_side(rows, plan.k)
        return known or plan in self._shown or self._times.uncertainty(rows, plan) < TRIED

    def _change(self, plan: RoundPlan) -> None:
        if not plan.k:
            fruitless = self._back and self._rounds < FRUITLESS
            self._fruitless = min(self._fruitless + 1, MOST_FRUITLESS) if fruitless else 0
            self._fruitless_rows = self._decision.rows
        self._back |= self.off
        if self.off or not plan.k:
            self._rounds, self._unsettled = 0.0, UNSETTLED_ROUNDS  # speculation comes back or ends: soon judged again
        self._trials.fruitful(drafts=not self.off and plan.k > 0)
        self._plan, self._urge, self._trial, self._left = plan, 0.0, None, 0
        self._shown.clear()
        if not plan.k:
            self._apart.clear()  # all run alone now, and are tried together

    def _patience(self, rows: int, best: RoundPlan) -> float:
        """Rounds' worth that staying has to lose before the change to `best`."""
        if self.off:
            return PATIENCE + PATIENCE_ROW * rows
        if not best.k:
            return PATIENCE + PATIENCE_ROW * max(rows, PATIENCE_ROWS)
        return PATIENCE + REGROUPED * (best.micro_batches != self._plan.micro_batches)

    def _is_poor(self, sequence: AcceptanceEstimate) -> bool:
        return sequence.rounds() >= ALONE_ROUNDS and 2 * (sequence.expected(self._k) - 1) < self._tau[self._k] - 1

    def _loss_together(self, sequence: AcceptanceEstimate, rows: int) -> float:
        """Seconds of a round that this sequence loses in it."""
        period = self._times.period(self._decision.rows, self._k)
        return period - sequence.expected(self._k) * self._costs.alone(rows)

    def _forget(self, rows: int, sequences: Collection[AcceptanceEstimate]) -> None:
        """A trial while off: no sequence has drafted for a while."""
        self._awaited = self.server.seen + few(rows)
        for sequence in sequences:
            sequence.fade(0)
