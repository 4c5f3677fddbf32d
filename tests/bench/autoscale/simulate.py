"""A service over a trace: replicas, an autoscaler that sees their metrics, requests. Discrete events, pure."""

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from bench.autoscale.costs import MAX_DRAFT_LEN
from bench.autoscale.hpa import SYNC, Hpa
from bench.autoscale.replica import BOUNDS, Counters, Replica, Request
from bench.autoscale.traces import Moment, Requests, Trace
from tandem.metrics.telemetry.figures import Figures, Histogram, PodFigures, Replicas

SCRAPE = 15.0
WINDOW = 60.0
# Until then replicas stay as they are, and nothing counts.
WARM_UP = 600.0
# The autoscaler looks so long after a scrape.
LATE = 7.0


class Scaler(Protocol):
    """What gives the autoscaler its metric."""

    def value(self, figures: Figures, replicas: Replicas) -> float | None:
        """The metric, in replicas; None: nothing is known."""
        ...


@dataclass(frozen=True)
class Setting:
    """What a service has. `plan`: replicas by time instead of an autoscaler (the oracle's)."""

    cold_start: float = 180.0
    least: int = 1
    most: int = 16
    k: int | None = None
    start: int = 1
    patience: float | None = None
    """Requests that waited for so long (s) are refused; None: none is."""
    scaler: Scaler | None = None
    plan: Callable[[float], int] | None = None


@dataclass
class Course:
    """What happened."""

    requests: list[Request] = field(default_factory=list)
    replicas: list[tuple[float, int]] = field(default_factory=list)
    """Replicas wanted, by time, where they change."""
    values: list[tuple[float, float]] = field(default_factory=list)
    """The metric by time."""
    hours: float = 0.0
    """Hours of replicas, from their creation to their end."""
    until: float = 0.0

    def attainment(self, ttft: float, itl: float) -> float:
        """Share of the requests that kept both objectives (s); those that had a minute's time at the end count."""
        due = [request for request in self.requests if WARM_UP <= request.arrived < self.until - 60]
        return sum(request.kept(ttft, itl) for request in due) / max(1, len(due))

    @property
    def changes_an_hour(self) -> float:
        """Changes of the number of replicas."""
        return (len(self.replicas) - 1) / ((self.until - WARM_UP) / 3600)


