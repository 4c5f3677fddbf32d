"""Conditions on speculation and autoscaling: none of them keeps a service from being Ready. Pure.

A condition of which nothing new is reported stays as it was while the same revision serves: a restart of the
operator, or a pause in the traffic, changes nothing about the service. Another revision begins without conditions
(`conditions.judged`). What is not known is told anew each time, and what was measured with its revision and time.
"""

from collections.abc import Iterable, Iterator

from tandem.api.conditions import ConditionType, ExternalReason, Reason, ServingReason
from tandem.api.types import Condition, DecodingType, Speculation, SpeculativeInferenceService
from tandem.autoscaling import ScalingSource, source_of
from tandem.children.metadata import identity
from tandem.conditions.accepted_length import accepted_length
from tandem.conditions.benchmark import Benchmark
from tandem.conditions.finding import Finding
from tandem.conditions.judged import as_judged
from tandem.conditions.situation import Situation
from tandem.conditions.writes import Reading, drafting, speculation_moved, speculation_status, tokens
from tandem.engines import Engine, loop_of
from tandem.errors import Forbidden
from tandem.metrics.report import ServiceReport, Worth
from tandem.metrics.report import SpeculationReport as Reported
from tandem.plural import counted
from tandem.rollout.decide import Decision
from tandem.rollout.observed import Autoscaler

NEAR = 0.05
"""A clear speed-up or slow-down stays in status until the estimate is so far on the other side of 1: near 1 estimates
change sides all the time."""


def verdicts(situation: Situation) -> list[Finding]:
    """The conditions. Without a metrics server a benchmark alone has a condition on speculation."""
    reading, benchmark = situation.reading, situation.benchmark
    service = as_judged(situation)
    findings = list(_scaling(situation))
    speculates = service.spec.speculation.decoding_type is not DecodingType.NONE
    if reading:
        findings.append(_metrics(service, reading))
    if reading and speculates:
        findings.append(_active(service, situation.decision, reading))
    if (reading or benchmark) and speculates:
        findings.append(_beneficial(service, reading or Reading(), benchmark))
    findings += accepted_length(situation)
    return [*findings, *(_unreachable(service, reading) if reading else ())]


def rights(missing: Iterable[Forbidden]) -> list[Finding]:
    """RightsGranted, False, with the rights that the operator lacks for a service; empty while it lacks none."""
    messages = sorted({str(each) for each in missing})
    return [Finding(ConditionType.RIGHTS_GRANTED, "False", Forbidden.reason, "; ".join(messages))] if messages else []


# --- the autoscaler's own view ----------------------------------------------------------------------
def _scaling(situation: Situation) -> Iterator[Finding]:
    service, decision, observed = situation.service, situation.decision, situation.observed
    refused, wanted = situation.scaling_refused, decision.desired.autoscaler
    kind, scaling = ConditionType.SCALING_ACTIVE, service.spec.autoscaling
    if scaling is None:
        return
    if refused:
        yield Finding(kind, "False", refused.reason, str(refused))
    elif wanted is None and observed.workloads:
        yield Finding(kind, "False", ServingReason.NO_METRICS_SERVER, source_of(scaling).no_metrics)
    elif wanted is None:
        yield Finding(kind, "Unknown", ServingReason.NO_SERVERS, "there are no server pods to scale yet")
    else:
        yield _autoscaler(source_of(scaling), observed.autoscaler(*identity(wanted)))


def _autoscaler(source: ScalingSource, autoscaler: Autoscaler | None) -> Finding:
    kind, starting = ConditionType.SCALING_ACTIVE, ServingReason.AUTOSCALER_STARTING
    if autoscaler is None:
        return Finding(kind, "Unknown", starting, "the autoscaler is being made")
    types = source.conditions
    reported = [condition for condition in autoscaler.conditions if condition.type in types]
    if not reported:
        return Finding(kind, "Unknown", starting, f"the controller of the {source.kind} has not set its status yet")
    order = ("False", "Unknown", "True")
    worst = min(reported, key=lambda condition: (order.index(condition.status), types.index(condition.type)))
    effect = "" if worst.status == "True" else "replicas stay as they are: "
    reason = ExternalReason(worst.reason) if worst.reason else ServingReason.NO_AUTOSCALER_REASON
    return Finding(kind, worst.status, reason, f"{effect}{worst.message}")


