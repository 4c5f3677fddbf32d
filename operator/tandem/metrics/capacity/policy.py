"""How many replicas a load asks for. Pure: figures in, a decision with its reasons out.

The largest of what these ask for, between minReplicas and maxReplicas:

- Demand: tokens a second over what a replica can do within the objectives, with places kept free for chance.
  Acceptance comes in here, and only here: as a factor of a replica's capacity.
- KvCache: blocks that sequences hold over a replica's, where the engines report them.
- QueueLength, TimeToFirstToken, InterTokenLatency: guards. Where an objective is missed they ask for more in
  proportion, never for less.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tandem.api.types import ServiceSpec, seconds
from tandem.autoscaling import source_of
from tandem.engines import loop_of
from tandem.metrics.capacity import kv_cache
from tandem.metrics.capacity.demand import Demand
from tandem.metrics.capacity.model import Curve
from tandem.metrics.report import ScalingDecision, Signal
from tandem.metrics.telemetry.figures import Figures, Replicas
from tandem.plural import counted

# A guard asks for so many times the Ready replicas at most: what it sees says that there are too few, not how many.
MOST_AT_ONCE = 2.0
# Places are kept free for so many standard deviations of the sequences at once: they come by chance.
CHANCE = 2.0
# But never less than this share of a replica's places is used, nor more: no model is exact.
LEAST_USED, MOST_USED = 0.5, 0.9
# Share of its places before anything is known of a replica's speed.
USED = 0.8
# Share of a replica's KV cache that sequences may hold: their lengths vary.
KV_USED = 0.8
# A replica goes only when the others could do so much more than is asked for, and comes when they could do less.
RESERVE = 0.03
# An HPA leaves replicas as they are while the metric is within this share of them, unless its behavior has another.
TOLERANCE = 0.1


@dataclass(frozen=True)
class Bounds:
    """What the specification asks for: replicas, and objectives (s; None: not bounded)."""

    least: int
    most: int
    ttft: float | None
    itl: float | None
    queue: int | None
    places: int
    """Sequences that a replica runs at once."""
    idle: bool = False
    """Whether all replicas may go where nothing is asked for, though `least` is more."""
    tolerance: float = TOLERANCE
    """The autoscaler's on the way up."""

    def within(self, load: float) -> float:
        """The load within the bounds."""
        least = 0 if self.idle and load <= 0 else self.least
        return min(max(load, float(least)), float(self.most))

    def reach(self, curve: Curve) -> int:
        """Most sequences at once that keep the inter-token latency."""
        return min(curve.bound(self.itl), self.places)


def bounds(spec: ServiceSpec) -> Bounds | None:
    """None where the service asks for no autoscaling."""
    scaling = spec.autoscaling
    if scaling is None:
        return None
    goals, sequences = scaling.objectives, spec.serving.max_batch_size
    return Bounds(
        least=scaling.min_replicas,
        most=scaling.max_replicas,
        ttft=seconds(goals.time_to_first_token) if goals.time_to_first_token else None,
        itl=seconds(goals.inter_token_latency) if goals.inter_token_latency else None,
        queue=goals.queue_length,
        places=min(sequences, loop_of(spec).most_sequences or sequences),
        idle=source_of(scaling).goes_idle(scaling),
        tolerance=_tolerance(scaling.behavior or {}),
    )


def _tolerance(behavior: Mapping[str, Any]) -> float:
    """`scaleUp.tolerance`, which is the API server's to check. One above the usual is meant, and not to be met."""
    rules = behavior.get("scaleUp")
    text = str(rules.get("tolerance", "")) if isinstance(rules, Mapping) else ""
    try:
        own = float(text.removesuffix("m")) / (1000 if text.endswith("m") else 1)
    except ValueError:
        return TOLERANCE
    return own if 0 <= own < TOLERANCE else TOLERANCE


@dataclass(frozen=True)
class PolicyInputs:
    """What is seen of a service."""

    bounds: Bounds
    figures: Figures
    replicas: Replicas
    demand: Demand | None
    """None: no pod reported anything."""
    newcomers: int = 0
    """Replicas that became Ready within the window."""
    drains: bool = False
    """Whether what waits will be gone before a replica that starts now could help."""


@dataclass(frozen=True)
class Ask:
    """What one signal asks for."""

    signal: Signal
    load: float
    """Replicas, not rounded."""
    value: float
    target: float
    message: str


def decide(situation: PolicyInputs, curve: Curve | None, ahead: float = 0.0) -> ScalingDecision:
    """The decision. `curve`: what a replica can do, None where that is not known yet; `ahead`: replicas that are
    expected to be needed when one that starts now is Ready."""
    bounds, replicas = situation.bounds, situation.replicas
    if situation.demand is None:
        return _at_zero(bounds) if replicas.none else _hold(replicas)
    asks = [demand_of(bounds, situation.demand, curve, ahead), *_by_kv_cache(situation)]
    guards = list(_guards(bounds, situation, situation.demand))
    if replicas.pending or situation.newcomers or situation.drains:
        # Guards see too little, not how much is on its way: until that had a window's time they ask for no more.
        guards = [replace(guard, load=min(guard.load, float(replicas.current))) for guard in guards]
    first = max([*asks, *guards], key=lambda ask: ask.load)
    load = bounds.within(_steady(first.load, replicas, bounds.tolerance))
    return ScalingDecision(
        load=load,
        desired_replicas=math.ceil(load - 1e-9),
        signal=first.signal,
        value=first.value,
        target=first.target,
        capacity_per_replica=asks[0].target if curve else None,
        message=first.message,
    )


