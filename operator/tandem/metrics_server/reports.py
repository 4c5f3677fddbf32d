"""The report on a service, from its figures and the policy's decision. Pure."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise

from tandem.api.conditions import ConditionType
from tandem.api.types import Objectives, ServiceSpec, ServiceStatus, SpeculativeInferenceService, seconds
from tandem.metrics.capacity.lengths import asked_for
from tandem.metrics.capacity.planner import PlannerOutput
from tandem.metrics.report import QUEUE_LENGTH, Latency, RevisionReport, ServiceReport, SpeculationReport, Worth
from tandem.metrics.telemetry.figures import Figures

MAX_PROBLEMS = 10


def report(
    service: SpeculativeInferenceService,
    figures: Figures,
    output: PlannerOutput | None,
    window: float,
    problems: Sequence[str],
) -> ServiceReport:
    """The report of one window, `window` seconds long. `output`: None where the policy failed."""
    return ServiceReport(
        namespace=service.namespace,
        name=service.name,
        uid=service.uid,
        observed_at=datetime.fromtimestamp(figures.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        window_seconds=window,
        pods=len(figures.pods),
        unknown=figures.unknown,
        running=figures.sum("running"),
        waiting=figures.sum("waiting"),
        tokens_per_second=figures.rate("generation_tokens"),
        speculation=_speculation(service.spec, figures),
        min_accepted_length=service.spec.speculation.min_accepted_length,
        latency=_latency(figures),
        decision=output.decision if output else None,
        worth=output.worth if output else Worth(),
        benchmarked_speedup=_benchmarked_speedup(service.status),
        advice=output.advice if output else None,
        objectives=_objectives(service),
        problems=tuple(problems[:MAX_PROBLEMS]),
    )


def by_revision(spec: ServiceSpec, figures: Mapping[str, Figures]) -> tuple[RevisionReport, ...]:
    """What the drafts of each revision came to. `figures`: of its pods, by its digest."""
    return tuple(
        RevisionReport(
            revision=revision, speculation=_speculation(spec, of_it), mean_prompt_tokens=_mean_prompt_tokens(of_it)
        )
        for revision, of_it in figures.items()
    )


def _mean_prompt_tokens(figures: Figures) -> float | None:
    tokens, finished = figures.sum("prompt_tokens"), figures.histogram("request_latency")
    return tokens / finished.count if tokens is not None and finished and finished.count else None


def _objectives(service: SpeculativeInferenceService) -> dict[str, float]:
    """What autoscaling is to keep, by name: latencies in seconds, and the requests that may wait for each replica."""
    wanted = service.spec.autoscaling.objectives if service.spec.autoscaling else Objectives()
    named = {"timeToFirstToken": wanted.time_to_first_token, "interTokenLatency": wanted.inter_token_latency}
    kept = {name: seconds(duration) for name, duration in named.items() if duration}
    return {**kept, QUEUE_LENGTH: float(wanted.queue_length)} if wanted.queue_length else kept


def _benchmarked_speedup(status: ServiceStatus) -> float | None:
    """A speed-up of the present revision that differs clearly from 1: by the condition."""
    shown = status.speculation
    known = any(c.type == ConditionType.SPECULATION_BENEFICIAL and c.status != "Unknown" for c in status.conditions)
    return shown.speedup if shown and shown.speedup_source == "Benchmark" and known else None


def _speculation(spec: ServiceSpec, figures: Figures) -> SpeculationReport:
    drafted = figures.sum("draft_tokens")
    served = figures.sum("generation_tokens")
    return SpeculationReport(
        acceptance_rate=figures.acceptance_rate,
        mean_accepted_length=figures.mean_accepted_length,
        draft_length=figures.draft_length,
        accepted_per_position=_per_position(figures),
        asked_length=_asked_length(spec, figures),
        drafted=drafted > 0 if drafted is not None and (drafted or served) else None,
        draft_failures=round(figures.sum("draft_failures") or 0),
        samples=round(figures.sum("rounds") or 0),
    )


def _asked_length(spec: ServiceSpec, figures: Figures) -> float | None:
    """The least that is asked of a pod with traffic: where it is above 0, all should draft."""
    loads = [pod.running for pod in figures.pods if pod.running is not None and pod.generation_tokens]
    asked = [length for running in loads if (length := asked_for(spec, running)) is not None]
    return min(asked, default=None)


def _per_position(figures: Figures) -> tuple[float, ...]:
    """Probability of each position given those before it, as far as any were accepted; a scrape may come between two
    of its counters, and what a pod says may be nonsense."""
    reached = (figures.sum("rounds") or 0.0, *figures.accepted_per_position)
    return tuple(min(1.0, now / before) for before, now in pairwise(reached) if before > 0)


def _latency(figures: Figures) -> Latency:
    first, between = figures.histogram("time_to_first_token"), figures.histogram("inter_token_latency")
    return Latency(
        time_to_first_token_p50=first.quantile(0.5) if first else None,
        time_to_first_token_p95=first.quantile(0.95) if first else None,
        inter_token_latency_mean=between.mean if between else None,
        inter_token_latency_p95=between.quantile(0.95) if between else None,
    )
