"""What speculation is worth: tokens a second with it over those without, at the same load. Pure.

From the fitted model, whose step without a draft is more or less certain; or, better, from probes: sequences that ran
without a draft next to the others, or times that all did (`tandem_serving.bls.draft_length`).
"""

import math
from collections.abc import Sequence

from tandem.metrics.capacity.lengths import Lengths
from tandem.metrics.capacity.model import ReplicaModel, Steps, steps_of
from tandem.metrics.report import Worth
from tandem.metrics.telemetry.figures import Figures, Histogram

# Rounds in a window, and probes, below which there is no result.
LEAST_ROUNDS = 200
LEAST_PROBES = 30
# The model's estimate is dropped when it is less certain than this (relative standard deviation).
MOST_DOUBT = 0.15
# Standard deviations of a 95% interval.
WIDTH = 1.96
# After so many seconds a probe counts half.
HALF_LIFE = 1800.0
# Spread of the speed of single sequences at least: buckets hide what is below.
LEAST_SPREAD = 0.2
# A step drafts less than this on average: speculation is off.
OFF = 0.05


def of_model(model: ReplicaModel, figures: Figures, lengths: Lengths) -> Worth:
    """By the model, at the load and the draft length of the window."""
    if lengths.maximum == 0:
        return Worth(message="the service serves the target alone")
    steps = mean_steps([each for pod in figures.pods if (each := steps_of(pod, lengths))])
    if steps is None:
        return Worth(message="too little traffic to judge")
    if steps.k < OFF:
        return Worth(message="the target runs alone at this load")
    rounds = int(figures.sum("rounds") or 0)
    if rounds < LEAST_ROUNDS:
        return Worth(samples=rounds, message=f"fewer than {LEAST_ROUNDS} draft-and-verify rounds lately")
    doubt = model.step_time.ratio_doubt(steps.rows, steps.k, 0)
    if doubt > MOST_DOUBT:
        return Worth(
            samples=rounds,
            message="what a step without a draft takes was not seen often enough yet",
        )
    with_draft, alone = (model.step_time.predict(steps.rows, k).seconds for k in (steps.k, 0))
    where = (
        f"at {steps.rows:.0f} sequences a replica, {steps.k:.1f} tokens drafted and {steps.tokens:.1f} made a step"
    )
    return _worth(
        "Model", steps.tokens * alone / with_draft, doubt, rounds, f"{where}, by the model from {rounds} rounds"
    )


class ProbeSpeed:
    """What probes showed, each window's with the speed of the others in it."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._seconds = self._expected = self._count = self._squares = 0.0

    def observe(self, figures: Figures) -> None:
        """Learn from a window; windows may overlap."""
        passed = math.inf if self._at is None else max(0.0, figures.at - self._at)
        self._at = figures.at
        keep = 0.5 ** (passed / HALF_LIFE)
        self._seconds, self._expected, self._count = (
            keep * value for value in (self._seconds, self._expected, self._count)
        )
        for pod in figures.pods:
            every, probes = pod.inter_token_latency, pod.probe_latency
            if every is None or probes is None or probes.count <= 0 or every.count <= probes.count:
                continue
            new = min(1.0, passed / pod.seconds)
            others = (every.total - probes.total) / (every.count - probes.count)
            self._seconds += new * probes.total
            self._expected += new * probes.count * others
            self._count += new * (pod.probe_sequences or 0.0)
            self._squares = _spread(probes)

    def worth(self) -> Worth | None:
        """None while there are too few."""
        if self._count < LEAST_PROBES or self._expected <= 0:
            return None
        doubt = max(self._squares, LEAST_SPREAD) / math.sqrt(self._count)
        count = int(self._count)
        return _worth("Probe", self._seconds / self._expected, doubt, count, f"by {count} probes without a draft")


class Judge:
    """What speculation is worth on the pods of the revisions that serve. Others begin anew: how fast one was says
    nothing of the next."""

    def __init__(self, lengths: Lengths, share: float) -> None:
        """`share`: see `StepTime`."""
        self._lengths, self._share = lengths, share
        self._serving: tuple[str, ...] = ()
        self._begin()

    def update(self, figures: Figures, serving: tuple[str, ...]) -> Worth:
        """Learn from a window, of pods of the revisions `serving` (none: no pod is Ready), and judge."""
        if serving and serving != self._serving:
            self._serving = serving
            self._begin()
        self._model.observe(figures, self._lengths)
        self._probes.observe(figures)
        if len(serving) > 1:
            return Worth(message="pods of several revisions serve: judged when the rollout is over")
        return self._probes.worth() or of_model(self._model, figures, self._lengths)

    def _begin(self) -> None:
        self._model, self._probes = ReplicaModel(self._lengths.maximum, self._share), ProbeSpeed()


def mean_steps(each: Sequence[Steps]) -> Steps | None:
    """The mean over pods; None without any."""
    if not each:
        return None
    count = len(each)
    return Steps(
        *(sum(values) / count for values in zip(*((s.rows, s.k, s.seconds, s.tokens) for s in each), strict=True))
    )


def _worth(source: str, speedup: float, doubt: float, samples: int, where: str) -> Worth:
    low, high = speedup * math.exp(-WIDTH * doubt), speedup * math.exp(WIDTH * doubt)
    return Worth(
        speedup=speedup,
        low=low,
        high=high,
        source="Probe" if source == "Probe" else "Model",
        samples=samples,
        message=f"{speedup:.2f} times the target alone ({low:.2f} to {high:.2f}) {where}",
    )


def _spread(histogram: Histogram) -> float:
    """Standard deviation over mean, of values in the middle of their buckets."""
    lower = (0.0, *histogram.bounds)
    middles = [
        low if high == math.inf else (low + high) / 2 for low, high in zip(lower, histogram.bounds, strict=False)
    ]
    mean = sum(m * c for m, c in zip(middles, histogram.counts, strict=True)) / histogram.count
    squares = sum((m - mean) ** 2 * c for m, c in zip(middles, histogram.counts, strict=True)) / histogram.count
    return math.sqrt(squares) / mean if mean > 0 else 0.0
