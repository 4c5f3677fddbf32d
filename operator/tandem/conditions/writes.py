"""Which report of a service its status shows, and which change is worth a write. Pure: time is an argument.

Reports come every few seconds and are never quite the same. Status shows the last report that differed materially
from the one shown before, at most once a minute; without traffic it stays.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tandem.api.types import AutoscalingStatus, SpeculationAdvice, SpeculationStatus
from tandem.conditions.minimum_length import FEWEST_TOKENS, Standing, standings
from tandem.metrics.report import ServiceReport

SHOW_SECONDS = 60.0
"""Shortest time between two reports that one service's status shows."""
IDLE_SECONDS = 600.0
"""Without traffic for so long, a service is idle; its figures stay."""
BLIND_SECONDS = 120.0
"""Ready pods of which none reports metrics for so long are a problem; before that they may have just started."""
UNREACHABLE_SECONDS = 600.0
"""An objective that is out of reach by one report stays so for so long, against other reports: they are of one
metrics server or another, and one that started under load has not measured a replica at its fastest."""
RATE_POINTS, LENGTH_TOKENS, SPEEDUP_SHARE = 0.01, 0.05, 0.05
"""Material: a percentage point of acceptance, a twentieth of a token, 5 % of speed-up."""
DECISION_SHARE = 0.2
"""Material of a decision for as many replicas: a fifth of what they can do, or of the target. Of a value below
its target, a fifth of that: at little load chance moves it more, and it decides nothing."""
LOAD_FACTOR = 2.0
"""Material where the traffic shows no speed-up: which load of a benchmark is nearest may be another."""


@dataclass(frozen=True)
class Reading:
    """What was read of a service from the metrics server."""

    report: ServiceReport | None = None
    """The report that status shows; its speculation is of the last traffic. None before the first."""
    idle: bool = False
    """Whether there has been no traffic for `IDLE_SECONDS`."""
    answered: bool = True
    """Whether the metrics server has answered since the operator started."""
    standings: Mapping[str, Standing] = field(default_factory=dict)
    """How revisions stand against the minimum accepted length, by digest."""
    problem: str = ""
    """Why it does not answer; empty when it does, or was silent for a short while."""
    blind: bool = False
    """Whether Ready pods report no metrics, for `BLIND_SECONDS` or longer."""


@dataclass(frozen=True)
class ShownReport:
    """The report of a service that its status shows, and since when; times are seconds of one clock."""

    report: ServiceReport
    idle: bool
    standings: Mapping[str, Standing]
    shown_at: float
    traffic_at: float = field(compare=False)
    """When there was traffic last; the first time that it was read, when there was none since."""
    blind_since: float | None = field(default=None, compare=False)
    """Since when there are Ready pods and none reports metrics; None while that is not so."""
    unreachable_at: float | None = field(default=None, compare=False)
    """When an objective was last out of reach by a report; None: never."""
    blind: bool = False
    """As in `Reading`."""


def update(before: ShownReport | None, now: ServiceReport, at: float) -> ShownReport:
    """What to show when `now` was read at time `at`: `before`, but for its clocks, unless that changed materially, or
    was of another service of that name, or of other revisions."""
    if before is None or before.report.uid != now.uid or now.serving not in ((), before.report.serving):
        stand = standings(before.standings if before and before.report.uid == now.uid else {}, now, at)
        unreachable_at = at if _unreachable(now) else None
        since = at if now.blind else None
        return ShownReport(now, False, stand, at, at, since, unreachable_at)
    stand = standings(before.standings, now, at)
    unreachable_at = at if _unreachable(now) else before.unreachable_at
    if unreachable_at is not None and at - unreachable_at < UNREACHABLE_SECONDS:
        now = _as_unreachable(before.report, now)
    traffic_at = at if now.tokens_per_second else before.traffic_at
    merged = now if now.tokens_per_second else now.model_copy(update=_speculation_of(before.report))
    since = (at if before.blind_since is None else before.blind_since) if now.blind else None
    idle = before.idle if now.blind else at - traffic_at >= IDLE_SECONDS
    blind = since is not None and at - since >= BLIND_SECONDS
    sight = blind != before.blind or (since is None and _sight(now) != _sight(before.report))
    due = at - before.shown_at >= SHOW_SECONDS
    if due and (idle != before.idle or sight or material(before.report, merged)):
        return ShownReport(merged, idle, stand, at, traffic_at, since, unreachable_at, blind)
    shown_at, blind = before.shown_at, before.blind
    return ShownReport(before.report, before.idle, stand, shown_at, traffic_at, since, unreachable_at, blind)


def _sight(report: ServiceReport) -> tuple[bool, bool]:
    """Whether pods report metrics, and whether only pods are there that do not."""
    return report.pods > 0, report.blind


def _unreachable(report: ServiceReport) -> str:
    return report.decision.unreachable if report.decision else ""


def _as_unreachable(before: ServiceReport, now: ServiceReport) -> ServiceReport:
    """`now` with what is out of reach by `before`, while the objectives are the same."""
    if now.decision is None or now.decision.unreachable or before.objectives != now.objectives:
        return now
    decision = now.decision.model_copy(update={"unreachable": _unreachable(before)})
    return now.model_copy(update={"decision": decision})


def _speculation_of(report: ServiceReport) -> dict[str, object]:
    """What a window without traffic measures no better than one with."""
    names = ("serving", "speculation", "worth", "advice")
    return {name: getattr(report, name) for name in names}


