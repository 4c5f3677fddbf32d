"""Conditions on speculation and autoscaling: none of them keeps a service from being Ready. Pure.

A condition that nothing new is known of stays as it was: a restart of the operator, or a pause in the traffic, is
no news about the service.
"""

from collections.abc import Iterable, Iterator

from tandem.accept.llmapi import switches_off
from tandem.api.types import Condition, DecodingType, Mode, Speculation, SpeculativeInferenceService
from tandem.children.metadata import identity
from tandem.conditions.benchmark import Benchmark
from tandem.conditions.finding import Finding
from tandem.conditions.situation import Situation
from tandem.conditions.writes import News, drafting, speculation_moved, speculation_status, tokens
from tandem.errors import Forbidden
from tandem.metrics.report import ServiceReport, Worth
from tandem.metrics.report import Speculation as Seen
from tandem.rollout.decide import Decision
from tandem.rollout.observed import Autoscaler

SWITCHED_OFF = "SwitchedOff"
ADAPTED_TO_ZERO, ABOVE_SCHEDULE = "AdaptedToZero", "AboveSchedule"
AS_ASKED = (ADAPTED_TO_ZERO, ABOVE_SCHEDULE)
"""Why nothing is drafted where that is what the specification asks for."""


NEAR = 0.05
"""What was clear of speculation's worth stands until the speed-up is so far on the other side of 1: near it estimates
go to and fro all the time."""


def verdicts(situation: Situation) -> list[Finding]:
    """The conditions. Without a metrics server nothing is said of speculation but what a benchmark says."""
    service, news, benchmark = situation.service, situation.news, situation.benchmark
    found = list(_scaling(situation))
    speculates = service.spec.speculation.decoding_type is not DecodingType.NONE
    if news:
        found.append(_metrics(service, news))
    if news and speculates:
        found.append(_active(service, situation.decision, news))
    if (news or benchmark) and speculates:
        found.append(_beneficial(service, news or News(), benchmark))
    return [*found, *(_unreachable(service, news) if news else ())]


def rights(missing: Iterable[Forbidden]) -> list[Finding]:
    """The condition that says which rights the operator lacks for a service; none while it lacks none."""
    told = sorted({str(each) for each in missing})
    return [Finding("RightsGranted", "False", Forbidden.reason, "; ".join(told))] if told else []


# --- the autoscaler's own view ----------------------------------------------------------------------
def _scaling(situation: Situation) -> Iterator[Finding]:
    service, decision, observed = situation.service, situation.decision, situation.observed
    refused, wanted = situation.scaling_refused, decision.desired.autoscaler
    if service.spec.autoscaling is None:
        return
    if refused:
        yield Finding("ScalingActive", "False", refused.reason, str(refused))
    elif wanted is None and service.spec.autoscaling.source == "KEDA" and observed.workloads:
        yield Finding("ScalingActive", "False", "NoMetricsServer", NO_SERVER)
    elif wanted is None:
        yield Finding("ScalingActive", "Unknown", "NoServers", "there is nothing to scale yet")
    else:
        yield _autoscaler(observed.autoscaler(*identity(wanted)))


NO_SERVER = (
    "source KEDA has nobody to ask: run the metrics server (Helm values: metricsServer.enabled, and no namespaces),"
    " name a Prometheus that scrapes one (keda.prometheusUrl), or write autoscaling.keda.triggers"
)


def _autoscaler(autoscaler: Autoscaler | None) -> Finding:
    if autoscaler is None:
        return Finding("ScalingActive", "Unknown", "Starting", "the autoscaler is being made")
    kind = autoscaler.live.kind
    # Of a ScaledObject, Ready is what KEDA makes of it, and HPAActive what the autoscaler of its own says.
    types = ("Ready", "HPAActive") if kind == "ScaledObject" else ("ScalingActive", "AbleToScale")
    seen = [condition for condition in autoscaler.conditions if condition.type in types]
    if not seen:
        return Finding("ScalingActive", "Unknown", "Starting", f"the {kind} has not been looked at yet")
    order = ("False", "Unknown", "True")
    worst = min(seen, key=lambda condition: (order.index(condition.status), types.index(condition.type)))
    held = "" if worst.status == "True" else "replicas stay as they are: "
    return Finding("ScalingActive", worst.status, worst.reason or "NoReason", f"{held}{worst.message}")


