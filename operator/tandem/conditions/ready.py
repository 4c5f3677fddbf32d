"""The status that a service should show. Pure: the clock is an argument.

`Ready`, `Reconciling` and `Stalled` follow kstatus: Ready is True when all is well, the other two are present
only while they are True. Conditions change their transition time only when their status flips.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import floor
from typing import Any, NamedTuple

from tandem import names
from tandem.api.conditions import (
    ConditionStatus,
    ConditionType,
    ExternalReason,
    Reason,
    ServingReason,
    SpecReason,
    TaskReason,
)
from tandem.api.types import Condition, DecodingType, Model, SpeculationStatus, SpeculativeInferenceService
from tandem.children.service import openai_url, url
from tandem.conditions.accepted_length import falls_below, is_kept, was_below
from tandem.conditions.benchmark import Benchmark
from tandem.conditions.contested import children_kept
from tandem.conditions.engine_health import engine_health, failures
from tandem.conditions.finding import Finding
from tandem.conditions.judged import as_judged, judged_revision
from tandem.conditions.pods import pods_healthy
from tandem.conditions.routing import route_accepted
from tandem.conditions.situation import Situation
from tandem.conditions.speculation import rights, verdicts
from tandem.conditions.writes import Reading, autoscaling_status, scaling_moved, speculation_moved, speculation_status
from tandem.plural import counted
from tandem.rollout.deadline import can_give_way, overdue, previous
from tandem.rollout.decide import Decision
from tandem.rollout.observed import Observed, Problem
from tandem.rollout.tasks import Step

ANOTHER = "change the specification to try another revision"


@dataclass(frozen=True)
class ServerCounts:
    """Server pods, counted: all, those that answer, those of the wanted revision, and both."""

    replicas: int
    ready: int
    updated: int
    updated_ready: int
    problem: Problem | None

    @classmethod
    def of(cls, observed: Observed, digest: str | None) -> "ServerCounts":
        """Count the server pods against the revision `digest`."""
        servers = observed.replicas
        updated = [server for server in servers if server.revision == digest]
        problems = [server.problem for server in (*updated, *servers, *observed.workers)]
        # Pods that a quota or an admission webhook keeps from being made are reported by their Deployment alone.
        not_made = [workload.failure for workload in observed.workloads if workload.failure]
        problems += [Problem(ServingReason.POD_NOT_MADE, message) for message in not_made]
        problems.append(_all_failed(observed))
        return cls(
            replicas=len(servers),
            ready=sum(server.ready for server in servers),
            updated=len(updated),
            updated_ready=sum(server.ready for server in updated),
            problem=next((problem for problem in problems if problem is not None), None),
        )


def _all_failed(observed: Observed) -> Problem | None:
    """Pods that ended as a whole, in the words of the last one."""
    failed = sorted(observed.failed, key=lambda server: server.created)
    if not failed or failed[-1].problem is None:
        return None
    last = failed[-1].problem
    return replace(last, message=f"{counted(len(failed), 'server pod')} failed: {last.message}")


def status(situation: Situation) -> dict[str, Any]:
    """The whole status."""
    service, decision, observed = situation.service, situation.decision, situation.observed
    digest = decision.revision.digest if decision.revision else None
    rollout = ServerCounts.of(observed, digest)
    reasons = _reasons(service, decision, rollout)
    ready = _ready(situation, reasons, rollout)
    given_up = _given_up(situation, ready)
    if given_up and given_up.reason is ServingReason.ROLLED_BACK:
        ready = replace(given_up, type=ConditionType.READY, status="False")
    healthy = pods_healthy(rollout.problem, situation)
    findings = [ready, *_progress(situation, ready, given_up), *reasons, *healthy, *_independent(situation)]
    openai = openai_url(service, decision.instead or decision.revision)
    return {
        "observedGeneration": service.generation,
        "conditions": [condition(service, finding, situation.now) for finding in findings],
        # An autoscaler that is within its tolerance of these asks for as many: a rollout's extra pod would stay.
        "replicas": min(rollout.replicas, service.spec.replicas),
        "readyReplicas": rollout.ready,
        "updatedReplicas": rollout.updated,
        "selector": ",".join(f"{k}={v}" for k, v in names.selector(service.name).items()),
        "url": url(service),
        **({"openAIURL": openai} if openai else {}),
        **_revisions(situation, ready),
        **_figures(as_judged(situation), situation.reading, situation.benchmark),
    }


def _revisions(situation: Situation, ready: Finding) -> dict[str, str | float]:
    """The revision that is complete, the wanted one, the one that was given up, and the one to go back to."""
    service, decision, before = situation.service, situation.decision, situation.service.status
    wanted = decision.revision.digest if decision.revision else None
    current = wanted if ready.reason is ServingReason.SERVERS_ANSWER else before.current_revision
    last = before.fallback_revision
    if current != before.current_revision:
        last = None if was_below(service) else before.current_revision
    guarded = service.spec.speculation.min_accepted_length is not None and not is_kept(situation.reading, current)
    failed = wanted if ready.reason is ServingReason.ROLLED_BACK else None
    length = before.failed_accepted_length if failed and decision.instead else None
    if wanted and failed and not decision.instead and (short := _too_short(situation, wanted)):
        current, last, length = short.instead, None, short.length
    shown = {
        "judgedRevision": judged_revision(situation) or None,
        "currentRevision": current,
        "updateRevision": wanted,
        "fallbackRevision": last if guarded else None,
        "failedRevision": failed,
        "failedAcceptedLength": length,
    }
    return {name: value for name, value in shown.items() if value is not None}


def _independent(situation: Situation) -> list[Finding]:
    """The conditions on which Ready does not depend."""
    health = engine_health(situation.service, failures(situation.observed), situation.now)
    kept = children_kept(situation.contested)
    return [*verdicts(situation), *route_accepted(situation), *rights(situation.missing_rights), *kept, *health]


def _figures(
    service: SpeculativeInferenceService, reading: Reading | None, benchmark: Benchmark | None
) -> dict[str, Any]:
    """Speculation and autoscaling: of the report, unless status has them already, within what is material."""
    report = reading.report if reading else None
    before = _without_benchmark(service.status.speculation, benchmark)
    speculation = _benchmarked(speculation_status(report) if report else None, before, benchmark)
    if not speculation_moved(before, speculation):
        speculation = before
    scaling, decided = autoscaling_status(report) if report else None, service.status.autoscaling
    if not scaling_moved(decided, scaling):
        scaling = decided
    if service.spec.autoscaling is None:
        scaling = None
    if service.spec.speculation.decoding_type is DecodingType.NONE:
        speculation = None  # and not for ever that of the revisions before
    shown: dict[str, Model | None] = {"speculation": speculation, "autoscaling": scaling}
    return {name: part.model_dump(by_alias=True, exclude_none=True) for name, part in shown.items() if part}


def _benchmarked(
    reported: SpeculationStatus | None, before: SpeculationStatus | None, benchmark: Benchmark | None
) -> SpeculationStatus | None:
    """What is reported, with the benchmark's speed-up where the traffic shows none."""
    if benchmark is None or benchmark.worth.speedup is None or (reported and reported.speedup is not None):
        return reported
    known = reported or before or SpeculationStatus(observed_at=benchmark.at)
    speedup = round(benchmark.worth.speedup, 2)
    return known.model_copy(update={"speedup": speedup, "speedup_source": "Benchmark"})


