"""What rounds took, by choice: measured at a load, taken over from another, or predicted. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import linear_regression
from typing import NamedTuple

# Share of the time that trials may take, and the rounds' time that there is at first, and is saved up at most.
TRIAL_SHARE, FREE_ROUNDS = 0.02, 40
# Relative deviation of a round's time; of a period predicted from two lengths or more, or from less; of one measured
# long ago. Other micro-batches may differ by more until some are measured. The target alone is tried at each load: it
# may be many times as fast, where calls wait for a processor.
NOISE, PREDICTED, GUESSED, OLD = 0.12, 0.1, 0.2, 0.5
UNTRIED_ALONE, UNTRIED_BATCHES = math.inf, 0.5
# Seconds after which measurements count half; rounds that the mean is over, enough for new prompts, each of which
# stalls all sequences, to come as on average. A window that is longer than the known period by more than PAUSE counts
# as longer by that, since the machine may have paused, or prompts came by chance, until it is the fourth in a row, or
# the third and 1.5 times as long (SURE / 2), or the second and SURE times. The first window of all, where it is
# longer than predicted by more than GUESSED, counts as UNLIKELY rounds.
AGE, MEMORY, PAUSE, SURE, UNLIKELY = 10.0, 40.0, 0.1, 3.0, 1.0
# Share of a target's step that a draft token takes until it is measured, and at most.
DRAFT_STEP, DEAREST_STEP = 1 / 6, 1 / 2


class Choice(NamedTuple):
    """`k` draft tokens, in so many micro-batches."""

    k: int
    micro_batches: int = 1


class Period(NamedTuple):
    """Seconds of a round, of a token where the target runs alone: the mean of so many `rounds` of each sequence, the
    last of them `at` (seconds). No rounds: taken over from another load. So many windows in a row were `longer`."""

    seconds: float
    rounds: float = 0.0
    at: float = 0.0
    longer: int = 0

    def counts(self, now: float) -> float:
        """Rounds, the older they are the fewer."""
        return self.rounds * math.exp2(-max(0.0, now - self.at) / AGE)

    def deviation(self, now: float) -> float:
        """Of the seconds, relative to them."""
        return min(OLD, NOISE / math.sqrt(max(self.counts(now), 1e-3))) if self.rounds else GUESSED


@dataclass
class Load:
    """What is known of a load: periods; `credit`, seconds that trials may take; `vain`, how many times in a row
    speculation came back in vain, and when all `retry`."""

    periods: dict[Choice, Period] = field(default_factory=dict)
    credit: float = 0.0
    vain: int = 0
    retry: float = 0.0

    def measured(self, choice: Choice) -> bool:
        """Whether rounds by this choice were, at this load."""
        return choice in self.periods and self.periods[choice].rounds > UNLIKELY

    def observe(self, choice: Choice, seconds: float, rounds: float, now: float) -> None:
        """So many rounds by this choice took `seconds` each."""
        most = FREE_ROUNDS * seconds
        if any(period.rounds for period in self.periods.values()):
            known = self.predict(choice, now)._replace(rounds=self.periods.get(choice, Period(0.0)).rounds)
            self.credit = max(self.credit, min(self.credit + TRIAL_SHARE * rounds * seconds, most))
        else:  # periods of another load are wrong by as much for all choices
            ratio = seconds / self.periods.get(choice, Period(seconds)).seconds
            self.periods = {other: Period(ratio * period.seconds) for other, period in self.periods.items()}
            self.credit, known = most, Period(seconds)
        before, longer, stale = known.counts(now), 0, AGE
        if self.measured(choice) and seconds > known.seconds * (1 + PAUSE):
            if known.longer * seconds >= SURE * known.seconds:
                before, stale = 0.0, 0.0
            else:
                seconds, longer = known.seconds * (1 + PAUSE), known.longer + 1
        elif not known.rounds and seconds > known.seconds * (1 + GUESSED):
            seconds, rounds = known.seconds, UNLIKELY
        mean = known.seconds + rounds / (before + rounds) * (seconds - known.seconds)
        if self.measured(choice) and (not stale or known.rounds >= MEMORY):
            self._follow(choice, mean / known.seconds, stale, now)
        self.periods[choice] = Period(mean, min(before + rounds, MEMORY), now, longer)

    def _follow(self, choice: Choice, ratio: float, stale: float, now: float) -> None:
        """What makes a choice slower or faster does so for others, by half where they were measured `stale` seconds
        ago; 0: wholly, where not since this one was. What changes drafts leaves the target alone as it is."""
        last = self.periods[choice].at
        for other, period in self.periods.items():
            if other != choice and (other.k or not choice.k):
                known = math.exp2(-max(0.0, now - period.at) / stale) if stale else float(period.at > last)
                self.periods[other] = period._replace(seconds=period.seconds * ratio ** (1 - known))

    def predict(self, choice: Choice, now: float) -> Period:
        """What is known of it, or follows from other lengths: with as many micro-batches, if there are any."""
        known = self.periods.get(choice)
        if known and (known.rounds or not choice.k or not self._by_length(choice.micro_batches, here=True)):
            return known
        points = self._by_length(choice.micro_batches)
        deviation = PREDICTED if len(points) > 1 else GUESSED
        points = points or self._by_length(3 - choice.micro_batches)
        nearest = min(points, key=lambda k: (abs(k - choice.k), points[k]))
        slope = points[nearest] / (nearest + 1 / DRAFT_STEP)
        if len(points) > 1:
            fitted = linear_regression(list(points), list(points.values())).slope
            slope = min(max(0.0, fitted), points[nearest] / (nearest + 1 / DEAREST_STEP))
        return Period(points[nearest] + slope * (choice.k - nearest), (NOISE / deviation) ** 2, now)

    def deviation(self, choice: Choice, now: float) -> float:
        """Of its period, relative to what is known or predicted."""
        alike = [other for other in self.periods if other.k and other.micro_batches == choice.micro_batches]
        if any(map(self.measured, alike if choice.k else [choice])):
            return self.predict(choice, now).deviation(now)
        return UNTRIED_BATCHES if choice.k else UNTRIED_ALONE

    def _by_length(self, micro_batches: int, here: bool = False) -> dict[int, float]:
        """Periods of drafts by their length, `here`: measured at this load; of the target alone if there are none."""
        periods = self.periods.items()
        alike = [(choice.k, period) for choice, period in periods if choice.micro_batches == micro_batches]
        drafts = [(k, period) for k, period in alike if k]
        measured = [(k, period) for k, period in drafts if period.rounds > UNLIKELY]
        return {k: period.seconds for k, period in (measured or ([] if here else drafts or alike))}