# --- what the reports say ---------------------------------------------------------------------------
def _metrics(service: SpeculativeInferenceService, news: News) -> Finding:
    kind, report = "MetricsAvailable", news.report
    if news.problem:
        said = f"{news.problem}; figures and replicas stay as they are"
        return Finding(kind, "False", "MetricsServerUnreachable", said)
    if not news.asked:
        return _as_before(service, kind, "NotAsked", "the metrics server has not been asked yet")
    if report is None:
        return Finding(kind, "Unknown", "NoReport", "the metrics server knows nothing of this service yet")
    if report.blind:
        first = f": {report.problems[0]}" if report.problems else ""
        return Finding(kind, "False", "NoPodTellsFigures", f"none of {report.unknown} pods tells figures{first}")
    return Finding(kind, "True", "Reported", "the metrics server reads the pods")


def _active(service: SpeculativeInferenceService, decision: Decision, news: News) -> Finding:
    kind, report = "SpeculationActive", news.report
    if news.idle:
        return Finding(kind, "Unknown", "NoTraffic", "no tokens are generated; the figures are of the last traffic")
    active = drafting(report) if report else None
    if report is None or (active is None and report.speculation.drafted is None and not report.tokens_per_second):
        return _as_before(service, kind, "NoTraffic", "no tokens were generated yet")
    if active:
        return _unmoved(service, report, Finding(kind, "True", "DraftTokensSeen", _figures(report)))
    reason, message = _why_inactive(service, report)
    if decision.profile and not decision.profile.counts_draft_tokens and reason != SWITCHED_OFF:
        said = f"profile {decision.profile.name} does not tell how many tokens it drafts"
        return Finding(kind, "Unknown", "NotReported", said)
    if active is None:
        return _as_before(service, kind, "TooFewTokens", "too few tokens were generated to say")
    return Finding(kind, "False", reason, message)


def _why_inactive(service: SpeculativeInferenceService, report: ServiceReport) -> tuple[str, str]:
    """Reason and message where tokens are generated and none is drafted."""
    count = f"{round(tokens(report))} tokens were generated without a draft token"
    if service.spec.runtime.mode is Mode.BLS:
        return _why_bls_inactive(service.spec.speculation, report.speculation, count)
    if _above_schedule(service.spec.speculation, report.speculation.asked_length):
        return ABOVE_SCHEDULE, f"{count}: maxConcurrency or draftLenSchedule drafts nothing for so many requests"
    if threshold := switches_off(service.spec):
        return SWITCHED_OFF, (
            f"{count}, though the load asks for drafts: below {threshold} TensorRT-LLM stops drafting for good;"
            " restart the pods, and lower the threshold or change the draft"
        )
    before = _before(service, "SpeculationActive")
    if before and (before.status == "True" or before.reason == SWITCHED_OFF):
        return SWITCHED_OFF, (
            f"{count}, and there were some before: the engine stopped drafting by itself, and the pods' logs say why;"
            " a restart of the pods starts it again"
        )
    return "NoDraftTokens", f"{count}: this image does not run the decodingType that is asked for, see the pods' logs"


def _why_bls_inactive(asked: Speculation, seen: Seen, count: str) -> tuple[str, str]:
    if seen.draft_failures:
        failed = f"the draft engine failed, or was too slow, at {seen.draft_failures} sequences"
        return "DraftFails", f"{count}: {failed}; the pods' logs say why"
    if asked.adaptive.enabled and asked.adaptive.min_draft_len == 0:
        return ADAPTED_TO_ZERO, f"{count}: at this load and acceptance the target alone is faster"
    return "NoDraftTokens", f"{count}: do the requests ask for num_draft_tokens 0? Else the pods' logs say why"


def _above_schedule(asked: Speculation, length: float | None) -> bool:
    """Whether the schedule drafts nothing at this load; where the load is not known, whether it may."""
    if length is None:
        return bool(asked.max_concurrency or asked.draft_len_schedule)
    return length == 0