def _without_benchmark(before: SpeculationStatus | None, benchmark: Benchmark | None) -> SpeculationStatus | None:
    """What status has, without the speed-up of a benchmark that is no longer valid."""
    if before is None or before.speedup_source != "Benchmark" or (benchmark and benchmark.worth.speedup is not None):
        return before
    return before.model_copy(update={"speedup": None, "speedup_source": None})


def condition(service: SpeculativeInferenceService, finding: Finding, now: str) -> dict[str, Any]:
    """As in status; `now` is its time where its status changes."""
    before = next((c for c in service.status.conditions if c.type == finding.type), None)
    since = before.last_transition_time if before and before.status == finding.status else now
    return Condition(
        type=finding.type,
        status=finding.status,
        reason=finding.reason,
        message=finding.message[:1024],
        observed_generation=service.generation,
        last_transition_time=since,
    ).model_dump(by_alias=True)


def _reasons(service: SpeculativeInferenceService, decision: Decision, rollout: ServerCounts) -> list[Finding]:
    """The conditions behind Ready."""
    kind = ConditionType.SPEC_ACCEPTED
    if decision.refusal:
        return [Finding(kind, "False", decision.refusal.reason, decision.refusal.message), available(rollout)]
    can = f"profile {service.spec.runtime.profile} can run it"
    if not decision.verified:
        can += " (not verified: Tandem's tests never ran this image on its hardware)"
    message = "; ".join([can, *decision.warnings])
    reason = SpecReason.ACCEPTED_WITH_WARNINGS if decision.warnings else SpecReason.ACCEPTED
    tasks = [_task_finding(each, decision) for each in decision.conditions]
    return [Finding(kind, "True", reason, message), *tasks, available(rollout)]