def material(before: ServiceReport, now: ServiceReport) -> bool:
    """Whether what status shows of `now` differs materially from `before`."""
    return (
        _changed(drafting(before), drafting(now))
        or _changed(_undrafted(before), _undrafted(now))
        or speculation_moved(speculation_status(before), speculation_status(now))
        or _decision_moved(before, now)
        or bool(_unreachable(before)) != bool(_unreachable(now))
        or (now.worth.speedup is None and (_load_moved(before, now) or before.worth.message != now.worth.message))
    )


def tokens(report: ServiceReport) -> float:
    """Tokens generated within the report's window."""
    return (report.tokens_per_second or 0) * report.window_seconds


def load(reading: Reading | None) -> float | None:
    """Requests at once in a replica, as last reported; None where that is not known."""
    return _load(reading.report) if reading and reading.report else None


def _load(report: ServiceReport) -> float | None:
    return report.running / report.pods if report.running is not None and report.pods else None


def _load_moved(before: ServiceReport, now: ServiceReport) -> bool:
    """With traffic; up to one request at once, loads are alike."""
    then, later = _load(before), _load(now)
    if then is None or later is None or not now.tokens_per_second:
        return False
    low, high = sorted((max(then, 1.0), max(later, 1.0)))
    return high >= LOAD_FACTOR * low


def drafting(report: ServiceReport) -> bool | None:
    """Whether tokens are drafted; None where that is not known. An accepted length above 1 shows it without a count,
    for the engines that keep none."""
    reported = report.speculation
    if reported.drafted or (reported.mean_accepted_length or 0) > 1:
        return True
    known = reported.drafted is not None or reported.mean_accepted_length is not None
    return False if known and tokens(report) >= FEWEST_TOKENS else None


def _undrafted(report: ServiceReport) -> tuple[bool, bool] | None:
    """Why nothing is drafted: whether the load asks for drafts, and whether drafts fail; None where some are drafted,
    or that is not known."""
    if drafting(report) is not False:
        return None
    return bool(report.speculation.asked_length), report.speculation.draft_failures > 0


def speculation_status(report: ServiceReport) -> SpeculationStatus | None:
    """The figures of a report; None where it has none."""
    reported, advice = report.speculation, report.advice
    if reported.acceptance_rate is None and reported.mean_accepted_length is None and report.worth.speedup is None:
        return None
    return SpeculationStatus(
        acceptance_rate=_rounded(reported.acceptance_rate, 3),
        mean_accepted_length=_rounded(reported.mean_accepted_length, 2),
        draft_length=_rounded(reported.draft_length, 2),
        speedup=_rounded(report.worth.speedup, 2),
        speedup_source=report.worth.source if report.worth.speedup is not None else None,
        samples=reported.samples,
        observed_at=report.observed_at,
        advice=SpeculationAdvice(
            draft_len_schedule=list(advice.draft_len_schedule) or None,
            gain=round(advice.gain, 2),
            message=advice.message[:1024],
        )
        if advice
        else None,
    )


def autoscaling_status(report: ServiceReport) -> AutoscalingStatus | None:
    """The decision of a report; None where there is none."""
    decision = report.decision
    if decision is None:
        return None
    return AutoscalingStatus(
        desired_replicas=decision.desired_replicas,
        signal=decision.signal,
        value=_rounded(decision.value, 3),
        target=_rounded(decision.target, 3),
        capacity_per_replica=_rounded(decision.capacity_per_replica, 1),
        message=decision.message[:1024],
        observed_at=report.observed_at,
    )


def _decision_moved(before: ServiceReport, now: ServiceReport) -> bool:
    """Without traffic only by what it asks for: an idle service is not written."""
    then, later = autoscaling_status(before), autoscaling_status(now)
    return scaling_moved(then, later) if now.tokens_per_second else _asks_otherwise(then, later)


def speculation_moved(before: SpeculationStatus | None, now: SpeculationStatus | None) -> bool:
    """Whether figures differ materially. Those that `now` does not know are no change."""
    if before is None or now is None:
        return now is not None
    return (
        _moved(before.acceptance_rate, now.acceptance_rate, RATE_POINTS)
        or _moved(before.mean_accepted_length, now.mean_accepted_length, LENGTH_TOKENS)
        or _moved(before.speedup, now.speedup, SPEEDUP_SHARE * (before.speedup or 1))
        or _changed(before.speedup_source, now.speedup_source)
        or _steps(before) != _steps(now)
    )


def scaling_moved(before: AutoscalingStatus | None, now: AutoscalingStatus | None) -> bool:
    """Whether a decision differs in what it asks for, in why, or materially in its numbers."""
    if before is None or now is None or _asks_otherwise(before, now):
        return now is not None
    value, capacity = max(before.value or 0.0, before.target or 1.0), before.capacity_per_replica
    return _moved(before.value, now.value, DECISION_SHARE * value) or _moved(
        capacity, now.capacity_per_replica, DECISION_SHARE * (capacity or 1.0)
    )


def _asks_otherwise(before: AutoscalingStatus | None, now: AutoscalingStatus | None) -> bool:
    """Whether a decision differs in what it asks for, or in why."""
    if before is None or now is None:
        return now is not None
    return (before.desired_replicas, before.signal) != (now.desired_replicas, now.signal)


def _steps(status: SpeculationStatus) -> object:
    """What is advised, without the gain, which moves all the time."""
    return status.advice and status.advice.draft_len_schedule


def _moved(before: float | None, now: float | None, least: float) -> bool:
    if before is None or now is None:
        return _changed(before, now)
    return abs(now - before) >= least - 1e-9


def _changed(before: object, now: object) -> bool:
    return now is not None and before != now


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