class Service:
    """The service while it runs."""

    def __init__(self, trace: Trace, setting: Setting, seed: int) -> None:
        self._trace, self._setting = trace, setting
        self._rng = random.Random(seed)
        self._hpa = Hpa(setting.least, setting.most)
        self._moment = trace.at(0.0)
        self._pods: list[Replica] = []
        self._snapshots: dict[Replica, deque[tuple[float, Counters, int, int]]] = {}
        self._value: float | None = None
        self._ends: list[tuple[float, int, Replica]] = []
        self._number = 0
        self._early: deque[Request] = deque()  # while no replica is Ready
        self.course = Course(until=trace.seconds)
        for _ in range(setting.start):
            self._create(-setting.cold_start)
        self.course.replicas.append((0.0, setting.start))

    def run(self, requests: Requests) -> Course:
        """Let the trace pass."""
        arrivals = zip(requests.at.tolist(), requests.prompt.tolist(), requests.output.tolist(), strict=True)
        coming = next(arrivals, None)
        scrape, sync, until = 0.0, LATE, self._trace.seconds
        while True:
            end = self._ends[0][0] if self._ends else float("inf")
            now = min(coming[0] if coming else float("inf"), end, scrape, sync)
            if now >= until:
                break
            if coming and now == coming[0]:
                request = Request(*coming)
                self.course.requests.append(request)
                self._route(now, request)
                coming = next(arrivals, None)
            elif now == end:
                self._end()
            elif now == scrape:
                self._scrape(now)
                scrape += SCRAPE
            else:
                self._sync(now)
                sync += SYNC
        for pod in self._pods:
            self.course.hours += (until - max(WARM_UP, pod.created)) / 3600
        return self.course

    def _ready(self, now: float) -> list[Replica]:
        return [pod for pod in self._pods if pod.ready <= now and not pod.leaving]

    def _route(self, now: float, request: Request) -> None:
        """To the less loaded of two that are chosen by chance (Envoy's least-request balancing)."""
        pods = self._ready(now)
        if not pods:
            self._early.append(request)
            return
        one, other = self._rng.choice(pods), self._rng.choice(pods)
        pod = one if one.load <= other.load else other
        pod.take(now, request)
        self._await(pod)

    def _await(self, pod: Replica) -> None:
        self._number += 1
        heapq.heappush(self._ends, (pod.next_end(), self._number, pod))

    def _end(self) -> None:
        at, _, pod = heapq.heappop(self._ends)
        if abs(at - pod.next_end()) > 1e-9:
            return  # overtaken by another event, which has its own entry
        pod.finish(at)
        if pod.load:
            self._await(pod)
        elif pod.leaving:
            self._remove(at, pod)

    def _create(self, now: float) -> None:
        pod = Replica(now, now + self._setting.cold_start, self._setting.k, self._setting.patience)
        pod.become(pod.ready, self._moment)
        self._pods.append(pod)
        self._snapshots[pod] = deque()

    def _remove(self, now: float, pod: Replica) -> None:
        self._pods.remove(pod)
        del self._snapshots[pod]
        self.course.hours += (now - max(WARM_UP, pod.created)) / 3600

    def _scale(self, now: float, wanted: int) -> None:
        staying = [pod for pod in self._pods if not pod.leaving]
        if wanted != len(staying):
            self.course.replicas.append((now, wanted))
        for _ in range(wanted - len(staying)):
            self._create(now)
        # As a ReplicaSet: those that are not Ready first, then the youngest.
        staying.sort(key=lambda pod: (pod.ready <= now, -pod.created))
        for pod in staying[: max(0, len(staying) - wanted)]:
            pod.leaving = True
            if pod.ready > now or not pod.load:
                self._remove(now, pod)

    def _scrape(self, now: float) -> None:
        self._moment = self._trace.at(now)
        for pod in self._pods:
            if pod.ready > now:
                continue
            pod.become(now, self._moment)
            if pod.load:
                self._await(pod)
            seen = self._snapshots[pod]
            seen.append((now, pod.counters.copy(), pod.running, len(pod.waiting)))
            while seen[0][0] < now - WINDOW:
                seen.popleft()
        while self._early and self._ready(now):
            self._route(now, self._early.popleft())
        if self._setting.scaler:
            ready = self._ready(now)
            told = [self._figures(pod) for pod in ready if len(self._snapshots[pod]) > 1]
            figures = Figures(now, tuple(told), unknown=len(ready) - len(told))
            pending = sum(pod.ready > now for pod in self._pods)
            replicas = Replicas(len(ready), pending, len(ready) + pending, self._setting.cold_start)
            self._value = self._setting.scaler.value(figures, replicas)
            if self._value is not None:
                self.course.values.append((now, self._value))

    def _sync(self, now: float) -> None:
        current = sum(not pod.leaving for pod in self._pods)
        if now < WARM_UP:
            return
        if self._setting.plan:
            self._scale(now, self._setting.plan(now))
        else:
            self._scale(now, self._hpa.sync(now, current, self._value))

    def _figures(self, pod: Replica) -> PodFigures:
        seen = self._snapshots[pod]
        (begin, first, _, _), (end, last, _, _) = seen[0], seen[-1]
        return PodFigures(
            seconds=end - begin,
            running=sum(running for _, _, running, _ in seen) / len(seen),
            waiting=sum(waiting for _, _, _, waiting in seen) / len(seen),
            refused=last.refused - first.refused,
            prompt_tokens=last.prompt - first.prompt,
            generation_tokens=last.tokens - first.tokens,
            rounds=last.rounds - first.rounds,
            draft_tokens=last.drafted - first.drafted,
            accepted_tokens=sum(last.accepted) - sum(first.accepted),
            accepted_per_position=tuple(last.accepted[i] - first.accepted[i] for i in range(MAX_DRAFT_LEN)),
            request_latency=Histogram((float("inf"),), (last.finished - first.finished,), 0.0),
            time_to_first_token=_histogram(last.ttft, first.ttft, last.ttft_total - first.ttft_total),
            inter_token_latency=_histogram(last.itl, first.itl, last.itl_total - first.itl_total),
        )


def _histogram(last: list[float], first: list[float], total: float) -> Histogram:
    return Histogram(BOUNDS, tuple(b - a for a, b in zip(first, last, strict=True)), total)


__all__ = ["Course", "Moment", "Scaler", "Service", "Setting"]
