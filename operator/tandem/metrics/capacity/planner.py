"""The policy of one service over time: what it fitted, and what it decides from each window. Deterministic."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tandem.api.types import ServiceSpec
from tandem.metrics.capacity.advice import Advisor, Loads, propose
from tandem.metrics.capacity.demand import Demand, History, measure
from tandem.metrics.capacity.floor import Floors
from tandem.metrics.capacity.lengths import draft_share, lengths
from tandem.metrics.capacity.model import Curve, ReplicaModel, steps_of
from tandem.metrics.capacity.outlook import Outlook
from tandem.metrics.capacity.policy import Bounds, PolicyInputs, bounds, decide, demand_of
from tandem.metrics.capacity.worth import Judge
from tandem.metrics.report import ScalingDecision, ScheduleAdvice, Worth
from tandem.metrics.telemetry.figures import Figures, Histogram, PodFigures, Replicas


@dataclass(frozen=True)
class PlannerOutput:
    """What is known of a service after a window."""

    decision: ScalingDecision | None
    """None where the service asks for no autoscaling."""
    worth: Worth
    advice: ScheduleAdvice | None


class Planner:
    """One service's policy. Call `update` with the figures of each window, in their order."""

    def __init__(self, spec: ServiceSpec) -> None:
        self._at: float | None = None
        self._begin(spec)

    def update(
        self, figures: Figures, replicas: Replicas, spec: ServiceSpec, serving: tuple[str, ...] = ()
    ) -> PlannerOutput:
        """Learn from a window, and decide. A specification that changes what a replica can do starts anew. `serving`:
        as in the report."""
        if _engine(spec) != self._engine:
            self._begin(spec)
        figures = _usable(figures)
        if self._at is not None and figures.at < self._at:
            # The clock was set back: what was seen later than now would count as the latest until then.
            self._history, self._outlook, self._advisor = History(), Outlook(), Advisor()
        passed = 0.0 if self._at is None else max(0.0, figures.at - self._at)
        self._at = figures.at
        self._model.observe(figures, self._lengths)
        return PlannerOutput(
            self._decide(figures, replicas, spec),
            self._judge.update(figures, serving),
            self._advise(figures, passed, spec),
        )

    def _begin(self, spec: ServiceSpec) -> None:
        self._engine = _engine(spec)
        self._lengths = lengths(spec)
        self._model = ReplicaModel(self._lengths.maximum, draft_share(spec))
        self._history, self._loads = History(), Loads()
        self._outlook, self._floors = Outlook(), Floors()
        self._judge, self._advisor = Judge(self._lengths, draft_share(spec)), Advisor()

    def _decide(self, figures: Figures, replicas: Replicas, spec: ServiceSpec) -> ScalingDecision | None:
        past = self._history.past(figures, replicas)
        limits = bounds(spec)
        if limits is None:
            return None
        demand = measure(figures, past)
        if not self._model.known:
            return decide(PolicyInputs(limits, figures, replicas, demand, past.newcomers), None)
        curve = self._model.curve(limits.places, self._lengths)
        asked, unreachable = self._floors.reachable(limits, self._model, curve)
        situation = PolicyInputs(asked, figures, replicas, demand, past.newcomers)
        made = self._by_model(situation, demand, curve) if demand else decide(situation, None)
        return made.model_copy(update={"unreachable": unreachable})

    def _by_model(self, situation: PolicyInputs, demand: Demand, curve: Curve) -> ScalingDecision:
        asked, at, start = situation.bounds, situation.figures.at, situation.replicas.start_seconds
        now, then = self._outlook.demand(at, demand, start)
        ahead = demand_of(asked, then, curve).load * self._loss(at, asked, curve, start)
        drains = self._outlook.drains(at, now.waiting, start)
        return decide(replace(situation, demand=now, drains=drains), curve, ahead)

    def _loss(self, at: float, limits: Bounds, curve: Curve, start: float | None) -> float:
        """So many times as many replicas will be needed as now, if acceptance goes on to fall as it does."""
        hopeless = self._model.curve(limits.places, self._lengths, hopeless=True)
        now, worst = (each.goodput_at(limits.reach(each)) for each in (curve, hopeless))
        return now / self._outlook.capacity(at, now, min(now, worst), start)

    def _advise(self, figures: Figures, passed: float, spec: ServiceSpec) -> ScheduleAdvice | None:
        self._loads.observe([each for pod in figures.pods if (each := steps_of(pod, self._lengths))], passed)
        window = max((pod.seconds for pod in figures.pods), default=0.0)
        proposal = propose(self._model, spec, self._lengths, self._loads)
        return self._advisor.update(figures.at, window, proposal)


def _usable(figures: Figures) -> Figures:
    """Without pods that report nonsense: negative numbers, or none at all. They are unknown."""
    pods = tuple(pod for pod in figures.pods if all(0 <= value < math.inf for value in _numbers(pod)))
    return Figures(figures.at, pods, figures.unknown + len(figures.pods) - len(pods))


def _numbers(pod: PodFigures) -> Iterator[float]:
    for value in vars(pod).values():
        if isinstance(value, Histogram):
            yield from (*value.counts, value.total)
        elif value is not None:
            yield from value if isinstance(value, tuple) else (value,)


def _engine(spec: ServiceSpec) -> ServiceSpec:
    """What decides about a replica's speed: not how many there are, who may ask them, how others take their place,
    what speculation must be worth, or what their pods are marked with."""
    others = {"autoscaling": None, "replicas": 1, "storage": None, "rollout": None}
    serving = spec.serving.model_copy(update={"access": None})
    speculation = spec.speculation.model_copy(update={"min_accepted_length": None})
    template = spec.pod_template.spec if spec.pod_template else None
    return spec.model_copy(
        update={**others, "serving": serving, "speculation": speculation, "pod_template": template}
    )