def _task_finding(kind: ConditionType, decision: Decision) -> Finding:
    """The condition `kind`: of the first task whose verdict on it is not True, else of the last one."""
    finding = None
    for step in decision.steps:
        if kind in step.task.conditions:
            finding = _verdict(kind, step)
            if finding.status != "True":
                return finding
    if finding and decision.passed:
        return finding
    waits = next((s for s in decision.steps if not s.passed), None)
    if finding or waits is None:
        return finding or Finding(kind, "True", TaskReason.CHECKED, "the models were checked")
    return _unfinished("Unknown", kind, waits)


def _verdict(kind: ConditionType, step: Step) -> Finding:
    check = next((c for c in step.state.checks if c.type == kind), None)
    if check:
        return Finding(kind, check.status, ExternalReason(check.reason), check.message)
    if step.passed:
        return Finding(kind, "True", TaskReason.CHECKED, f"{step.task.title}: done")
    # What is lost is not there; whether the pair fits is not known.
    lost = step.state.loss and kind is not ConditionType.PAIR_COMPATIBLE
    return _unfinished("False" if lost else "Unknown", kind, step)


_RUNNING: Mapping[str, Reason] = {
    names.FETCH: TaskReason.FETCH_RUNNING,
    names.BUILD: TaskReason.BUILD_RUNNING,
    names.PREFLIGHT: TaskReason.PREFLIGHT_RUNNING,
}
_FAILED: Mapping[str, Reason] = {
    names.FETCH: TaskReason.FETCH_FAILED,
    names.BUILD: TaskReason.BUILD_FAILED,
    names.PREFLIGHT: TaskReason.PREFLIGHT_FAILED,
}


def _unfinished(status: ConditionStatus, kind: ConditionType, step: Step) -> Finding:
    """The condition while a task has not passed."""
    task, state = step.task, step.state
    if state.failed:
        refusal = next((c.message for c in state.checks if c.status != "True"), "")
        reason, message = _FAILED[task.component], state.detail or refusal
    else:
        reason, message = _RUNNING[task.component], state.detail or f"a Job {task.title}"
    if state.loss:
        reason, message = state.loss.reason, f"{state.loss.message}; {message}"
    return Finding(kind, status, reason, message)


def available(rollout: ServerCounts) -> Finding:
    """Whether a server answers."""
    kind, count = ConditionType.AVAILABLE, f"{rollout.ready} of {rollout.replicas} server pods"
    if rollout.ready:
        return Finding(kind, "True", ServingReason.SERVERS_ANSWER, f"{count} answer")
    if rollout.replicas:
        message = rollout.problem.message if rollout.problem else f"{count} answer: they are starting"
        return Finding(kind, "False", ServingReason.SERVERS_NOT_READY, message)
    problem = f": {rollout.problem.message}" if rollout.problem else ""
    return Finding(kind, "False", ServingReason.NO_SERVERS, f"there are no server pods{problem}")


def _ready(situation: Situation, reasons: list[Finding], rollout: ServerCounts) -> Finding:
    """True only when the pods of the current revision, all and only they, answer Triton's readiness."""
    kind, refused, decision = ConditionType.READY, situation.refused, situation.decision
    if refused:
        return Finding(kind, "False", refused.reason, str(refused))
    for finding in reasons:
        # A check that a finished task could not make does not keep servers that answer from being ready.
        holds = finding.status == "True" or (finding.status == "Unknown" and decision.passed)
        if not holds and finding.type is not ConditionType.AVAILABLE:
            return Finding(kind, "False", finding.reason, finding.message)
    wanted = situation.service.spec.replicas
    if wanted == 0 and rollout.replicas == 0:
        return Finding(kind, "True", ServingReason.SCALED_TO_ZERO, "spec.replicas is 0: no server runs, as asked")
    if rollout.updated_ready == rollout.replicas == wanted and _workload_current(situation.observed):
        return Finding(kind, "True", ServingReason.SERVERS_ANSWER, f"{wanted} of {wanted} servers answer")
    count = f"{rollout.updated_ready} of {wanted} servers of this revision answer"
    message = f"{count}: {rollout.problem.message}" if rollout.problem else count
    return Finding(kind, "False", _why_not_all(situation, rollout), message)


