"""The policy of one service over time: what it fitted, and what it decides from each window. Deterministic."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tandem.api.types import ServiceSpec
from tandem.capacity.advice import Advisor, Loads, propose
from tandem.capacity.demand import Demand, History, Trend, measure
from tandem.capacity.lengths import draft_share, lengths
from tandem.capacity.model import Curve, Model, steps_of
from tandem.capacity.policy import Bounds, Situation, bounds, decide, demand_of
from tandem.capacity.worth import Probes, of_model
from tandem.report import Decision, ScheduleAdvice, Worth
from tandem.telemetry.figures import Figures, Histogram, PodFigures, Replicas

# A replica that starts now serves after so many seconds: an image, an engine and a model are loaded.
LEAD = 240.0
# Smoothing of level and slope (s). Demand is a matter of chance; a replica's speed follows from thousands of rounds.
TOKENS_SECONDS = (30.0, 300.0)
CAPACITY_SECONDS = (15.0, 60.0)
# A trend of demand may ask for so many times the present need.
STEEPEST = 1.3


@dataclass(frozen=True)
class PlannerOutput:
    """What is said of a service after a window."""

    decision: Decision | None
    """None where the service asks for no autoscaling."""
    worth: Worth
    advice: ScheduleAdvice | None


class Planner:
    """One service's policy. Call `update` with the figures of each window, in their order."""

    def __init__(self, spec: ServiceSpec) -> None:
        self._at: float | None = None
        self._begin(spec)

    def update(self, figures: Figures, replicas: Replicas, spec: ServiceSpec) -> PlannerOutput:
        """Learn from a window, and decide. A specification that changes what a replica can do starts anew."""
        if _engine(spec) != self._engine:
            self._begin(spec)
        figures = _usable(figures)
        passed = 0.0 if self._at is None else max(0.0, figures.at - self._at)
        self._at = figures.at
        self._model.observe(figures, self._lengths)
        self._probes.observe(figures)
        return PlannerOutput(
            self._decide(figures, replicas, spec),
            self._probes.worth() or of_model(self._model, figures, self._lengths),
            self._advise(figures, passed, spec),
        )

    def _begin(self, spec: ServiceSpec) -> None:
        self._engine = _engine(spec)
        self._lengths = lengths(spec)
        self._model = Model(self._lengths.maximum, draft_share(spec))
        self._history, self._loads = History(), Loads()
        self._tokens, self._capacity = Trend(*TOKENS_SECONDS), Trend(*CAPACITY_SECONDS)
        self._probes, self._advisor = Probes(), Advisor()

    def _decide(self, figures: Figures, replicas: Replicas, spec: ServiceSpec) -> Decision | None:
        past = self._history.past(figures, replicas)
        limits = bounds(spec)
        if limits is None:
            return None
        curve = self._model.curve(limits.places, self._lengths) if self._model.known else None
        demand = measure(figures, past)
        ahead = self._ahead(figures.at, limits, demand, curve) if demand and curve else 0.0
        return decide(Situation(limits, figures, replicas, demand, past.newcomers), curve, ahead)

    def _ahead(self, at: float, limits: Bounds, demand: Demand, curve: Curve) -> float:
        """Replicas that will be needed when one that starts now is Ready, if demand goes on to grow, or acceptance to
        fall, as it does."""
        now = demand_of(limits, demand, curve)
        worst = self._model.curve(limits.places, self._lengths, hopeless=True)
        least = min(now.target, demand_of(limits, demand, worst).target)
        self._tokens.observe(at, demand.tokens)
        self._capacity.observe(at, now.target)
        tokens = min(self._tokens.ahead(LEAD), STEEPEST * self._tokens.level)
        capacity = max(self._capacity.ahead(LEAD), least)
        return now.load * (tokens / demand.tokens) * max(1.0, now.target / capacity) if demand.tokens > 0 else 0.0

    def _advise(self, figures: Figures, passed: float, spec: ServiceSpec) -> ScheduleAdvice | None:
        self._loads.observe([each for pod in figures.pods if (each := steps_of(pod, self._lengths))], passed)
        window = max((pod.seconds for pod in figures.pods), default=0.0)
        proposal = propose(self._model, spec, self._lengths, self._loads)
        return self._advisor.update(figures.at, window, proposal, spec)


def _usable(figures: Figures) -> Figures:
    """Without pods that tell nonsense: negative numbers, or none at all. They are unknown."""
    pods = tuple(pod for pod in figures.pods if all(0 <= value < math.inf for value in _numbers(pod)))
    return Figures(figures.at, pods, figures.unknown + len(figures.pods) - len(pods))


def _numbers(pod: PodFigures) -> Iterator[float]:
    for value in vars(pod).values():
        if isinstance(value, Histogram):
            yield from (*value.counts, value.total)
        elif value is not None:
            yield from value if isinstance(value, tuple) else (value,)


def _engine(spec: ServiceSpec) -> ServiceSpec:
    """What decides about a replica's speed."""
    return spec.model_copy(update={"autoscaling": None, "replicas": 1, "storage": None})
