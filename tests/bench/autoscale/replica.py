"""A replica in virtual time: continuous batching, with and without speculation. Pure.

Its sequences share its steps, so all advance by the same number of tokens: the time between events needs no steps.
A new prompt's prefill holds the others up. What its pod would tell on :8002 is counted beside.
"""

import heapq
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field, replace

from bench.autoscale import costs
from bench.autoscale.traces import Moment

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, float("inf"))


@dataclass
class Counters:
    """What the pod counts, ever growing."""

    prompt: float = 0.0
    finished: float = 0.0
    refused: float = 0.0
    tokens: float = 0.0
    rounds: float = 0.0
    drafted: float = 0.0
    accepted: list[float] = field(default_factory=lambda: [0.0] * costs.MAX_DRAFT_LEN)
    ttft: list[float] = field(default_factory=lambda: [0.0] * len(BOUNDS))
    ttft_total: float = 0.0
    itl: list[float] = field(default_factory=lambda: [0.0] * len(BOUNDS))
    itl_total: float = 0.0

    def copy(self) -> "Counters":
        """As it is now."""
        return replace(self, accepted=self.accepted.copy(), ttft=self.ttft.copy(), itl=self.itl.copy())


class Request:
    """A request's course."""

    __slots__ = ("arrived", "ended", "first", "output", "prompt")

    def __init__(self, arrived: float, prompt: float, output: float) -> None:
        self.arrived, self.prompt, self.output = arrived, prompt, output
        self.first = self.ended = float("inf")

    def kept(self, ttft: float, itl: float) -> bool:
        """Whether both objectives (s) were kept."""
        return self.first - self.arrived <= ttft and self.ended - self.first <= itl * self.output


class Replica:
    """One pod. `k`: its fixed draft length, None: adaptive; `patience`: requests that waited for so long (s) are
    refused."""

    def __init__(self, created: float, ready: float, k: int | None, patience: float | None = None) -> None:
        self.created, self.ready = created, ready
        self.gone = float("inf")
        self.leaving = False
        self.counters = Counters()
        self.waiting: deque[Request] = deque()
        self._running: list[tuple[float, int, Request]] = []  # by the progress at which they end
        self._k, self._patience = k, float("inf") if patience is None else patience
        self._now = self._blocked = ready
        self._progress = 0.0  # tokens that each sequence got, ever
        self._number = 0
        self._moment = Moment(0.0)
        self._speed = costs.speed(1, 0.8, 1.0, k)

    @property
    def load(self) -> int:
        """Sequences that run or wait."""
        return len(self._running) + len(self.waiting)

    @property
    def running(self) -> int:
        """Sequences that run."""
        return len(self._running)

    def become(self, now: float, moment: Moment) -> None:
        """The traffic has changed."""
        self.advance(now)
        self._moment = Moment(0.0, round(moment.acceptance, 2), round(moment.context, 1))
        self._retime()

    def take(self, now: float, request: Request) -> None:
        """A request arrives."""
        self.advance(now)
        self.waiting.append(request)
        self._admit(now)

    def next_end(self) -> float:
        """When the next sequence ends, if nothing else happens."""
        if not self._running:
            return float("inf")
        return max(self._now, self._blocked) + (self._running[0][0] - self._progress) * self._speed.itl

    def advance(self, now: float) -> None:
        """Let time pass until then."""
        held = min(max(self._blocked - self._now, 0.0), now - self._now)
        passed, rows = now - self._now - held, len(self._running)
        self._now = now
        if not rows:
            return
        self.counters.itl_total += rows * (held + passed)
        if passed > 0:
            self._count(rows, passed)

    def finish(self, now: float) -> list[Request]:
        """Sequences that end at this time; the next ones take their places."""
        self.advance(now)
        ended = []
        while self._running and self._running[0][0] <= self._progress + 1e-6:
            _, _, request = heapq.heappop(self._running)
            request.ended = now
            self.counters.prompt += request.prompt
            self.counters.finished += 1
            ended.append(request)
        self._admit(now)
        return ended

    def _count(self, rows: int, passed: float) -> None:
        speed, told = self._speed, self.counters
        gained = passed / speed.itl
        self._progress += gained
        told.tokens += rows * gained
        told.itl[bisect_left(BOUNDS, speed.itl)] += rows * gained
        if speed.k:
            rounds = rows * passed / speed.seconds
            told.rounds += rounds
            told.drafted += rounds * speed.k
            for position, share in enumerate(costs.reach(self._moment.acceptance, speed.k)):
                told.accepted[position] += rounds * share

    def _admit(self, now: float) -> None:
        while self.waiting and len(self._running) < costs.PLACES:
            request = self.waiting.popleft()
            if now - request.arrived > self._patience:
                self.counters.refused += 1
                continue
            self._blocked = max(self._blocked, now) + costs.prefill(request.prompt)
            self._number += 1
            heapq.heappush(self._running, (self._progress + request.output, self._number, request))
            self._retime()
            request.first = self._blocked + self._speed.seconds
            self.counters.ttft[bisect_left(BOUNDS, request.first - request.arrived)] += 1
            self.counters.ttft_total += request.first - request.arrived
        self._retime()

    def _retime(self) -> None:
        rows = max(1, len(self._running))
        self._speed = costs.speed(rows, self._moment.acceptance, self._moment.context, self._k)
