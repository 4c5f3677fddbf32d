"""What the page shows of a service: its object, its report and its pods in, JSON out. Pure."""

from collections.abc import Iterable
from itertools import accumulate
from operator import mul
from typing import Literal

from pydantic import Field

from tandem.api.conditions import REASONS, ConditionType, ServingReason
from tandem.api.types import Condition, DecodingType, SpeculationStatus, SpeculativeInferenceService
from tandem.api.wire import Wire
from tandem.engines import loop_of
from tandem.metrics.report import Latency, ServiceReport
from tandem.metrics_server.inventory import Known, Pod

Tone = Literal["good", "busy", "bad", "unknown"]
"""How a state looks."""
WATCHED = (ConditionType.SCALING_ACTIVE, ConditionType.METRICS_AVAILABLE, *(t for t in ConditionType if t.warns))
"""Conditions that are worth a look while they are False, whatever `Ready` is."""
ACTIONS = {str(reason): reason.action for reason in REASONS}
"""What to do, by reason."""


class ServiceFigures(Wire):
    """Of the last window, or of status where `live` is False. What is not known is absent."""

    live: bool
    observed_at: str
    """RFC 3339."""
    window_seconds: float | None = None
    tokens_per_second: float | None = None
    tokens_per_second_alone: float | None = None
    """Of the target alone at the same load: `tokens_per_second` / `speedup`, an estimate."""
    speedup: float | None = None
    speedup_source: str | None = None
    """Model, Probe or Benchmark."""
    speedup_message: str = ""
    """How it is known; or why it is not, and what measures it."""
    acceptance_rate: float | None = None
    mean_accepted_length: float | None = None
    accepted_by_position: tuple[float, ...] = ()
    """Share of the drafts of which the token at this position was accepted: with 1 their sum is the mean accepted
    length, where all drafts are as long."""
    draft_length: float | None = None
    running: float | None = None
    waiting: float | None = None
    latency: Latency = Field(default_factory=Latency)


class ServiceReplicas(Wire):
    """How many servers there are, and why."""

    ready: int
    wanted: int
    """`spec.replicas`."""
    desired: int | None = None
    """What the load asks for; absent without autoscaling."""
    message: str = ""
    """Why, in words."""


class Summary(Wire):
    """A service in the list."""

    namespace: str
    name: str
    mode: str
    decoding_type: str
    profile: str
    max_draft_len: int
    tone: Tone
    state: str
    """`Ready`, or the reason why not."""
    message: str = ""
    warnings: tuple[str, ...] = ()
    """Reasons of other conditions that a person should look at."""
    replicas: ServiceReplicas
    figures: ServiceFigures | None = None


class ShownCondition(Wire):
    """A condition, and what to do about it."""

    type: str
    status: str
    reason: str
    message: str
    action: str = ""
    tone: Tone
    since: str


class ShownPod(Wire):
    """A server pod."""

    name: str
    revision: str
    ready: bool
    state: str
    created: str


class Detail(Wire):
    """One service."""

    summary: Summary
    url: str = ""
    open_ai_url: str = ""
    revision: str = ""
    """The last one that was rolled out completely."""
    update_revision: str = ""
    """The one that the spec asks for, where it is another."""
    conditions: tuple[ShownCondition, ...]
    advice: str = ""
    pods: tuple[ShownPod, ...] | None = None
    """None: the user may not list pods."""
    problems: tuple[str, ...] = ()
    """What was wrong with pods' metrics."""
    playground: str = ""
    """Why the user cannot send prompts; empty: they can."""
    draft_by_request: bool = False
    """Whether a prompt may name its draft length."""


def summary(service: SpeculativeInferenceService, report: ServiceReport | None) -> Summary:
    """`report`: the last one; None where there is none now."""
    spec, conditions = service.spec, {c.type: c for c in service.status.conditions}
    ready, tone = conditions.get(ConditionType.READY), _tone(conditions)
    return Summary(
        namespace=service.namespace,
        name=service.name,
        mode=spec.runtime.mode,
        decoding_type=spec.speculation.decoding_type,
        profile=spec.runtime.profile,
        max_draft_len=0 if spec.speculation.decoding_type is DecodingType.NONE else spec.speculation.max_draft_len,
        tone=tone,
        state="Ready" if tone == "good" else ready.reason if ready else "not looked at by the operator yet",
        message=ready.message if ready else "",
        warnings=tuple(_warnings(service.status.conditions)),
        replicas=_replicas(service, report),
        figures=_figures(service, report),
    )


