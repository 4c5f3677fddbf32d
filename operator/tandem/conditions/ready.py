"""The status that a service should show. Pure: the clock is an argument.

`Ready`, `Reconciling` and `Stalled` follow kstatus: Ready is True when all is well, the other two are present
only while they are True. Conditions change their transition time only when their status flips.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tandem import names
from tandem.api.types import (
    Condition,
    ConditionStatus,
    DecodingType,
    Model,
    SpeculationStatus,
    SpeculativeInferenceService,
)
from tandem.children.service import url
from tandem.conditions.benchmark import Benchmark
from tandem.conditions.engine_health import engine_health, failures
from tandem.conditions.finding import Finding
from tandem.conditions.situation import Situation
from tandem.conditions.speculation import rights, verdicts
from tandem.conditions.writes import News, autoscaling_status, scaling_moved, speculation_moved, speculation_status
from tandem.rollout.deadline import can_give_way, overdue
from tandem.rollout.decide import Decision
from tandem.rollout.observed import Observed
from tandem.rollout.tasks import Step


@dataclass(frozen=True)
class Rollout:
    """Server pods, counted: all, those that answer, those of the wanted revision, and both."""

    replicas: int
    ready: int
    updated: int
    updated_ready: int
    problem: str | None

    @classmethod
    def of(cls, observed: Observed, digest: str | None) -> "Rollout":
        """Count the server pods against the revision `digest`."""
        servers = observed.replicas
        updated = [server for server in servers if server.revision == digest]
        problems = [server.problem for server in (*updated, *servers, *observed.workers)]
        # Of pods that a quota or an admission webhook keeps from being made, their Deployment alone tells.
        problems += [workload.failure for workload in observed.workloads]
        return cls(
            replicas=len(servers),
            ready=sum(server.ready for server in servers),
            updated=len(updated),
            updated_ready=sum(server.ready for server in updated),
            problem=next((problem for problem in problems if problem is not None), None),
        )


def status(situation: Situation) -> dict[str, Any]:
    """The whole status."""
    service, decision, observed = situation.service, situation.decision, situation.observed
    digest = decision.revision.digest if decision.revision else None
    rollout = Rollout.of(observed, digest)
    reasons = _reasons(service, decision, rollout)
    ready = _ready(situation, reasons, rollout)
    given_up = _given_up(situation, ready)
    failed = digest if given_up and given_up.reason == "RolledBack" else None
    if given_up and failed:
        ready = replace(given_up, type="Ready", status="False")
    findings = [ready, *_progress(situation, ready, given_up), *reasons, *_further(situation)]
    current = digest if ready.status == "True" else service.status.current_revision
    return {
        "observedGeneration": service.generation,
        "conditions": [_condition(service, finding, situation.now) for finding in findings],
        # An autoscaler that is within its tolerance of these asks for as many: a rollout's extra pod would stay.
        "replicas": min(rollout.replicas, service.spec.replicas),
        "readyReplicas": rollout.ready,
        "updatedReplicas": rollout.updated,
        "selector": ",".join(f"{k}={v}" for k, v in names.selector(service.name).items()),
        "url": url(service),
        **({"currentRevision": current} if current else {}),
        **({"updateRevision": digest} if digest else {}),
        **({"failedRevision": failed} if failed else {}),
        **_figures(service, situation.news, situation.benchmark),
    }


def _further(situation: Situation) -> list[Finding]:
    """The conditions that have no say in Ready."""
    health = engine_health(situation.service, failures(situation.observed), situation.now)
    return [*verdicts(situation), *rights(situation.missing_rights), *health]


def held(service: SpeculativeInferenceService, missing: Sequence[Finding], now: str) -> dict[str, Any]:
    """The status of a service of which what matters may not be read: as it was, but for what is `missing`."""
    status, stalled = service.status, [Finding("Stalled", "True", found.reason, found.message) for found in missing]
    gone = {"Reconciling", *(found.type for found in (*missing, *stalled))}
    stays = [condition.model_dump(by_alias=True) for condition in status.conditions if condition.type not in gone]
    return {
        **status.model_dump(by_alias=True, exclude_unset=True),
        "observedGeneration": service.generation,
        "conditions": [*stays, *(_condition(service, finding, now) for finding in (*stalled, *missing))],
    }


def _figures(service: SpeculativeInferenceService, news: News | None, benchmark: Benchmark | None) -> dict[str, Any]:
    """What was speculated and decided: the newest that is told, unless what stands there says the same."""
    report = news.report if news else None
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
    told: SpeculationStatus | None, before: SpeculationStatus | None, benchmark: Benchmark | None
) -> SpeculationStatus | None:
    """What is told, with the benchmark's speed-up where the traffic shows none."""
    if benchmark is None or benchmark.worth.speedup is None or (told and told.speedup is not None):
        return told
    known = told or before or SpeculationStatus(observed_at=benchmark.at)
    speedup = round(benchmark.worth.speedup, 2)
    return known.model_copy(update={"speedup": speedup, "speedup_source": "Benchmark"})


def _without_benchmark(before: SpeculationStatus | None, benchmark: Benchmark | None) -> SpeculationStatus | None:
    """What stands there, but for the speed-up of a benchmark that says nothing any more."""
    if before is None or before.speedup_source != "Benchmark" or (benchmark and benchmark.worth.speedup is not None):
        return before
    return before.model_copy(update={"speedup": None, "speedup_source": None})


def _condition(service: SpeculativeInferenceService, finding: Finding, now: str) -> dict[str, Any]:
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