def _at_zero(bounds: Bounds) -> ScalingDecision:
    """Nothing is asked of no pods, which is a figure: without one an autoscaler would report a fault for as long as
    no client uses the service."""
    load = bounds.within(0.0)
    message = "at 0 replicas no pod reports demand: a trigger or metric of yours, or kubectl scale, starts the first"
    return ScalingDecision(load=load, desired_replicas=math.ceil(load), signal="Demand", value=0.0, message=message)


def _hold(replicas: Replicas) -> ScalingDecision:
    return ScalingDecision(
        signal="Hold",
        message=f"{counted(replicas.ready, 'Ready replica')}, none of which reports metrics: replicas stay",
    )


def _steady(load: float, replicas: Replicas, tolerance: float) -> float:
    """The load; but a replica goes only when the others could do more than it asks for, and where there are too few,
    the metric is raised so that an autoscaler takes notice. It rounds that up: from 10 replicas on more than are
    needed come where its tolerance is the usual one. Else up to a tenth too few would stay: most of the reserve."""
    current = replicas.current
    if load <= current:
        return min(float(current), load * (1 + RESERVE))
    return max(load, current * (1 + tolerance) + 1e-3) if load > current * (1 + RESERVE) else load


def demand_of(bounds: Bounds, demand: Demand, curve: Curve | None, ahead: float = 0.0) -> Ask:
    """What demand asks for, or will (`ahead`)."""
    if curve is None:
        return _by_places(bounds, demand)
    places = bounds.reach(curve)
    used = utilization(curve, places, demand.tokens)
    each = curve.goodput_at(used * places)
    load = demand.tokens / each
    itl, k = float(curve.itl[places - 1]), int(curve.k[places - 1])
    soon = f"; as demand and acceptance change, {ahead:.1f} replicas will be needed" if ahead > load else ""
    message = (
        f"{demand.tokens:.0f} tokens/s are requested; a replica generates {each:.0f} with {used:.0%} of {places}"
        f" sequences at a time (full: draft length {k}, {itl * 1e3:.0f} ms between tokens){soon}"
    )
    return Ask("Demand", max(load, ahead), demand.tokens, each, message)


def utilization(curve: Curve, places: int, tokens: float) -> float:
    """Share of their places that replicas may use for so many tokens a second, all together.

    Square-root staffing (Halfin and Whitt, 1981, "Heavy-traffic limits for queues with many exponential servers"):
    S sequences at once vary by sqrt(S) where requests come by chance, so S + CHANCE sqrt(S) places are wanted. With b
    sequences a replica S = tokens * ITL(b), in S / b replicas.
    """
    rows = np.arange(1.0, places + 1)
    free = np.sqrt(tokens * curve.itl[:places]) * (places / rows - 1)  # in standard deviations
    enough = float(np.interp(-CHANCE, np.maximum.accumulate(-free), rows))
    return min(max(enough / places, LEAST_USED), MOST_USED)


def _by_places(bounds: Bounds, demand: Demand) -> Ask:
    """Before anything is known of speed: sequences over places."""
    sequences, places = demand.running + demand.waiting, USED * bounds.places
    message = f"{sequences:.0f} sequences at a time, {places:.0f} a replica; its speed is not known yet"
    return Ask("Demand", sequences / places, sequences, places, message)


def _by_kv_cache(situation: PolicyInputs) -> Iterator[Ask]:
    """What the KV caches ask for, where the engines report them."""
    cache = kv_cache.measure(situation.figures, situation.newcomers)
    if cache is not None:
        usable = KV_USED * cache.blocks
        message = (
            f"sequences hold {cache.held:.0f} blocks of KV cache; a replica has {cache.blocks:.0f},"
            f" of which {KV_USED:.0%} are used"
        )
        yield Ask("KvCache", cache.held / usable, cache.held, usable, message)


def _guards(bounds: Bounds, situation: PolicyInputs, demand: Demand) -> Iterator[Ask]:
    """Guards whose objective is missed."""
    figures, ready = situation.figures, max(1, situation.replicas.ready)
    ttft, itl = figures.histogram("time_to_first_token"), figures.histogram("inter_token_latency")
    queue = demand.waiting / ready
    if bounds.queue is not None and queue > bounds.queue:
        words = f"{queue:.1f} requests wait for each replica, above the objective of {bounds.queue}"
        yield _guard("QueueLength", queue, bounds.queue, ready, words)
    slowest = ttft.quantile(0.95) if ttft else None
    if demand.waiting > 0 and bounds.ttft is not None and slowest is not None and slowest > bounds.ttft:
        words = f"95% of the first tokens come within {_ms(slowest)}, above the objective of {_ms(bounds.ttft)}"
        yield _guard("TimeToFirstToken", slowest, bounds.ttft, ready, words)
    mean = itl.mean if itl else None
    if bounds.itl is not None and mean is not None and mean > bounds.itl:
        words = f"tokens come every {_ms(mean)} on average, above the objective of {_ms(bounds.itl)}"
        yield _guard("InterTokenLatency", mean, bounds.itl, ready, words)


def _guard(signal: Signal, value: float, objective: float, ready: int, words: str) -> Ask:
    return Ask(signal, ready * min(value / objective, MOST_AT_ONCE), value, objective, words)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms"