# --- what the reports show --------------------------------------------------------------------------
def _metrics(service: SpeculativeInferenceService, reading: Reading) -> Finding:
    kind, report = ConditionType.METRICS_AVAILABLE, reading.report
    if reading.problem:
        message = f"{reading.problem}; figures and replicas stay as they are"
        return Finding(kind, "False", ServingReason.METRICS_SERVER_UNREACHABLE, message)
    if not reading.answered:
        message = "no report was read since the operator started"
        return _as_before(service, kind, ServingReason.WAITING_FOR_METRICS_SERVER, message)
    if report is None:
        message = "there is no report of this service yet"
        return Finding(kind, "Unknown", ServingReason.NO_REPORT, message)
    if report.blind and not reading.blind:
        message = f"{counted(report.unknown, 'Ready pod')}, none with metrics yet"
        return _as_before(service, kind, ServingReason.PODS_STARTING, message)
    if report.blind:
        first = f": {report.problems[0]}" if report.problems else ""
        message = f"{counted(report.unknown, 'Ready pod')}, none with metrics that can be read{first}"
        return Finding(kind, "False", ServingReason.NO_POD_REPORTS_METRICS, message)
    if not report.pods:
        return Finding(kind, "Unknown", ServingReason.NO_READY_PODS, "no server pod is Ready")
    return Finding(kind, "True", ServingReason.METRICS_REPORTED, "the pods report metrics")


def _active(service: SpeculativeInferenceService, decision: Decision, reading: Reading) -> Finding:
    kind, report = ConditionType.SPECULATION_ACTIVE, reading.report
    if reading.idle:
        message = "no tokens are generated; the figures of status are of the last traffic"
        return Finding(kind, "Unknown", ServingReason.NO_TRAFFIC, message)
    active = drafting(report) if report else None
    if report is None or (active is None and report.speculation.drafted is None and not report.tokens_per_second):
        return _as_before(service, kind, ServingReason.NO_TRAFFIC, "no tokens were generated yet")
    if active:
        return _unmoved(service, report, Finding(kind, "True", ServingReason.DRAFT_TOKENS_SEEN, _figures(report)))
    reason, message = _why_inactive(service, decision.engine, report)
    if decision.engine and not decision.engine.counts_draft_tokens and reason is not ServingReason.SWITCHED_OFF:
        message = f"{decision.engine.title} does not report how many tokens it drafts"
        return Finding(kind, "Unknown", ServingReason.NOT_REPORTED, message)
    if active is None:
        return _as_before(service, kind, ServingReason.TOO_FEW_TOKENS, "too few tokens were generated to judge")
    return Finding(kind, "False", reason, f"{message}{_seen(report)}")


def _why_inactive(
    service: SpeculativeInferenceService, engine: Engine | None, report: ServiceReport
) -> tuple[Reason, str]:
    """Reason and message where tokens are generated and none is drafted."""
    count = f"{counted(round(tokens(report)), 'token')} generated without a draft token"
    if loop_of(service.spec).chooses_length:
        return _why_bls_inactive(service.spec.speculation, report.speculation, count)
    if _above_schedule(service.spec.speculation, report.speculation.asked_length):
        return (
            ServingReason.ABOVE_SCHEDULE,
            f"{count}: maxConcurrency or draftLenSchedule drafts nothing at this load",
        )
    if engine and (threshold := engine.switches_off(service.spec)):
        return ServingReason.SWITCHED_OFF, (
            f"{count}, though the load asks for drafts: below {threshold} {engine.title} stops drafting for good;"
            " restart the pods, and lower the threshold or change the draft"
        )
    before = _before(service, ConditionType.SPECULATION_ACTIVE)
    if before and (before.status == "True" or before.reason == ServingReason.SWITCHED_OFF):
        return ServingReason.SWITCHED_OFF, (
            f"{count}, and some were drafted before: the engine stopped drafting by itself; the pods' logs have the"
            " cause, and a restart of the pods starts it again"
        )
    return (
        ServingReason.NO_DRAFT_TOKENS,
        f"{count}: the image does not run the decodingType of this service; see the pods' logs",
    )


def _why_bls_inactive(spec: Speculation, reported: Reported, count: str) -> tuple[Reason, str]:
    if reported.draft_failures:
        failed = f"the draft engine failed, or was too slow, at {counted(reported.draft_failures, 'sequence')}"
        return ServingReason.DRAFT_FAILS, f"{count}: {failed}; see the pods' logs"
    if spec.adaptive.enabled and spec.adaptive.min_draft_len == 0:
        message = f"{count}: at this load and acceptance the target alone is faster"
        return ServingReason.ADAPTED_TO_ZERO, message
    message = f"{count}: check whether the requests set num_draft_tokens 0, then the pods' logs"
    return ServingReason.NO_DRAFT_TOKENS, message


def _above_schedule(spec: Speculation, length: float | None) -> bool:
    """Whether the schedule drafts nothing at this load; where the load is not known, whether it may."""
    if length is None:
        return bool(spec.max_concurrency or spec.draft_len_schedule)
    return length == 0


