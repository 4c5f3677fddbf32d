"""How long rounds take, from what engine calls cost and how they overlap (see schedule.py). Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from tandem_serving.bls.draft_length import draft_ahead
from tandem_serving.bls.draft_length.acceptance import AcceptanceEstimate
from tandem_serving.bls.draft_length.call_costs import Costs

# Weight of a new observation of what rounds take beyond their calls, at least: the first ones make an average. It
# moves that by so much at most: a prompt that came at a bad time. Shorter than thought rounds are not by chance, so
# the first ones move it by more. What takes so many times as long was a pause.
NEW = 0.1
MOST_MOVED, FIRST_SHORTER = 0.03, 0.1
PAUSE = 2.0
# What calls take is known of the length in use, and extrapolated to others, which can be off by a tenth. So what
# rounds of each length took is remembered, for each load by itself (rows, in steps of a quarter). Rounds of it that
# say as much as its calls do, that count at most, and that are as good as none; they count half after so many seconds
# under load, and when one is as much longer or shorter: either it is odd, or they are out of date.
AS_CALLS, MOST_COUNTED, FORGOTTEN, REMEMBERED = 4.0, 32.0, 0.5, 60.0
ODD = 1.3
# Relative deviations, measured with tests/bench/bls: of what a round of two micro-batches takes; of what calls tell
# of a length where others were seen; and of rounds in so many micro-batches where none was.
ROUND_NOISE, OTHER_LENGTH, OTHER_MICRO_BATCHES = 0.15, 0.08, 0.25
# The same of sequences on their own.
NEW_ALONE = 0.05
MOST_MOVED_ALONE = 0.1


class RoundPlan(NamedTuple):
    """How rounds go: in so many micro-batches, 1 (all in lock-step) or 2 (two micro-batches), with `k` draft
    tokens."""

    micro_batches: int
    k: int


@dataclass
class Taken:
    """What rounds of a length took: `seconds`, with so many `rows`; `rounds` of them, the older ones discounted.

    `ratio`: those seconds over what calls tell of such rounds by now.
    """

    rows: float
    seconds: float
    rounds: float = 0.0
    ratio: float = 1.0


class RoundTimes:
    """Seconds in which every row makes one round.

    `server`: what is accepted; `separate`: engines run side by side; `batched`: sequences share calls. Otherwise each
    goes on its own, and its calls take what they take among the others'.

    Between its calls a round waits for us: much where all rows are in one batch, whose text competes with the next
    call for the processors, little where another batch is in the engines meanwhile. How much is seen from rounds of
    both kinds, and of each length.
    """

    def __init__(self, costs: Costs, server: AcceptanceEstimate, separate: bool, batched: bool = True) -> None:
        self._costs = costs
        self._server = server
        self._separate = separate
        self._micro_batched = separate and batched
        self._alone = not batched
        # Rounds over their calls, by batches in flight, where such rounds were seen; how many.
        self._beyond: dict[int, float] = {}
        self._seen = {1: 0, 2: 0}
        self._taken: dict[
            tuple[int, int], dict[int, Taken]
        ] = {}  # by batches in flight and load, then by draft length
        self._waits = 1.0  # the same of sequences on their own, and of engines that share a device

    @property
    def shared(self) -> bool:
        """Whether the engines share a device: their steps exclude each other."""
        return not self._separate

    def side_by_side(self, rows: int, k: int) -> bool:
        """Whether there can be two micro-batches: one drafts while the other is verified."""
        return self._micro_batched and rows > 1 and k > 0

    def plans(self, rows: int, k: int) -> list[RoundPlan]:
        """In which rounds of `k` draft tokens can go."""
        return [RoundPlan(micro_batches, k) for micro_batches in ((1, 2) if self.side_by_side(rows, k) else (1,))]

    def fastest(self, rows: int, k: int) -> RoundPlan:
        """Of these."""
        return min(self.plans(rows, k), key=lambda plan: self.seconds(rows, plan))

    def period(self, rows: int, k: int) -> float:
        """With `k` draft tokens, by the fastest plan."""
        return min(self.seconds(rows, plan) for plan in self.plans(rows, k))

    def seconds(self, rows: int, plan: RoundPlan) -> float:
        """Of a round by this plan; of a token, with the target alone."""
        if plan.k == 0:
            return self._costs.alone(rows)
        if self._separate and rows == 1:
            return self._single(plan.k)
        return self._remembered(plan.micro_batches, rows, plan.k)

    def uncertainty(self, rows: int, plan: RoundPlan) -> float:
        """Standard deviation of that, as a share of it."""
        lengths = self._taken.get((plan.micro_batches, _load(rows)), {})
        rounds = {k: taken.rounds for k, taken in lengths.items()}
        calls = OTHER_LENGTH if sum(rounds.values()) > FORGOTTEN else OTHER_MICRO_BATCHES
        return 1 / math.sqrt(1 / calls**2 + rounds.get(plan.k, 0.0) / ROUND_NOISE**2)

    def review(self) -> None:
        """Compare what rounds took with what calls tell by now."""
        for (micro_batches, _), lengths in self._taken.items():
            for k, taken in lengths.items():
                taken.ratio = taken.seconds / self._by_calls(micro_batches, taken.rows, k)

    def passed(self, seconds: float) -> None:
        """So much later, what rounds took counts less."""
        self._forget(0.5 ** (seconds / REMEMBERED))

    def _forget(self, keep: float) -> None:
        for lengths in self._taken.values():
            for taken in lengths.values():
                taken.rounds *= keep

    def _remembered(self, micro_batches: int, rows: float, k: int) -> float:
        """By what calls tell, and by what such rounds took; where few were seen, those of the length next to it."""
        seconds, left = self._by_calls(micro_batches, rows, k), 1.0
        lengths = self._taken.get((micro_batches, _load(rows)), {})
        known = [length for length, taken in lengths.items() if taken.rounds > FORGOTTEN]
        for length in sorted(known, key=lambda length: abs(length - k))[:2]:
            taken = lengths[length]
            trust = left * taken.rounds / (taken.rounds + AS_CALLS)
            seconds *= taken.ratio**trust
            left -= trust
        return seconds

    def _by_calls(self, micro_batches: int, rows: float, k: int) -> float:
        """By what calls take, and by what all rounds take beyond that."""
        if not self._micro_batched:
            return self._in_turn(rows, k) * max(1.0, self._waits)
        return self._calls(micro_batches, rows, k) * self._beyond.get(micro_batches, 1.0)

    def took(self, micro_batches: int, rows: int, k: int, seconds: float) -> None:
        """A round in so many micro-batches, or of sequences on their own, took so long."""
        if rows == 1 or k == 0:
            return
        if self._alone:
            moved = NEW_ALONE * (seconds / self._in_turn(rows, k) - self._waits)
            self._waits += min(max(moved, -MOST_MOVED_ALONE), MOST_MOVED_ALONE)
            return
        if not self._separate:
            self._waits = _nearer(self._waits, seconds / self._in_turn(rows, k))
        else:
            self._seen[micro_batches] += 1
            ratio, weight = seconds / self._calls(micro_batches, rows, k), max(NEW, 1 / self._seen[micro_batches])
            self._beyond[micro_batches] = _nearer(
                self._beyond.get(micro_batches, 1.0), ratio, weight, self._seen[micro_batches]
            )
        self._remember(micro_batches, rows, k, seconds)

    def _remember(self, micro_batches: int, rows: int, k: int, seconds: float) -> None:
        by_calls, lengths = (
            self._by_calls(micro_batches, rows, k),
            self._taken.setdefault((micro_batches, _load(rows)), {}),
        )
        taken = lengths.get(k)
        if not taken or taken.rounds < FORGOTTEN:
            taken = lengths[k] = Taken(rows, self._remembered(micro_batches, rows, k))
        expected = taken.seconds * by_calls / self._by_calls(micro_batches, taken.rows, k)
        if seconds < PAUSE * max(expected, by_calls):
            odd = not 1 / ODD < seconds / expected < ODD
            taken.rounds = min((0.5 if odd else 1.0) * taken.rounds + 1, MOST_COUNTED)
            moved = _bounded(
                (seconds / expected - 1) / taken.rounds, taken.rounds if self._micro_batched else math.inf
            )
            taken.rows, taken.seconds = rows, expected * (1 + moved)
            taken.ratio = taken.seconds / by_calls

    def doubt(self, keep: float) -> None:
        """Nothing was drafted for a while: rounds may wait only this share of what they did."""
        self._forget(keep)
        self._waits = 1 + keep * (self._waits - 1)
        least = max(1.0, min(self._beyond.values(), default=1.0))
        less = (1 + keep * (least - 1)) / least  # of what both plans have in common
        self._beyond = {micro_batches: beyond * less for micro_batches, beyond in self._beyond.items()}

    def _in_turn(self, rows: float, k: int) -> float:
        """A draft call, then a verification."""
        return self._costs.draft(rows, k) + self._costs.target(rows, k)

    def _calls(self, micro_batches: int, rows: float, k: int) -> float:
        """What the calls of a round take."""
        if micro_batches == 1:
            return self._one_batch(rows, k)
        halves = self._costs.draft(rows / 2, k, queued=True), self._costs.target(rows / 2, k, queued=True)
        return 2 * draft_ahead.side_by_side(*halves)

    def _one_batch(self, rows: float, k: int) -> float:
        """In lock-step, or drafting ahead where the runner does."""
        draft, ahead, target = self._costs.draft(rows, k), self._costs.draft(rows, k + 1), self._costs.target(rows, k)
        hit_rate = self._server.ahead_hit_rate(k)
        if draft_ahead.pays(rows, hit_rate, draft, ahead, target):
            return draft_ahead.period(hit_rate, ahead, target)
        return draft + target

    def _single(self, k: int) -> float:
        """A single row drafts ahead, one token more.

        Where all its tokens are kept the next round waits for that, and where the target's own was foreseen, too,
        needs no other draft call.
        """
        tau, hit_rate = self._server.yields(), self._server.ahead_hit_rate(k)
        kept = tau[k] - tau[k - 1]
        draft, target = self._costs.draft(1, k), self._costs.target(1, k)
        waiting = max(0.0, self._costs.draft(1, k + 1) - target)
        return target + kept * waiting + (1 - hit_rate) * draft


def _nearer(beyond: float, seen: float, weight: float = NEW, rounds: float = math.inf) -> float:
    """What shared rounds take beyond their calls, with one more round, of so many."""
    return beyond if seen >= PAUSE else beyond + _bounded(weight * (seen - beyond), rounds)


def _bounded(moved: float, rounds: float) -> float:
    return min(max(moved, -max(MOST_MOVED, FIRST_SHORTER / rounds)), MOST_MOVED)


def _load(rows: float) -> int:
    return round(3 * math.log2(rows))
