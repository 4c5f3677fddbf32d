"""Samples of counters and gauges turned into figures over a window. Pure: the clock is the caller's.

A counter is kept as what it counted since its pod was first read, over the restarts of its container: where a counter
falls the server has started again, and all its counters are counted from 0. A series that appears later was 0 before:
Tandem's models publish some only once there is something to count. What a page says unusably is unknown at that
moment, and so is every window that starts or ends there.
"""

from array import array
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import fmean
from typing import Any

from tandem.metrics.telemetry.families import ACCEPTED_PER_POSITION, COUNTERS, GAUGE_FIELDS, HISTOGRAMS
from tandem.metrics.telemetry.figures import Figures, Histogram, PodFigures
from tandem.metrics.telemetry.page import MAX_SERIES, Page, Series

MAX_SAMPLES = 128
"""Samples kept of a pod, however often it is read."""
LONGEST = 1.25
"""Windows as a share of what is asked for: pods are read at least twice in one, so half an interval is a quarter."""
RUNNING = GAUGE_FIELDS.index("running")
"""Its place among a sample's gauges."""


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    totals: "array[float]"
    """In the order of the pod's series; those that came later are missing."""
    gauges: tuple[float | None, ...]
    """In the order of GAUGE_FIELDS."""
    unknown: frozenset[str]
    """Families."""


@dataclass
class _Pod:
    last: dict[Series, float] = field(default_factory=dict)
    """The value of each counter."""
    totals: dict[Series, float] = field(default_factory=dict)
    """What each counted over restarts. Only grows, so that a sample is a prefix of its values."""
    samples: deque[_Sample] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))

    def add(self, at: float, page: Page) -> None:
        """Take a page that is newer than all before."""
        known = {s: 0.0 for s in self.last if s.family not in page.unknown} | page.counters
        if any(value < self.last.get(s, 0.0) for s, value in known.items()):
            self.last = dict.fromkeys(self.last, 0.0)
        for s, value in known.items():
            self.totals[s] = self.totals.get(s, 0.0) + value - self.last.get(s, 0.0)
            self.last[s] = value
        gauges = tuple(page.gauges.get(name) for name in GAUGE_FIELDS)
        self.samples.append(_Sample(at, array("d", self.totals.values()), gauges, frozenset(page.unknown)))

    def figures(self, at: float, window: float) -> PodFigures | None:
        """What it did within about `window` seconds before it was read last; None where that was longer ago, or with
        fewer than two samples there.

        It begins with the sample that is nearest to that. A sample at the edge would else be within for one pod and
        without for another, and windows of pods that are read alike differ by a whole interval.
        """
        last = self.samples[-1]
        near = [sample for sample in self.samples if last.at - sample.at <= LONGEST * window]
        if len(near) < 2 or abs(at - last.at) > window:
            return None
        first = min(near[:-1], key=lambda sample: abs(last.at - sample.at - window))
        inside = [sample for sample in near if sample.at >= first.at]
        unknown = first.unknown | last.unknown
        before = (*first.totals, *[0.0] * (len(last.totals) - len(first.totals)))
        grown = {
            s: now - then
            for s, now, then in zip(self.totals, last.totals, before, strict=False)
            if s.family not in unknown
        }
        fields: dict[str, Any] = {name: grown.get(Series(family)) for family, name in COUNTERS.items()}
        fields |= {name: _histogram(family, grown) for family, name in HISTOGRAMS.items()}
        for number, name in enumerate(GAUGE_FIELDS):
            values = [value for sample in inside if (value := sample.gauges[number]) is not None]
            fields[name] = fmean(values) if values else None
        whole = last.at - first.at >= window / LONGEST
        return PodFigures(
            seconds=last.at - first.at,
            accepted_per_position=_positions(grown),
            stuck=whole and fields["generation_tokens"] == 0 and all(map(_busy, inside)),
            **fields,
        )


@dataclass
class Store:
    """The samples of all pods, by uid, for windows of up to `seconds`; of each the one before that, too."""

    seconds: float
    _pods: dict[str, _Pod] = field(default_factory=dict)

    def add(self, pod: str, at: float, page: Page) -> None:
        """Take a page that was read at `at`, Unix seconds.

        One of the time of the latest is left out. An older one means that the clock was set back: the pod is known
        from there on alone.
        """
        known = self._pods.get(pod)
        if known is None or at < known.samples[-1].at or len(known.totals) > MAX_SERIES:
            known = self._pods[pod] = _Pod()
        elif at == known.samples[-1].at:
            return
        known.add(at, page)
        while len(known.samples) > 1 and known.samples[1].at < at - self.seconds:
            known.samples.popleft()

    def latest(self, pod: str) -> float | None:
        """When the pod was read last, Unix seconds; None for one that never was."""
        known = self._pods.get(pod)
        return known.samples[-1].at if known else None

    def figures(self, pods: Collection[str], at: float, window: float) -> Figures:
        """What these pods did within about the `window` seconds before `at`."""
        every = {pod: figures for pod in pods if (figures := self._figures(pod, at, window))}
        reporting = tuple(figures for figures in every.values() if not figures.stuck)
        stuck = frozenset(pod for pod, figures in every.items() if figures.stuck)
        return Figures(at, reporting, len(pods) - len(reporting), stuck)

    def _figures(self, pod: str, at: float, window: float) -> PodFigures | None:
        known = self._pods.get(pod)
        return known.figures(at, window) if known else None

    def keep(self, pods: Collection[str]) -> None:
        """Forget all pods but these."""
        self._pods = {pod: known for pod, known in self._pods.items() if pod in pods}


def _busy(sample: _Sample) -> bool:
    """Whether a sequence ran then."""
    return (sample.gauges[RUNNING] or 0.0) >= 1


def _positions(grown: Mapping[Series, float]) -> tuple[float, ...]:
    by_position = {int(s.key): value for s, value in grown.items() if s.family == ACCEPTED_PER_POSITION}
    return tuple(by_position.get(position, 0.0) for position in range(max(by_position, default=-1) + 1))


def _histogram(family: str, grown: Mapping[Series, float]) -> Histogram | None:
    """A histogram's observations; None where its page is incomplete.

    Triton's buckets are counters one by one, and a scrape may come between two of them: a bucket holds no less than
    those below it.
    """
    buckets = sorted((s.key, value) for s, value in grown.items() if s.family == family and s.part == "bucket")
    total = grown.get(Series(family, "sum"))
    if not buckets or buckets[-1][0] != float("inf") or total is None:
        return None
    bounds, values = zip(*buckets, strict=True)
    upto = list(accumulate(values, max))
    counts = tuple(now - below for now, below in zip(upto, [0.0, *upto], strict=False))
    return Histogram(bounds, counts, total)
