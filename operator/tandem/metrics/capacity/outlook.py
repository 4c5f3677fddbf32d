"""Where demand and capacity are heading: what a replica that starts now will find when it serves. Pure."""

import math
from dataclasses import replace

from tandem.metrics.capacity.demand import Demand

# What a replica takes to start, in seconds: until it was seen, and what is believed of it.
START, LEAST_START, MOST_START = 240.0, 60.0, 900.0
# Smoothing of level and slope (s). Demand is a matter of chance; a replica's speed follows from thousands of rounds.
DEMAND_SECONDS = (30.0, 300.0)
CAPACITY_SECONDS = (15.0, 60.0)
# Demand is averaged over about so many seconds, while it stays within so many standard deviations of its average.
AVERAGE_SECONDS = 120.0
CHANCE = 1.5
# A trend of demand may ask for so many times the present need.
STEEPEST = 1.3


class Trend:
    """Where demand is heading: Holt's linear trend (double exponential smoothing in irregular time).

    Source: Holt, 1957, "Forecasting seasonals and trends by exponentially weighted moving averages".
    """

    def __init__(self, level_seconds: float, slope_seconds: float) -> None:
        self._level_seconds, self._slope_seconds = level_seconds, slope_seconds
        self._at: float | None = None
        self.level = self.slope = 0.0

    def observe(self, at: float, value: float) -> None:
        """A value at a time (s)."""
        if self._at is None:
            self._at, self.level = at, value
            return
        passed = at - self._at
        if passed <= 0:
            return
        self._at = at
        before = self.level
        expected = before + self.slope * passed
        self.level = expected + (value - expected) * -math.expm1(-passed / self._level_seconds)
        self.slope += ((self.level - before) / passed - self.slope) * -math.expm1(-passed / self._slope_seconds)

    def ahead(self, seconds: float) -> float:
        """The value expected after so many seconds."""
        return max(0.0, self.level + self.slope * seconds)


class Average:
    """Demand without what is chance: an exponential average, which starts anew where chance explains no more."""

    def __init__(self) -> None:
        self._at = self._value = 0.0

    def observe(self, at: float, value: float, sequences: float) -> float:
        """The average after a window with so many sequences at once: S of them vary by sqrt(S)."""
        passed, self._at = at - self._at, at
        if abs(value - self._value) > CHANCE * value / math.sqrt(max(1.0, sequences)):
            self._value = value
        else:
            self._value += (value - self._value) * -math.expm1(-max(0.0, passed) / AVERAGE_SECONDS)
        return self._value


class Outlook:
    """One service's trends."""

    def __init__(self) -> None:
        self._average = Average()
        self._demand, self._capacity = Trend(*DEMAND_SECONDS), Trend(*CAPACITY_SECONDS)
        self._queue: tuple[float, float] | None = None

    def demand(self, at: float, seen: Demand, start: float | None) -> tuple[Demand, Demand]:
        """Demand now, and when a replica that starts now serves, at least as much. `start`: seconds that it takes."""
        self._demand.observe(at, seen.arriving)
        now = self._average.observe(at, seen.arriving, seen.running + seen.waiting)
        then = min(max(self._demand.ahead(lead(start)), now), STEEPEST * now)
        return replace(seen, arriving=now), replace(seen, arriving=then)

    def drains(self, at: float, waiting: float, start: float | None) -> bool:
        """Whether the queue will be gone when a replica that starts now serves, if it goes on to shrink so."""
        before, self._queue = self._queue, (at, waiting)
        if before is None or at <= before[0]:
            return False
        return 0 < waiting <= (before[1] - waiting) / (at - before[0]) * lead(start)

    def capacity(self, at: float, now: float, worst: float, start: float | None) -> float:
        """A replica's capacity when one that starts now serves; not more than now, and not less than with drafts
        that are all wrong (`worst`). All in tokens a second."""
        self._capacity.observe(at, now)
        return min(now, max(self._capacity.ahead(lead(start)), worst))


def lead(start: float | None) -> float:
    """Seconds for which is to be looked ahead. `start`: what replicas took to start, None where that is not known."""
    return START if start is None else min(max(start, LEAST_START), MOST_START)
