"""New prompts fall into one window or the next by chance, and all sequences wait while they are read. Pure.

A control variate (Lavenberg, Welch, 1981, "A Perspective on the Use of Control Variables to Increase the Efficiency
of Monte Carlo Simulations"): a window's seconds are corrected by what its prompts are more or fewer than on average,
times what one takes. That is the slope of seconds over prompts, in windows alike that follow each other.
"""

from __future__ import annotations

from collections.abc import Hashable

# Part of what is known that a window leaves; windows that the first guess, prompts that take no time, counts for.
KEEP, DOUBT = 0.95, 2.0
# Share of a window's time that is corrected at most.
MOST = 0.5


class Arrivals:
    """What prompts of sequences that begin take from the others."""

    def __init__(self) -> None:
        self._arrived, self._tokens = 0.0, 1e-9
        self._products, self._squares, self._pairs = 0.0, 1e-9, 0.0
        self._last: dict[Hashable, tuple[float, float]] = {}

    @property
    def seconds(self) -> float:
        """That one takes."""
        return max(0.0, self._products / self._squares) * self._pairs / (self._pairs + DOUBT)

    def on_average(self, alike: Hashable, seconds: float, arrived: int, tokens: float, rounds: float) -> float:
        """The seconds that a window would have taken with as many prompts as come on average.

        It made so many `tokens` in so many `rounds` of each sequence, those that are `alike` in the same way.
        """
        self._arrived = KEEP * self._arrived + arrived
        self._tokens = KEEP * self._tokens + tokens
        each, prompts = seconds / rounds, arrived / rounds
        if last := self._last.get(alike):
            more = prompts - last[1]
            self._products = KEEP * self._products + more * (each - last[0])
            self._squares = KEEP * self._squares + more**2
            self._pairs = KEEP * self._pairs + (more != 0)
        self._last[alike] = each, prompts
        excess = (arrived - self._arrived / self._tokens * tokens) * self.seconds
        return seconds - min(max(excess, -MOST * seconds), MOST * seconds)