def detail(known: Known, report: ServiceReport | None, *, with_pods: bool, playground: str) -> Detail:
    """`with_pods`: the user may see them; `playground`: why the user cannot send prompts, empty where they can."""
    service, status = known.service, known.service.status
    current, update = status.current_revision or "", status.update_revision or ""
    advice = (report.advice if report else None) or (status.speculation.advice if status.speculation else None)
    return Detail(
        summary=summary(service, report),
        url=status.url or "",
        open_ai_url=status.openai_url or "",
        revision=current,
        update_revision=update if update != current else "",
        conditions=tuple(_condition(c) for c in status.conditions),
        advice=advice.message if advice else "",
        pods=tuple(_pod(pod) for pod in known.pods) if with_pods else None,
        problems=report.problems if report and with_pods else (),
        playground=playground,
        draft_by_request=loop_of(service.spec).runs_target_alone(service.spec),
    )


def _tone(conditions: dict[str, Condition]) -> Tone:
    ready = conditions.get(ConditionType.READY)
    if ready is None:
        return "unknown"
    if ready.status == "True":
        return "unknown" if ready.reason == ServingReason.SCALED_TO_ZERO else "good"
    if ConditionType.STALLED not in conditions and ConditionType.RECONCILING in conditions:
        return "busy"
    return "bad" if ready.status == "False" else "unknown"


def _warnings(conditions: Iterable[Condition]) -> Iterable[str]:
    return (c.reason for c in conditions if c.type in WATCHED and c.status == "False")


def _replicas(service: SpeculativeInferenceService, report: ServiceReport | None) -> ServiceReplicas:
    decision = (report.decision if report else None) or service.status.autoscaling
    return ServiceReplicas(
        ready=service.status.ready_replicas or 0,
        wanted=service.spec.replicas,
        desired=decision.desired_replicas if decision and service.spec.autoscaling else None,
        message=decision.message if decision and service.spec.autoscaling else "",
    )


def _figures(service: SpeculativeInferenceService, report: ServiceReport | None) -> ServiceFigures | None:
    seen, sentence = service.status.speculation, service.status.worth
    if report is None:
        return _of_status(seen, sentence) if seen else None
    measured, worth = report.speculation, report.worth
    # What status has, as everywhere else: the report's own moves all the time, and knows of no benchmark.
    known = seen if seen and seen.speedup is not None else None
    speed = report.tokens_per_second
    return ServiceFigures(
        live=True,
        observed_at=report.observed_at,
        window_seconds=report.window_seconds,
        tokens_per_second=speed,
        tokens_per_second_alone=speed / worth.speedup if speed and worth.speedup else None,
        speedup=known.speedup if known else worth.speedup,
        speedup_source=known.speedup_source if known else worth.source if worth.speedup else None,
        speedup_message=sentence or worth.message,
        acceptance_rate=measured.acceptance_rate,
        mean_accepted_length=measured.mean_accepted_length,
        accepted_by_position=tuple(accumulate(measured.accepted_per_position, mul)),
        draft_length=measured.draft_length,
        running=report.running,
        waiting=report.waiting,
        latency=report.latency,
    )


def _of_status(seen: SpeculationStatus, sentence: str) -> ServiceFigures:
    return ServiceFigures(
        live=False,
        observed_at=seen.observed_at,
        acceptance_rate=seen.acceptance_rate,
        mean_accepted_length=seen.mean_accepted_length,
        draft_length=seen.draft_length,
        speedup=seen.speedup,
        speedup_source=seen.speedup_source,
        speedup_message=sentence,
    )


def _condition(c: Condition) -> ShownCondition:
    good = c.status == "True" and c.type != ConditionType.STALLED
    tone: Tone = "good" if good else "unknown" if c.status == "Unknown" else "bad"
    return ShownCondition(
        type=c.type,
        status=c.status,
        reason=c.reason,
        message=c.message,
        action="" if good and c.type != ConditionType.RECONCILING else ACTIONS.get(c.reason, ""),
        tone="busy" if c.type == ConditionType.RECONCILING else tone,
        since=c.last_transition_time,
    )


def _pod(pod: Pod) -> ShownPod:
    ready = pod.target is not None
    state = "answers" if ready else pod.problem or "is starting"
    return ShownPod(
        name=pod.name,
        revision=pod.revision,
        ready=ready,
        state=state,
        created=pod.created.strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