def _reasons(service: SpeculativeInferenceService, decision: Decision, rollout: Rollout) -> list[Finding]:
    """The conditions behind Ready."""
    if decision.refusal:
        accepted = Finding("SpecAccepted", "False", decision.refusal.reason, decision.refusal.message)
        return [accepted, _available(rollout)]
    said = "; ".join([f"profile {service.spec.runtime.profile} can run it", *decision.warnings])
    accepted = Finding("SpecAccepted", "True", "AcceptedWithWarnings" if decision.warnings else "Accepted", said)
    return [accepted, *(_task_finding(kind, decision) for kind in decision.conditions), _available(rollout)]


def _task_finding(kind: str, decision: Decision) -> Finding:
    """The condition `kind`: what the first task says that does not find it True, else what the last one says."""
    found = None
    for step in decision.steps:
        if kind in step.task.conditions:
            found = _verdict(kind, step)
            if found.status != "True":
                return found
    if found and decision.passed:
        return found
    waits = next((s for s in decision.steps if not s.passed), None)
    if found or waits is None:
        return found or Finding(kind, "True", "Checked", "the models were checked")
    return _unfinished("Unknown", kind, waits)


def _verdict(kind: str, step: Step) -> Finding:
    check = next((c for c in step.outcome.checks if c.type == kind), None)
    if check:
        return Finding(check.type, check.status, check.reason, check.message)
    if step.passed:
        return Finding(kind, "True", "Checked", f"{step.task.title}: done")
    # What was there and is lost is not there; whether the pair fits is not known for sure.
    return _unfinished("False" if step.outcome.loss and kind.endswith("Ready") else "Unknown", kind, step)


def _unfinished(status: ConditionStatus, kind: str, step: Step) -> Finding:
    """What a task that has not passed comes to."""
    name, outcome = step.task.component.capitalize(), step.outcome
    if outcome.failed:
        refused = next((c.message for c in outcome.checks if c.status != "True"), "")
        reason, said = f"{name}Failed", outcome.detail or refused
    else:
        reason, said = f"{name}Running", outcome.detail or f"a Job {step.task.title}"
    if outcome.loss:
        reason, said = outcome.loss.reason, f"{outcome.loss.message}; {said}"
    return Finding(kind, status, reason, said)


def _available(rollout: Rollout) -> Finding:
    count = f"{rollout.ready} of {rollout.replicas} server pods answer"
    if rollout.ready:
        return Finding("Available", "True", "ServersAnswer", count)
    if rollout.replicas:
        return Finding("Available", "False", "ServersNotReady", rollout.problem or f"{count}: they are starting")
    said = f": {rollout.problem}" if rollout.problem else ""
    return Finding("Available", "False", "NoServers", f"there are no server pods{said}")


def _ready(situation: Situation, reasons: list[Finding], rollout: Rollout) -> Finding:
    """True only when the pods of the current revision, all and only they, answer Triton's readiness."""
    refused, decision = situation.refused, situation.decision
    if refused:
        return Finding("Ready", "False", refused.reason, str(refused))
    for finding in reasons:
        # What a finished task could not find out does not keep servers that answer from being ready.
        holds = finding.status == "True" or (finding.status == "Unknown" and decision.passed)
        if not holds and finding.type != "Available":
            return Finding("Ready", "False", finding.reason, finding.message)
    wanted = situation.service.spec.replicas
    if wanted == 0 and rollout.replicas == 0:
        return Finding("Ready", "False", "ScaledToZero", "spec.replicas is 0")
    if rollout.updated_ready == rollout.replicas == wanted and _workload_current(situation.observed):
        return Finding("Ready", "True", "ServersAnswer", f"{wanted} of {wanted} servers answer")
    count = f"{rollout.updated_ready} of {wanted} servers of this revision answer"
    return Finding("Ready", "False", "RollingOut", f"{count}: {rollout.problem}" if rollout.problem else count)


def _workload_current(observed: Observed) -> bool:
    """Whether the workload's controller has acted on the workload as it is, and it stands alone."""
    return len(observed.workloads) == 1 and observed.workloads[0].current


def _progress(situation: Situation, ready: Finding, given_up: Finding | None) -> list[Finding]:
    """Stalled when a person must act, Reconciling while it goes on by itself, neither when done."""
    decision = situation.decision
    if ready.status == "True" or ready.reason == "ScaledToZero":
        return []
    failed = any(step.outcome.failed for step in decision.steps)
    if decision.refusal or situation.refused or failed:
        return [Finding("Stalled", "True", ready.reason, ready.message)]
    if given_up:
        return [given_up]
    return [Finding("Reconciling", "True", ready.reason, ready.message)]


def _given_up(situation: Situation, ready: Finding) -> Finding | None:
    """Stalled, where the rollout of the wanted revision has come to nothing."""
    service, decision, observed = situation.service, situation.decision, situation.observed
    if not decision.passed or decision.revision is None:
        return None
    wanted, current = decision.revision.digest, service.status.current_revision
    within = f"within rollout.progressDeadlineSeconds ({service.spec.rollout.progress_deadline_seconds})"
    if decision.instead:
        text = f"revision {wanted} did not answer {within}, and {current} is back: ask for another revision"
        return Finding("Stalled", "True", "RolledBack", text)
    if not overdue(service, wanted, observed, situation.now):
        return None
    text = f"{ready.message}; {within} nothing changed"
    if can_give_way(service, wanted, observed.records):
        return Finding("Stalled", "True", "RolledBack", f"{text}: revision {current} comes back")
    return Finding("Stalled", "True", "ProgressDeadlineExceeded", text)


def rolls_out(status: Mapping[str, Any]) -> bool:
    """Whether servers are on their way, so that time alone may change the status."""
    return any(c["type"] == "Reconciling" and c["reason"] == "RollingOut" for c in status["conditions"])