def _beneficial(service: SpeculativeInferenceService, reading: Reading, benchmark: Benchmark | None) -> Finding:
    """By the traffic where that shows it, else by a benchmark."""
    kind, report = ConditionType.SPECULATION_BENEFICIAL, reading.report
    worth, stands = report.worth if report else Worth(), not _shows_benchmark(service)
    if worth.speedup is None and benchmark and (benchmark.worth.speedup is not None or not _shows_traffic(service)):
        return _by_benchmark(service, benchmark)
    if worth.speedup is None and (report is None or not report.tokens_per_second):
        message = f"no tokens were generated yet; {how_to_measure(service)}"
        return _as_before(service, kind, ServingReason.NO_TRAFFIC, message, stands)
    if worth.speedup is None:
        message = f"{worth.message or 'too little was seen to judge'}; {how_to_measure(service)}"
        return _as_before(service, kind, ServingReason.TOO_FEW_SAMPLES, message, stands)
    finding, before = _by_speedup(kind, _dated(worth, report)), _before(service, kind)
    side = {"True": worth.speedup - 1, "False": 1 - worth.speedup}
    if finding.status == "Unknown" and stands and before and side.get(before.status, -1.0) >= -NEAR:
        message = f"{finding.message}; too close to 1 to change the condition"
        finding = Finding(kind, before.status, ExternalReason(before.reason), message)
    return _unmoved(service, report, finding) if report and stands else finding


def _by_benchmark(service: SpeculativeInferenceService, benchmark: Benchmark) -> Finding:
    kind = ConditionType.SPECULATION_BENEFICIAL
    if benchmark.reason:
        message = f"{benchmark.worth.message}; {how_to_measure(service)}"
        return Finding(kind, "Unknown", benchmark.reason, message)
    return _by_speedup(kind, benchmark.worth)


def _by_speedup(kind: ConditionType, worth: Worth) -> Finding:
    """The condition of a speed-up that is known."""
    if worth.beneficial is None:
        return Finding(kind, "Unknown", ServingReason.NO_CLEAR_DIFFERENCE, worth.message)
    if worth.beneficial:
        return Finding(kind, "True", ServingReason.FASTER, worth.message)
    return Finding(kind, "False", ServingReason.SLOWER, worth.message)


def _shows_benchmark(service: SpeculativeInferenceService) -> bool:
    """Whether the worth in status is a benchmark's: it goes with the benchmark."""
    before, shown = _before(service, ConditionType.SPECULATION_BENEFICIAL), service.status.speculation
    return bool((before and before.reason.startswith("Benchmark")) or (shown and shown.speedup_source == "Benchmark"))


def _shows_traffic(service: SpeculativeInferenceService) -> bool:
    """Whether the worth in status is known, and by the traffic."""
    before = _before(service, ConditionType.SPECULATION_BENEFICIAL)
    return bool(before and before.status != "Unknown") and not _shows_benchmark(service)


def how_to_measure(service: SpeculativeInferenceService) -> str:
    """The command that does. Where the service cannot run the target alone, it makes another one that does."""
    by_itself = loop_of(service.spec).runs_target_alone(service.spec)
    base = "" if by_itself else " --base"
    return f"`tandem bench {service.name} -n {service.namespace} --prompts FILE{base} --record` measures it"


def _dated(worth: Worth, report: ServiceReport | None) -> Worth:
    """With the revision and the time in its message: it stands until something else is known."""
    return worth.model_copy(update={"message": f"{worth.message}{_seen(report)}"}) if report else worth


def _seen(report: ServiceReport) -> str:
    """Of which pods, and when."""
    revision = f"revision {' and '.join(report.serving)}, " if report.serving else ""
    return f" ({revision}{report.observed_at})"


def _unreachable(service: SpeculativeInferenceService, reading: Reading) -> Iterator[Finding]:
    """Only while an objective is below what the models can do: no number of replicas would help."""
    decided = reading.report.decision if reading.report else None
    if service.spec.autoscaling and decided and decided.unreachable:
        kind, reason = ConditionType.OBJECTIVES_REACHABLE, ServingReason.BELOW_MINIMUM_LATENCY
        yield Finding(kind, "False", reason, decided.unreachable)


def _figures(report: ServiceReport) -> str:
    reported = report.speculation
    length = reported.mean_accepted_length
    figures = [
        f"acceptance {reported.acceptance_rate:.1%}" if reported.acceptance_rate is not None else "",
        f"mean accepted length {length:.2f}" if length is not None else "",
    ]
    return f"{', '.join(filter(None, figures))}{_seen(report)}"


def _as_before(
    service: SpeculativeInferenceService, kind: ConditionType, reason: Reason, message: str, stands: bool = True
) -> Finding:
    """The condition as it `stands`; what is not known, it says in its own words of now."""
    before = _before(service, kind)
    if stands and before and before.status != "Unknown":
        return Finding(kind, before.status, ExternalReason(before.reason), before.message)
    return Finding(kind, "Unknown", reason, message)


def _unmoved(service: SpeculativeInferenceService, report: ServiceReport, finding: Finding) -> Finding:
    """With the message of before where the figures of status stay, too: an operator that starts changes nothing."""
    before = _before(service, finding.type)
    if before is None or (before.status, before.reason) != (finding.status, finding.reason):
        return finding
    moved = speculation_moved(service.status.speculation, speculation_status(report))
    return finding if moved else Finding(finding.type, finding.status, finding.reason, before.message)


def _before(service: SpeculativeInferenceService, kind: ConditionType) -> Condition | None:
    return next((c for c in service.status.conditions if c.type == kind), None)
