"""How long rounds take, from what engine calls cost and the order in which they go (see schedule.py). Pure."""

from __future__ import annotations

from tandem_serving import foresight
from tandem_serving.acceptance import Acceptance
from tandem_serving.call_costs import Costs

# What is better by this share is changed to.
MIN_GAIN = 0.015
# Weight of a new observation of what rounds take beyond their calls, at least: the first ones make an average. It
# moves that by so much at most: a prompt that came at a bad time. What takes so many times as long was a pause.
NEW = 0.1
MOST_MOVED = 0.03
PAUSE = 2.0
# The same of sequences on their own.
NEW_ALONE = 0.05
MOST_MOVED_ALONE = 0.1


class RoundTimes:
    """Seconds in which every row makes one round.

    `server`: what is accepted; `separate`: engines run side by side; `waves`: sequences share calls. Otherwise each
    goes on its own, and its calls take what they take beside the others'.

    Between its calls a round waits for us: much where all rows are in one wave, whose text competes with the next
    call for the processors, little where another wave is in the engines meanwhile. How much is seen from rounds of
    both kinds.
    """

    def __init__(self, costs: Costs, server: Acceptance, separate: bool, waves: bool = True) -> None:
        self._costs = costs
        self._server = server
        self._separate = separate
        self._cohorts = separate and waves
        self._alone = not waves
        self._waves = 1
        # Rounds over their calls, by waves in flight, where such rounds were seen; how many.
        self._beyond: dict[int, float] = {}
        self._seen = {1: 0, 2: 0}
        self._waits = 1.0  # the same of sequences on their own, and of engines that share a device

    def side_by_side(self, rows: int, k: int) -> bool:
        """Whether there can be two waves: one drafts while the other is verified."""
        return self._cohorts and rows > 1 and k > 0

    def period(self, rows: int, k: int) -> float:
        """With `k` draft tokens, in the best order."""
        if k == 0:
            return self._costs.alone(rows)
        if self.side_by_side(rows, k):
            return min(self.by_waves(rows, k))
        if self._separate and rows == 1:
            return self._single(k)
        return self._in_turn(rows, k) * max(1.0, self._waits)

    def waves(self, rows: int, k: int) -> int:
        """Of `side_by_side` engines: one wave or two, by what takes less time."""
        one, two = self.by_waves(rows, k)
        if two < one * (1 - MIN_GAIN) if self._waves == 1 else one < two * (1 - MIN_GAIN):
            self._waves = 3 - self._waves
        return self._waves

    def by_waves(self, rows: int, k: int) -> tuple[float, float]:
        """With one wave and with two."""
        one, two = self._calls(rows, k)
        return one * self._beyond.get(1, 1.0), two * self._beyond.get(2, 1.0)

    def took(self, waves: int, rows: int, k: int, seconds: float) -> None:
        """A round in so many waves, or of sequences on their own, took so long."""
        if rows == 1 or k == 0:
            return
        if self._alone:
            moved = NEW_ALONE * (seconds / self._in_turn(rows, k) - self._waits)
            self._waits += min(max(moved, -MOST_MOVED_ALONE), MOST_MOVED_ALONE)
        elif not self._separate:
            self._waits = _nearer(self._waits, seconds / self._in_turn(rows, k))
        else:
            self._seen[waves] += 1
            ratio, weight = seconds / self._calls(rows, k)[waves - 1], max(NEW, 1 / self._seen[waves])
            self._beyond[waves] = _nearer(self._beyond.get(waves, 1.0), ratio, weight)

    def doubt(self, keep: float) -> None:
        """Nothing was drafted for a while: rounds may wait only this share of what they did."""
        self._waits = 1 + keep * (self._waits - 1)
        least = max(1.0, min(self._beyond.values(), default=1.0))
        less = (1 + keep * (least - 1)) / least  # of what both orders have in common
        self._beyond = {waves: beyond * less for waves, beyond in self._beyond.items()}

    def _in_turn(self, rows: int, k: int) -> float:
        """A draft call, then a verification."""
        return self._costs.draft(rows, k) + self._costs.target(rows, k)

    def _calls(self, rows: int, k: int) -> tuple[float, float]:
        """What the calls of a round take, in one wave and in two."""
        halves = self._costs.draft(rows / 2, k, queued=True), self._costs.target(rows / 2, k, queued=True)
        return self._one_wave(rows, k), 2 * foresight.side_by_side(*halves)

    def _one_wave(self, rows: int, k: int) -> float:
        """In lock-step, or drafting ahead where the runner does."""
        draft, ahead, target = self._costs.draft(rows, k), self._costs.draft(rows, k + 1), self._costs.target(rows, k)
        foreseen = self._server.foreseen(k)
        if foresight.pays(rows, foreseen, draft, ahead, target):
            return foresight.period(foreseen, ahead, target)
        return draft + target

    def _single(self, k: int) -> float:
        """A single row drafts ahead, one token more.

        Where all its tokens are kept the next round waits for that, and where the target's own was foreseen, too,
        needs no other draft call.
        """
        tau, foreseen = self._server.yields(), self._server.foreseen(k)
        kept = tau[k] - tau[k - 1]
        draft, target = self._costs.draft(1, k), self._costs.target(1, k)
        waiting = max(0.0, self._costs.draft(1, k + 1) - target)
        return target + kept * waiting + (1 - foreseen) * draft


def _nearer(beyond: float, seen: float, weight: float = NEW) -> float:
    """What rounds of waves take beyond their calls, with one more round."""
    return beyond if seen >= PAUSE else beyond + min(max(weight * (seen - beyond), -MOST_MOVED), MOST_MOVED)