def _beneficial(service: SpeculativeInferenceService, news: News, benchmark: Benchmark | None) -> Finding:
    """By the traffic where that shows it, else by a benchmark."""
    kind, report = "SpeculationBeneficial", news.report
    worth, stands = report.worth if report else Worth(), not _shows_benchmark(service)
    if worth.speedup is None and benchmark and (benchmark.worth.speedup is not None or not _traffic_told(service)):
        return _by_benchmark(kind, benchmark)
    if worth.speedup is None and (report is None or not report.tokens_per_second):
        return _as_before(service, kind, "NoTraffic", "no tokens were generated yet", stands)
    if worth.speedup is None:
        said = worth.message or f"{worth.samples} samples are too few"
        return _as_before(service, kind, "TooFewSamples", f"{said}{_how(service)}", stands)
    found, before = _told(kind, worth), _before(service, kind)
    side = {"True": worth.speedup - 1, "False": 1 - worth.speedup}
    if found.status == "Unknown" and stands and before and side.get(before.status, -1.0) >= -NEAR:
        found = Finding(kind, before.status, before.reason, f"{found.message}; too close to tell anything else")
    return _unmoved(service, report, found) if report and stands else found


def _by_benchmark(kind: str, benchmark: Benchmark) -> Finding:
    worth = benchmark.worth
    if worth.speedup is None:
        return Finding(kind, "Unknown", benchmark.reason, worth.message)
    return _told(kind, worth)


def _told(kind: str, worth: Worth) -> Finding:
    """What a speed-up that is known comes to."""
    if worth.beneficial is None:
        return Finding(kind, "Unknown", "TooCloseToTell", worth.message)
    return Finding(kind, *(("True", "Faster") if worth.beneficial else ("False", "Slower")), worth.message)


def _shows_benchmark(service: SpeculativeInferenceService) -> bool:
    """Whether status says of the worth what a benchmark said: it goes with the benchmark."""
    before, shown = _before(service, "SpeculationBeneficial"), service.status.speculation
    return bool((before and before.reason.startswith("Benchmark")) or (shown and shown.speedup_source == "Benchmark"))


def _traffic_told(service: SpeculativeInferenceService) -> bool:
    before = _before(service, "SpeculationBeneficial")
    return bool(before and before.status != "Unknown") and not _shows_benchmark(service)


def _how(service: SpeculativeInferenceService) -> str:
    if service.spec.runtime.mode is Mode.BLS:
        return ""
    return f"; tandem bench {service.name} --against NAME --record measures it"


def _unreachable(service: SpeculativeInferenceService, news: News) -> Iterator[Finding]:
    """Said only while an objective is below what the models can do: no number of replicas would help."""
    decided = news.report.decision if news.report else None
    if service.spec.autoscaling and decided and decided.unreachable:
        yield Finding("ObjectivesReachable", "False", "BelowFloor", decided.unreachable)


def _figures(report: ServiceReport) -> str:
    seen = report.speculation
    told = [
        f"acceptance {seen.acceptance_rate:.1%}" if seen.acceptance_rate is not None else "",
        f"mean accepted length {seen.mean_accepted_length:.2f}" if seen.mean_accepted_length is not None else "",
        f"{seen.samples} steps in {report.window_seconds:.0f} s",
    ]
    return ", ".join(filter(None, told))


def _as_before(
    service: SpeculativeInferenceService, kind: str, reason: str, message: str, stands: bool = True
) -> Finding:
    """The condition as it `stands`; Unknown where it does not, or said only that there was no traffic."""
    before = _before(service, kind)
    if stands and before and (before.reason != "NoTraffic" or reason == "NoTraffic"):
        return Finding(kind, before.status, before.reason, before.message)
    return Finding(kind, "Unknown", reason, message)


def _unmoved(service: SpeculativeInferenceService, report: ServiceReport, found: Finding) -> Finding:
    """In the words of before, where the figures of status stay, too: an operator that starts anew is no news."""
    before = _before(service, found.type)
    if before is None or (before.status, before.reason) != (found.status, found.reason):
        return found
    moved = speculation_moved(service.status.speculation, speculation_status(report))
    return found if moved else Finding(found.type, found.status, found.reason, before.message)


def _before(service: SpeculativeInferenceService, kind: str) -> Condition | None:
    return next((c for c in service.status.conditions if c.type == kind), None)