def _why_not_all(situation: Situation, rollout: ServerCounts) -> ServingReason:
    """A revision that is rolled out once is not again: when it scales, or a pod of it starts again."""
    wanted = situation.decision.revision.digest if situation.decision.revision else None
    rolled_out = wanted is not None and situation.service.status.current_revision == wanted
    same = rollout.updated == rollout.replicas and [w.revision for w in situation.observed.workloads] == [wanted]
    return ServingReason.REPLICAS_NOT_READY if rolled_out and same else ServingReason.ROLLING_OUT


def _workload_current(observed: Observed) -> bool:
    """Whether the workload's controller has acted on the workload as it is, and it stands alone."""
    return len(observed.workloads) == 1 and observed.workloads[0].current


def _progress(situation: Situation, ready: Finding, given_up: Finding | None) -> list[Finding]:
    """Stalled when a person must act, Reconciling while it goes on by itself, neither when done."""
    decision = situation.decision
    if ready.status == "True":
        return []
    failed = any(step.state.failed for step in decision.steps)
    if decision.refusal or situation.refused or failed:
        return [Finding(ConditionType.STALLED, "True", ready.reason, ready.message)]
    if given_up:
        return [given_up]
    return [Finding(ConditionType.RECONCILING, "True", ready.reason, ready.message)]


def _given_up(situation: Situation, ready: Finding) -> Finding | None:
    """Stalled, where the rollout of the wanted revision has failed."""
    service, decision, observed = situation.service, situation.decision, situation.observed
    if not decision.passed or decision.revision is None:
        return None
    kind, wanted, current = ConditionType.STALLED, decision.revision.digest, service.status.current_revision
    if decision.instead and service.status.failed_accepted_length is not None:
        message = f"{_gives(wanted, service.status.failed_accepted_length)}, and {current} serves again: {ANOTHER}"
        return Finding(kind, "True", ServingReason.ROLLED_BACK, message)
    if not decision.instead and (short := _too_short(situation, wanted)):
        message = f"{_gives(wanted, short.length)}: rolling back to revision {short.instead}"
        return Finding(kind, "True", ServingReason.ROLLED_BACK, message)
    within = f"within rollout.progressDeadlineSeconds ({service.spec.rollout.progress_deadline_seconds})"
    if decision.instead:
        message = f"revision {wanted} did not answer {within}, and {current} serves again: {ANOTHER}"
        return Finding(kind, "True", ServingReason.ROLLED_BACK, message)
    if not overdue(service, wanted, observed, situation.now):
        return None
    message = f"{ready.message}; no further server answered {within}"
    if can_give_way(service, wanted, decision.known):
        message = f"{message}: rolling back to revision {current}"
        return Finding(kind, "True", ServingReason.ROLLED_BACK, message)
    return Finding(kind, "True", ServingReason.PROGRESS_DEADLINE_EXCEEDED, message)


class _TooShort(NamedTuple):
    """A revision whose accepted length is too short."""

    length: float
    """Never rounded up: it is below the minimum."""
    instead: str
    """The revision to go back to."""


def _too_short(situation: Situation, wanted: str) -> _TooShort | None:
    """Whether `wanted` is to give way for its accepted length; None where it is not, or what was before it did not
    keep the minimum either, or is not there."""
    service = situation.service
    if was_below(service):
        return None
    length = falls_below(situation.reading, service.spec, wanted)
    instead = previous(service, wanted, situation.decision.known)
    return _TooShort(floor(length * 100) / 100, instead) if length is not None and instead else None


def _gives(revision: str, length: float) -> str:
    return f"revision {revision} has a mean accepted length of {length:.2f}, below speculation.minAcceptedLength"


def rolls_out(status: Mapping[str, Any]) -> bool:
    """Whether servers are on their way, so that time alone may change the status."""
    waits = ServingReason.ROLLING_OUT, ServingReason.REPLICAS_NOT_READY
    return any(c["type"] == ConditionType.RECONCILING and c["reason"] in waits for c in status["conditions"])
