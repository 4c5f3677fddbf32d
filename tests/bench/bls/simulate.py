"""The ideal: the cost model in virtual time without any overhead, under each schedule. Pure.

Streams are a closed loop: each begins its next request when one ends. A group of streams goes through its
rounds together: the draft's call for all of them, then the target's verification for all.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.bls import tokens
from bench.bls.in_flight import Costs, Pair, PrefixCache, Row, StepLimits, choose, step_seconds


@dataclass(frozen=True)
class Job:
    """A request: its prompt's key and length, and the tokens that it wants."""

    key: int
    length: int
    max_tokens: int


@dataclass(frozen=True)
class Window:
    """When to measure, in virtual seconds."""

    warm_up: float = 3.0
    seconds: float = 20.0


@dataclass(frozen=True)
class Outcome:
    """Of the window: tokens/s, mean TTFT (s), mean time of a round (s)."""

    schedule: str
    speed: float
    ttft: float
    round_time: float


@dataclass
class Clock:
    """Virtual time: events in order, those of rank 0 before those of rank 1 at the same time."""

    now: float = 0.0
    _events: list[tuple[float, int, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def at(self, moment: float, rank: int, action: Callable[[], None]) -> None:
        """Do something at a time that is not past."""
        heapq.heappush(self._events, (moment, rank, next(self._numbers), action))

    def run(self, until: float) -> None:
        """Let the time pass."""
        while self._events and self._events[0][0] < until:
            self.now, _, _, action = heapq.heappop(self._events)
            action()


@dataclass
class Device:
    """What engines run their steps on; one that is shared is free for one step at a time."""

    free: float = 0.0

    def reserve(self, begin: float, seconds: float) -> float:
        """The end of a step that could begin at `begin`."""
        self.free = max(self.free, begin) + seconds
        return self.free


@dataclass(eq=False)
class Call:
    """An engine call, and what to do after each step that made a token for one of its rows; `ended`: for all of them,
    all that were to come."""

    rows: list[Row]
    on_step: Callable[[bool], None]


class Engine:
    """An engine in virtual time. `exclusive`: it takes one call at a time, to its end."""

    def __init__(self, clock: Clock, device: Device, costs: Costs, exclusive: bool, limits: StepLimits) -> None:
        self.cache = PrefixCache()
        self._clock, self._device, self._costs, self._limits = clock, device, costs, limits
        self._exclusive = exclusive
        self._calls: list[Call] = []
        self._rows: list[Row] = []
        self._busy = False

    def submit(self, call: Call) -> None:
        """Queue a call."""
        self._calls.append(call)
        self._wake()

    def _wake(self) -> None:
        if not self._busy and self._calls:
            self._busy = True
            self._clock.at(self._clock.now, 1, self._begin)

    def _begin(self) -> None:
        calls = self._calls[:1] if self._exclusive else self._calls
        self._rows = [row for call in calls for row in call.rows if not row.done]
        choose(self._rows, self._limits, self.cache)
        end = self._device.reserve(self._clock.now, step_seconds(self._rows, self._costs))
        self._clock.at(end, 0, self._end)

    def _end(self) -> None:
        self._busy = False
        made = {id(row) for row in self._rows if row.end_step()}
        calls = [call for call in self._calls if any(id(row) in made for row in call.rows)]
        self._calls = [call for call in self._calls if not all(row.done for row in call.rows)]
        for call in calls:
            call.on_step(all(row.done for row in call.rows))
        self._wake()


class Figures:
    """Counts what falls into the window."""

    def __init__(self, clock: Clock, window: Window) -> None:
        self._clock, self._window = clock, window
        self._tokens = 0
        self._ttft: list[float] = []
        self._rounds: list[float] = []

    def produced(self, count: int) -> None:
        """New tokens."""
        self._tokens += count * self._inside(self._clock.now)

    def first(self, begun: float) -> None:
        """The first tokens of a request that began then."""
        if self._inside(begun):
            self._ttft.append(self._clock.now - begun)

    def round(self, begun: float) -> None:
        """A group's round that began then."""
        if self._inside(begun):
            self._rounds.append(self._clock.now - begun)

    def outcome(self, schedule: str) -> Outcome:
        """The figures."""
        speed = self._tokens / self._window.seconds
        return Outcome(schedule, speed, _mean(self._ttft), _mean(self._rounds))

    def _inside(self, moment: float) -> bool:
        return self._window.warm_up <= moment < self._window.warm_up + self._window.seconds


class Stream:
    """One client: its current request, and the draft's luck in it."""

    def __init__(self, jobs: Iterator[Job], first: Job, alphas: Sequence[float], figures: Figures) -> None:
        self._jobs, self._alphas, self._figures = jobs, np.array(alphas), figures
        self._start(first, 0.0)

    def _start(self, job: Job, now: float) -> None:
        self.key, self.length, self.remaining = job.key, job.length, job.max_tokens
        self._begun, self._first = now, True
        key = np.array([job.key], np.uint64)
        positions = np.arange(job.length, job.length + job.max_tokens)[None]
        self._agreed = tokens.agrees(key, positions, tokens.alpha_of(key, self._alphas))[0].tolist()
        self._at = 0

    def lead(self, k: int) -> int:
        """How many of the next k draft tokens are right."""
        run = self._agreed[self._at : self._at + k]
        return run.index(False) if False in run else len(run)

    def gain(self, count: int, now: float) -> None:
        """Take new tokens; begin the next request when this one has all."""
        if self._first:
            self._figures.first(self._begun)
            self._first = False
        self._figures.produced(count)
        self.length += count
        self.remaining -= count
        self._at += count
        if self.remaining == 0:
            self._start(next(self._jobs), now)


class Group:
    """Streams that go through rounds together."""

    def __init__(self, streams: list[Stream], k: int, clock: Clock, figures: Figures) -> None:
        self._streams, self._k, self._clock, self._figures = streams, k, clock, figures

    def connect(self, draft: Engine, target: Engine) -> None:
        """Use these engines, and begin."""
        self._draft, self._target = draft, target
        self._round() if self._k else self._alone()

    def _round(self) -> None:
        self._begun = self._clock.now
        self._lengths = [min(self._k, stream.remaining - 1) for stream in self._streams]
        drafting = [(s, k) for s, k in zip(self._streams, self._lengths, strict=True) if k > 0]
        if not drafting:
            self._verify()
            return
        rows = [Row(stream.key, stream.length, k) for stream, k in drafting]
        self._draft.submit(Call(rows, lambda ended: self._drafted(drafting) if ended else None))

    def _drafted(self, drafting: list[tuple[Stream, int]]) -> None:
        for stream, k in drafting:
            self._draft.cache.store(stream.key, stream.length + min(stream.lead(k), k - 1))
        self._verify()

    def _verify(self) -> None:
        pairs = zip(self._streams, self._lengths, strict=True)
        rows = [Row(stream.key, stream.length, draft_tokens=max(0, k)) for stream, k in pairs]
        self._target.submit(Call(rows, lambda ended: self._verified(rows) if ended else None))

    def _verified(self, rows: list[Row]) -> None:
        self._figures.round(self._begun)
        for stream, row in zip(self._streams, rows, strict=True):
            accepted = stream.lead(row.draft_tokens)
            self._target.cache.store(stream.key, stream.length + accepted)
            stream.gain(accepted + 1, self._clock.now)
        self._round()

    def _alone(self) -> None:
        """The target alone: one call a request."""
        (stream,) = self._streams

        def on_step(ended: bool) -> None:
            stream.gain(1, self._clock.now)
            if ended:
                self._alone()

        self._target.submit(Call([Row(stream.key, stream.length, stream.remaining)], on_step))


@dataclass(frozen=True)
class Workload:
    """A closed loop: the streams' first requests, what follows, and the acceptances (see tokens.alpha_of)."""

    first: Sequence[Job]
    jobs: Sequence[Job]
    alphas: Sequence[float] = (0.8,)
    window: Window = Window()


def run(pair: Pair, load: Workload, k: int, groups: int, exclusive: bool = False) -> Outcome:
    """Simulate with draft length k (0: the target alone, a group a stream) and the streams in groups."""
    clock = Clock()
    figures = Figures(clock, load.window)
    jobs = itertools.cycle(load.jobs)
    streams = [Stream(jobs, first, load.alphas, figures) for first in load.first]
    device = Device()
    draft = Engine(clock, device, pair.draft, exclusive, pair.draft_limits)
    target = Engine(clock, device if pair.shared else Device(), pair.target, exclusive, pair.target_limits)
    for i in range(groups):
        Group(streams[i::groups], k, clock, figures).connect(draft, target)
    clock.run(load.window.warm_up + load.window.seconds)
    return figures.outcome("")


def schedules(pair: Pair, load: Workload, k: int) -> list[Outcome]:
    """Every schedule that differs at this load, with draft length k, of as few cohorts as steps let be."""
    streams = len(load.first)
    longest = max(job.length + job.max_tokens for job in (*load.first, *load.jobs))
    least = -(-streams // min(pair.draft_limits.fit(longest), pair.target_limits.fit(longest + k)))
    variants = [("lock-step", 1, False)] if least == 1 else []
    if streams > 1:
        name = "two cohorts" if least <= 2 else f"{least} cohorts"
        variants += [("each on its own", streams, False), (name, max(2, least), True)]
    made = [(name, run(pair, load, k, groups, exclusive)) for name, groups, exclusive in variants]
    return [Outcome(name, each.speed, each.ttft, each.round_time) for name, each in made]


def target_only(pair: Pair, load: Workload) -> Outcome:
    """The target alone, one long call a request."""
    made = run(pair, load, 0, len(load.first))
    return Outcome("target only", made.speed, made.ttft, made.round_time)


def ideal(pair: Pair, load: Workload, lengths: Iterable[int]) -> Outcome:
    """The best schedule with one of these draft lengths; 0: the target alone."""
    outcomes = [each for k in lengths for each in (schedules(pair, load, k) if k else [target_only(pair, load)])]
    return max(outcomes, key=lambda outcome: outcome.speed)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
