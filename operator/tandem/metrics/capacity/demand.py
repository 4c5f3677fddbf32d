"""What a service's clients ask for, from a window's figures. Pure."""

import math
from collections import deque
from dataclasses import dataclass

from tandem.metrics.telemetry.figures import Figures, PodFigures, Replicas

# What waits should be done within this many seconds.
DRAIN = 180.0
# The mean length of an answer is over about so many seconds.
REMEMBER = 900.0


@dataclass(frozen=True)
class Demand:
    """What clients ask for, all replicas together."""

    arriving: float
    """Tokens a second that those want who come."""
    running: float
    """Sequences being generated."""
    waiting: float
    """Sequences that wait for a place."""
    owed: float = 0.0
    """Tokens a second that work off within `DRAIN` what waits."""

    @property
    def tokens(self) -> float:
        """Tokens a second, in all."""
        return self.arriving + self.owed


def measure(figures: Figures, past: "Past") -> Demand | None:
    """The demand that a window shows; None where no pod reported anything.

    Sums are over the window as a whole, so that a pod that is new does not count as if it had always been there
    in addition to those whose work it took over. Pods that reported nothing are taken to be as busy as the mean of
    the others, but for newcomers, which had no time to.

    What is asked for is what arrives: the tokens made, those that sequences will get by which running and waiting
    ones became more (or fewer, when a queue is worked off), and those that refused ones would have got. What waits is
    owed on top, within `DRAIN`. A client that is refused may come again at once, and is counted again: so refusals
    count for as much as was served at most.
    """
    if not figures.pods:
        return None
    window = max(pod.seconds for pod in figures.pods)
    if window <= 0:
        return None
    others = unseen(figures, past.newcomers)
    tokens = others * sum(pod.generation_tokens or 0.0 for pod in figures.pods) / window
    refused = others * sum(pod.refused or 0.0 for pod in figures.pods) / window
    running = others * sum(_running(pod) * pod.seconds for pod in figures.pods) / window
    waiting = others * sum(pod.waiting or 0.0 for pod in figures.pods)
    if not all(math.isfinite(value) for value in (tokens, refused, running, waiting)):
        return None
    arrived = tokens + past.tokens_each * past.growth + min(past.tokens_each * refused, tokens)
    return Demand(max(0.0, arrived), running, waiting, past.tokens_each * waiting / DRAIN)


def unseen(figures: Figures, newcomers: int) -> float:
    """Pods for each one that reported figures, itself included, newcomers left out."""
    return 1 + max(0, figures.unknown - newcomers) / len(figures.pods)


def _running(pod: PodFigures) -> float:
    """Sequences at once, averaged over the window; the gauge is but a few looks at it."""
    if pod.inter_token_latency is not None:
        return pod.inter_token_latency.total / pod.seconds
    return pod.running or 0.0


@dataclass(frozen=True)
class Past:
    """What a window does not show by itself."""

    newcomers: int = 0
    """Pods that became Ready within it."""
    growth: float = 0.0
    """Sequences, running and waiting, by which they became more a second."""
    tokens_each: float = 0.0
    """Tokens that a sequence gets."""


class History:
    """What is remembered from window to window."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._in_flight: tuple[float, int, float] | None = None
        self._tokens = self._sequences = self._grew = 0.0
        self._at: float | None = None

    def past(self, figures: Figures, replicas: Replicas) -> Past:
        """Of this window; to be called once for each."""
        at = figures.at
        window = max((pod.seconds for pod in figures.pods), default=0.0)
        self._count(figures)
        self._seen.append((at, replicas.ready))
        while len(self._seen) > 1 and self._seen[1][0] <= at - window:
            self._seen.popleft()
        fewest = min(ready for _, ready in self._seen)
        each = self._tokens / self._sequences if self._sequences > 0 else 0.0
        return Past(max(0, replicas.ready - fewest), self._growth(figures), each)

    def _growth(self, figures: Figures) -> float:
        """Pods that come or go bring sequences with them, which says nothing: then as before."""
        before = self._in_flight
        count = (figures.sum("running") or 0.0) + (figures.sum("waiting") or 0.0)
        self._in_flight = (figures.at, len(figures.pods), count)
        if before is None or before[1] != len(figures.pods) or figures.at <= before[0]:
            return self._grew
        self._grew = (count - before[2]) / (figures.at - before[0])
        return self._grew

    def _count(self, figures: Figures) -> None:
        passed = 0.0 if self._at is None else figures.at - self._at
        self._at = figures.at
        finished = sum(pod.request_latency.count for pod in figures.pods if pod.request_latency is not None)
        keep = math.exp(-passed / REMEMBER) if passed > 0 else 1.0
        self._tokens = self._tokens * keep + (figures.sum("generation_tokens") or 0.0)
        self._sequences = self._sequences * keep + finished
