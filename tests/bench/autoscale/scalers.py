"""What decides the number of replicas: Tandem's policy, simple ones beside it, and an oracle."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bench.autoscale import costs
from bench.autoscale.traces import OUTPUT_TOKENS, PROMPT_TOKENS, Trace
from tandem.api.types import ServiceSpec
from tandem.metrics.capacity.model import Curve
from tandem.metrics.capacity.planner import Planner
from tandem.metrics.telemetry.figures import Figures, Replicas

TTFT, ITL, QUEUE = 1.0, 0.05, 4
LOW_ACCEPTANCE = 0.6


def specification(k: int | None, most: int) -> ServiceSpec:
    """The simulated service, with a fixed draft length, 0 (the target alone), or None (adaptive)."""
    speculation: dict[str, object] = {"decodingType": "None"}
    if k != 0:
        speculation = {
            "decodingType": "DraftTarget",
            "maxDraftLen": k or costs.MAX_DRAFT_LEN,
            "adaptive": {"enabled": k is None},
        }
    return ServiceSpec.model_validate(
        {
            "runtime": {"mode": "BLS", "profile": "reference"},
            "target": {"model": {"uri": "hf://example/target"}},
            "speculation": speculation,
            "serving": {"maxBatchSize": costs.PLACES},
            "autoscaling": {
                "maxReplicas": most,
                "objectives": {
                    "timeToFirstToken": f"{TTFT:g}s",
                    "interTokenLatency": f"{ITL * 1e3:g}ms",
                    "queueLength": QUEUE,
                },
            },
        }
    )


class Tandem:
    """The real planner."""

    def __init__(self, spec: ServiceSpec) -> None:
        self._spec = spec
        self._planner = Planner(spec)

    def value(self, figures: Figures, replicas: Replicas) -> float | None:
        """The metric `tandem_replicas_needed`."""
        decision = self._planner.update(figures, replicas, self._spec).decision
        return decision.load if decision else None


@dataclass
class Simple:
    """An HPA on a metric that is told for each replica, with a target: replicas times the metric over it."""

    ratio: Callable[[Figures], float | None]

    def value(self, figures: Figures, replicas: Replicas) -> float | None:
        """Replicas, as if the metric stood in proportion to their number."""
        ratio = self.ratio(figures)
        return None if ratio is None else ratio * (replicas.ready + replicas.pending)


def queue(figures: Figures) -> float | None:
    """Requests that wait, a replica."""
    waiting = figures.sum("waiting")
    return None if waiting is None else waiting / len(figures.pods) / QUEUE


def latency(figures: Figures) -> float | None:
    """The worse of the latencies over its objective."""
    ttft, itl = figures.histogram("time_to_first_token"), figures.histogram("inter_token_latency")
    told = [
        value / goal
        for value, goal in ((ttft.quantile(0.95) if ttft else None, TTFT), (itl.mean if itl else None, ITL))
        if value is not None
    ]
    return max(told, default=None)


def acceptance(figures: Figures) -> float | None:
    """More replicas where acceptance is low; else by the queue."""
    rate, waits = figures.acceptance_rate, queue(figures)
    if rate is not None and rate < LOW_ACCEPTANCE:
        return max(waits or 0.0, LOW_ACCEPTANCE / rate)
    return waits


class Concurrency:
    """An HPA on the sequences that run and wait, towards a share (0..1) of a replica's places."""

    def __init__(self, share: float) -> None:
        self._target = share * costs.PLACES

    def value(self, figures: Figures, replicas: Replicas) -> float | None:
        """Sequences over the target."""
        running, waiting = figures.sum("running"), figures.sum("waiting")
        return None if running is None else (running + (waiting or 0.0)) / self._target


def oracle(trace: Trace, spread: float, ahead: float, most: int) -> Callable[[float], int]:
    """Replicas by time of who knows the trace's rates, acceptance and costs up to `ahead` seconds from now: enough
    for each moment. With a cold start's foresight replicas are Ready when they are needed.

    `spread`: room for chance, in standard deviations of the sequences at once.
    """
    grid = np.arange(0.0, trace.seconds + 60.0, 30.0)
    wanted = np.array([_enough(trace, float(t), spread, most) for t in grid])

    def plan(now: float) -> int:
        inside = (grid > now - 30.0) & (grid <= now + ahead)
        return int(wanted[inside].max()) if inside.any() else int(wanted[-1])

    return plan


def _enough(trace: Trace, t: float, spread: float, most: int) -> int:
    moment = trace.at(t)
    loads = range(1, costs.PLACES + 1)
    speeds = [costs.speed(rows, round(moment.acceptance, 2), round(moment.context, 1), None) for rows in loads]
    held = costs.prefill(PROMPT_TOKENS * moment.context) / OUTPUT_TOKENS
    itl = np.array([speed.itl + held * rows for rows, speed in zip(loads, speeds, strict=True)])
    curve = Curve(np.array([speed.k for speed in speeds]), itl)
    places = curve.bound(ITL)
    for n in range(1, most):
        rows = n * float(np.interp(moment.rate * OUTPUT_TOKENS / n, curve.goodput, loads, left=0.0, right=np.inf))
        if rows + spread * rows**0.5 <= n * places:
            return n
    return most
