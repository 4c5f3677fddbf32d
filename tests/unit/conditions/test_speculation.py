"""Conditions on speculation and autoscaling: which figures make which, and that none has a say in Ready."""

from dataclasses import replace
from typing import Any

import pytest

from support.reports import quiet, report, sure
from support.services import QUICKSTART, parse
from support.world import observed_of
from tandem import children
from tandem.api.types import SpeculationStatus, SpeculativeInferenceService
from tandem.api.wire import Object
from tandem.children.desired import Desired
from tandem.conditions.ready import status
from tandem.conditions.situation import Situation
from tandem.conditions.speculation import verdicts
from tandem.conditions.writes import IDLE_SECONDS, Reading, ShownReport, update
from tandem.errors import KindMissing, Refused
from tandem.metrics.capacity.planner import Planner
from tandem.metrics.report import ServiceReport
from tandem.metrics.telemetry.figures import Replicas
from tandem.metrics_server import reports
from tandem.rollout.decide import Decision, decide
from tandem.rollout.observed import Live, Observed, Workload
from tandem.settings import ReportsSettings, Settings
from unit.metrics.capacity.truth import Truth, figures

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"
EMBEDDED, KEDA = {"maxReplicas": 4}, {"maxReplicas": 4, "source": "KEDA"}
SERVER = Settings(reports=ReportsSettings(url="https://tandem-metrics.tandem-system.svc"))

LLMAPI = {
    "runtime": {"mode": "LLMAPI", "profile": "trtllm-1.3", "image": "own"},
    "target": {"model": {"uri": "hf://org/target"}},
    "draft": None,
    "speculation": {"decodingType": "NGram"},
}
UNCOUNTED = {**LLMAPI, "runtime": {"mode": "LLMAPI", "profile": "trtllm-26.07"}}
FIXED = {"speculation": {"decodingType": "DraftTarget", "adaptive": {"enabled": False}}}
NO_FIGURES = {"acceptanceRate": None, "meanAcceptedLength": None, "samples": 0}
NOTHING_DRAFTED = {"speculation": {"drafted": False, **NO_FIGURES}}
NOT_TOLD = {"speculation": {"drafted": None, **NO_FIGURES}}
LENGTH_ONLY = {"speculation": {"drafted": None, "acceptanceRate": None, "meanAcceptedLength": 2.5}}
ONE_A_STEP = {"speculation": {"drafted": None, "acceptanceRate": None, "meanAcceptedLength": 1.0}}


def shown(service: SpeculativeInferenceService, kind: str, reading: Reading | None, settings: Settings) -> str | None:
    """`Status/Reason` of a condition."""
    situation = Situation(service, decide(service, settings, Observed()), Observed(), NOW, reading=reading)
    found = {str(f.type): f"{f.status}/{f.reason}" for f in verdicts(situation)}
    return found.get(kind)


def with_condition(service: SpeculativeInferenceService, kind: str, before: str) -> SpeculativeInferenceService:
    """The service as its status says `before`, a `Status/Reason`."""
    state, reason = before.split("/")
    condition = {"type": kind, "status": state, "reason": reason, "message": "m", "lastTransitionTime": NOW}
    conditions = type(service.status).model_validate({"conditions": [condition]})
    return service.model_copy(update={"status": conditions})


SCHEDULED = {**LLMAPI, "speculation": {"decodingType": "NGram", "maxConcurrency": 4}}
THRESHOLD = {
    **LLMAPI,
    "runtime": {**LLMAPI["runtime"], "extraLlmArgs": {"speculative_config": {"acceptance_rate_threshold": 0.3}}},  # type: ignore[dict-item]
}


def asked(length: float) -> dict[str, Any]:
    """Nothing drafted, at a load at which the specification asks for that many tokens a step."""
    return {"speculation": {"drafted": False, **NO_FIGURES, "askedLength": length}}


DRAFT_FAILS = {"speculation": {"drafted": False, **NO_FIGURES, "draftFailures": 12}}

ACTIVE: list[tuple[str, dict[str, Any], Reading | None, str, str | None]] = [
    # reason, spec, reading, before, wanted
    ("no metrics server is set up", {}, None, "", None),
    ("nothing is asked for", {"draft": None, "speculation": {"decodingType": "None"}}, Reading(report()), "", None),
    ("nothing is known yet", {}, Reading(), "", "Unknown/NoTraffic"),
    (
        "after a restart nothing is known anew",
        {},
        Reading(answered=False),
        "True/DraftTokensSeen",
        "True/DraftTokensSeen",
    ),
    ("tokens are drafted", {}, Reading(report()), "", "True/DraftTokensSeen"),
    ("no traffic was ever seen", {}, Reading(quiet()), "", "Unknown/NoTraffic"),
    ("a pause", {}, Reading(quiet()), "True/DraftTokensSeen", "True/DraftTokensSeen"),
    ("a long pause", {}, Reading(report(), idle=True), "True/DraftTokensSeen", "Unknown/NoTraffic"),
    ("nothing is drafted, and nothing fails", FIXED, Reading(report(**NOTHING_DRAFTED)), "", "False/NoDraftTokens"),
    ("the adaptive length is 0", {}, Reading(report(**NOTHING_DRAFTED)), "", "False/AdaptedToZero"),
    (
        "the first tokens",
        FIXED,
        Reading(report(**NOTHING_DRAFTED, tokensPerSecond=1.0)),
        "Unknown/NoTraffic",
        "Unknown/TooFewTokens",
    ),
    ("few tokens", FIXED, Reading(report(**NOTHING_DRAFTED, tokensPerSecond=1.0)), "", "Unknown/TooFewTokens"),
    ("the image does not speculate", LLMAPI, Reading(report(**NOTHING_DRAFTED)), "", "False/NoDraftTokens"),
    (
        "it did before: for good",
        LLMAPI,
        Reading(report(**NOTHING_DRAFTED)),
        "True/DraftTokensSeen",
        "False/SwitchedOff",
    ),
    ("and still", LLMAPI, Reading(report(**NOTHING_DRAFTED)), "False/SwitchedOff", "False/SwitchedOff"),
    (
        "more requests than are let draft",
        SCHEDULED,
        Reading(report(**asked(0))),
        "True/DraftTokensSeen",
        "False/AboveSchedule",
    ),
    (
        "perhaps: how many there are is not told",
        SCHEDULED,
        Reading(report(**NOTHING_DRAFTED)),
        "True/DraftTokensSeen",
        "False/AboveSchedule",
    ),
    (
        "few enough to draft: it stopped for good",
        SCHEDULED,
        Reading(report(**asked(4))),
        "True/DraftTokensSeen",
        "False/SwitchedOff",
    ),
    ("a threshold is written, whatever was before", THRESHOLD, Reading(report(**asked(4))), "", "False/SwitchedOff"),
    ("the draft engine fails", {}, Reading(report(**DRAFT_FAILS)), "", "False/DraftFails"),
    ("a profile without counts", UNCOUNTED, Reading(report(**NOT_TOLD)), "", "Unknown/NotReported"),
    ("whose steps give more than a token", UNCOUNTED, Reading(report(**LENGTH_ONLY)), "", "True/DraftTokensSeen"),
    ("or one: perhaps a bad draft", UNCOUNTED, Reading(report(**ONE_A_STEP)), "", "Unknown/NotReported"),
    (
        "or one by now: for good",
        UNCOUNTED,
        Reading(report(**ONE_A_STEP)),
        "True/DraftTokensSeen",
        "False/SwitchedOff",
    ),
]


@pytest.mark.parametrize(("reason", "spec", "reading", "before", "wanted"), ACTIVE, ids=[row[0] for row in ACTIVE])
def test_speculation_active(
    reason: str, spec: dict[str, Any], reading: Reading | None, before: str, wanted: str | None, settings: Settings
) -> None:
    service = parse(QUICKSTART, **spec)
    if before:
        service = with_condition(service, "SpeculationActive", before)
    assert shown(service, "SpeculationActive", reading, settings) == wanted, reason


def worth(low: float, high: float) -> Reading:
    """The traffic shows a speed-up in the middle of these."""
    return Reading(report(worth={"speedup": (low + high) / 2, "low": low, "high": high}))


WORTH: list[tuple[str, Reading, str, str]] = [
    ("faster", Reading(report()), "", "True/Faster"),
    ("slower", worth(0.9, 0.97), "", "False/Slower"),
    ("around 1", worth(0.97, 1.2), "", "Unknown/NoClearDifference"),
    (
        "around 1, and more was not seen before",
        worth(0.97, 1.2),
        "Unknown/TooFewSamples",
        "Unknown/NoClearDifference",
    ),
    ("it was faster, and may be slower by now", worth(0.9, 1.06), "True/Faster", "True/Faster"),
    ("and rather is", worth(0.8, 1.04), "True/Faster", "Unknown/NoClearDifference"),
    ("and is", worth(0.8, 0.96), "True/Faster", "False/Slower"),
    ("it was slower, and may be faster by now", worth(0.94, 1.1), "False/Slower", "False/Slower"),
    ("and rather is", worth(0.98, 1.2), "False/Slower", "Unknown/NoClearDifference"),
    ("too little was seen", Reading(report(worth={"speedup": None})), "", "Unknown/TooFewSamples"),
    ("too little was seen anew", Reading(report(worth={"speedup": None})), "False/Slower", "False/Slower"),
    (
        "the first traffic, too little",
        Reading(report(worth={"speedup": None})),
        "Unknown/NoTraffic",
        "Unknown/TooFewSamples",
    ),
    ("a pause before anything was known", Reading(quiet()), "Unknown/NoTraffic", "Unknown/NoTraffic"),
    ("nothing is known", Reading(), "", "Unknown/NoTraffic"),
]


@pytest.mark.parametrize(("reason", "reading", "before", "wanted"), WORTH, ids=[row[0] for row in WORTH])
def test_speculation_beneficial(reason: str, reading: Reading, before: str, wanted: str, settings: Settings) -> None:
    service = parse(QUICKSTART)
    if before:
        service = with_condition(service, "SpeculationBeneficial", before)
    assert shown(service, "SpeculationBeneficial", reading, settings) == wanted, reason


OLD, NEW = "aaaa", "bbbb"
UNTOLD: dict[str, Any] = {"worth": {"speedup": None, "low": None, "high": None, "message": "what is so now"}}
KEPT: list[tuple[str, str, str, Reading, str, str]] = [
    # reason, condition of revision OLD before, revision that is to serve, reading, condition, part of its message
    (
        "it is still not known, and why is told anew",
        "SpeculationBeneficial=Unknown/TooFewSamples",
        OLD,
        Reading(report(**UNTOLD, serving=[OLD])),
        "Unknown/TooFewSamples",
        "what is so now; `tandem bench quickstart -n default --prompts FILE --record` measures it",
    ),
    (
        "it was faster, and nothing else is known",
        "SpeculationBeneficial=True/Faster",
        OLD,
        Reading(report(**UNTOLD, serving=[OLD])),
        "True/Faster",
        "m",
    ),
    ("a restart of the operator", "SpeculationBeneficial=True/Faster", OLD, Reading(), "True/Faster", "m"),
    (
        "another revision serves",
        "SpeculationBeneficial=True/Faster",
        NEW,
        Reading(report(**UNTOLD, serving=[NEW])),
        "Unknown/TooFewSamples",
        "what is so now",
    ),
    (
        "both serve",
        "SpeculationBeneficial=True/Faster",
        NEW,
        Reading(report(**UNTOLD, serving=[OLD, NEW])),
        "Unknown/TooFewSamples",
        "what is so now",
    ),
    ("a restart in between", "SpeculationBeneficial=True/Faster", NEW, Reading(), "Unknown/NoTraffic", "no tokens"),
    (
        "it was slower",
        "SpeculationBeneficial=False/Slower",
        NEW,
        Reading(quiet(serving=[NEW])),
        "Unknown/NoTraffic",
        "no tokens were generated yet; `tandem bench",
    ),
    (
        "near 1 is another side for another revision",
        "SpeculationBeneficial=True/Faster",
        NEW,
        Reading(report(worth={"speedup": 0.98, "low": 0.9, "high": 1.06}, serving=[NEW])),
        "Unknown/NoClearDifference",
        f"(revision {NEW}, 2026-01-01T00:00:00Z)",
    ),
    ("drafts of another revision", "SpeculationActive=True/DraftTokensSeen", NEW, Reading(), "Unknown/NoTraffic", ""),
    (
        "what another revision drafted is no sign of an engine that stopped",
        "SpeculationActive=True/DraftTokensSeen",
        NEW,
        Reading(report(**NOTHING_DRAFTED, serving=[NEW])),
        "False/NoDraftTokens",
        f"(revision {NEW}, 2026-01-01T00:00:00Z)",
    ),
]


@pytest.mark.parametrize(
    ("reason", "before", "live", "reading", "wanted", "message"), KEPT, ids=[row[0] for row in KEPT]
)
def test_what_was_known_is_of_its_revision(
    reason: str, before: str, live: str, reading: Reading, wanted: str, message: str, settings: Settings
) -> None:
    kind, _, was = before.partition("=")
    service = with_condition(parse(QUICKSTART, **FIXED), kind, was)
    told = {"acceptance_rate": 0.5, "observed_at": NOW}
    known = {"judged_revision": OLD, "speculation": SpeculationStatus.model_validate(told)}
    service = service.model_copy(update={"status": service.status.model_copy(update=known)})
    observed = Observed(workloads=[Workload(Live("Deployment", "s"), revision=live)])
    shown = status(Situation(service, decide(service, settings, Observed()), observed, NOW, reading=reading))
    found = next(c for c in shown["conditions"] if c["type"] == kind)
    assert f"{found['status']}/{found['reason']}" == wanted, reason
    assert message in found["message"], reason
    judged = "+".join(shown["judgedRevision"].split(" and "))
    assert judged == ("+".join(reading.report.serving) if reading.report else live)
    ours = shown.get("speculation", {}).get("acceptanceRate") == 0.5
    assert ours is (judged == OLD and not (reading.report and reading.report.speculation.acceptance_rate)), "figures"


METRICS: list[tuple[str, Reading, str]] = [
    ("read", Reading(report()), "True/Reported"),
    ("not asked yet", Reading(answered=False), "Unknown/WaitingForMetricsServer"),
    ("a service that the server does not know", Reading(), "Unknown/NoReport"),
    ("the server is away", Reading(report(), problem="does not answer"), "False/MetricsServerUnreachable"),
    ("no pod reports for two minutes", Reading(report(pods=0, unknown=2), blind=True), "False/NoPodReportsMetrics"),
    ("pods have just become Ready", Reading(report(pods=0, unknown=2)), "Unknown/PodsStarting"),
    ("one of three does not", Reading(report(unknown=1)), "True/Reported"),
    ("there are no pods", Reading(report(pods=0)), "Unknown/NoReadyPods"),
]


@pytest.mark.parametrize(("reason", "reading", "wanted"), METRICS, ids=[row[0] for row in METRICS])
def test_metrics_available(reason: str, reading: Reading, wanted: str, settings: Settings) -> None:
    assert shown(parse(QUICKSTART), "MetricsAvailable", reading, settings) == wanted, reason


@pytest.mark.parametrize("before", ["True/Reported", "False/NoPodReportsMetrics"])
def test_an_operator_that_starts_keeps_what_was_known_of_metrics(before: str, settings: Settings) -> None:
    service = with_condition(parse(QUICKSTART), "MetricsAvailable", before)
    assert shown(service, "MetricsAvailable", Reading(report(pods=0, unknown=2)), settings) == before


def test_what_was_not_known_of_metrics_is_not_kept(settings: Settings) -> None:
    service = with_condition(parse(QUICKSTART), "MetricsAvailable", "Unknown/NoReadyPods")
    reading = Reading(report(pods=0, unknown=2))
    assert shown(service, "MetricsAvailable", reading, settings) == "Unknown/PodsStarting"


FLOOR = {"decision": {"unreachable": "interTokenLatency 5 ms is below the floor of 12 ms"}}


@pytest.mark.parametrize(
    ("asked", "change", "wanted"),
    [
        (EMBEDDED, FLOOR, "False/BelowMinimumLatency"),
        (EMBEDDED, {}, None),
        (None, FLOOR, None),
    ],
    ids=["no number of replicas helps", "said only while it is so", "no autoscaling any more"],
)
def test_objectives_below_the_floor(
    asked: Any, change: dict[str, Any], wanted: str | None, settings: Settings
) -> None:
    service = parse(QUICKSTART, autoscaling=asked)
    assert shown(service, "ObjectivesReachable", Reading(report(**change)), settings) == wanted


@pytest.mark.parametrize(
    ("wanted", "floor"),
    [
        ({"timeToFirstToken": "5ms"}, "timeToFirstToken 5ms is below what a step of the target takes, "),
        (
            {"interTokenLatency": "5ms"},
            "interTokenLatency 5ms is below what a replica with a single sequence takes, ",
        ),
        ({"timeToFirstToken": "1s", "interTokenLatency": "50ms"}, None),
    ],
    ids=["first token", "between tokens", "both are kept"],
)
def test_from_figures_to_the_condition(wanted: dict[str, str], floor: str | None, settings: Settings) -> None:
    """What pods count, what the policy makes of it, the report on the wire, status."""
    service = parse(QUICKSTART, autoscaling={**EMBEDDED, "objectives": wanted})
    planner = Planner(service.spec)
    for at in range(0, 600, 15):
        seen = figures(at, Truth().pod(1, 3))
        told = reports.report(service, seen, planner.update(seen, Replicas(1), service.spec), 60, ())
    reading = Reading(type(told).model_validate_json(told.model_dump_json(by_alias=True)))
    observed = Observed()
    decision = decide(service, settings, observed)
    conditions = status(Situation(service, decision, observed, NOW, reading=reading))["conditions"]
    found = [(c["status"], c["reason"], c["message"]) for c in conditions if c["type"] == "ObjectivesReachable"]
    assert [(state, reason) for state, reason, _ in found] == ([("False", "BelowMinimumLatency")] if floor else [])
    assert all(message.startswith(floor) for _, _, message in found)


def live(asked: dict[str, Any], **conditions: tuple[str, str, str]) -> Object:
    made = children.autoscaler(parse(QUICKSTART, autoscaling=asked), SERVER)
    assert made is not None
    listed = [dict(zip(("status", "reason", "message"), c, strict=True), type=t) for t, c in conditions.items()]
    return {**made, "status": {"conditions": listed}}


ABLE = ("True", "ReadyForNewScale", "recommended size matches current size")
NO_METRIC = ("False", "FailedGetObjectMetric", "unable to get metric tandem_replicas_needed")
SCALING: list[tuple[str, dict[str, Any] | None, list[Object], Refused | None, tuple[str, str] | None]] = [
    ("nobody asks for it", None, [], None, None),
    ("being made", EMBEDDED, [], None, ("Unknown/Starting", "being made")),
    ("not looked at", EMBEDDED, [live(EMBEDDED)], None, ("Unknown/Starting", "has not set its status yet")),
    (
        "it scales",
        EMBEDDED,
        [live(EMBEDDED, AbleToScale=ABLE, ScalingActive=("True", "ValidMetricFound", "replicas from 1.4"))],
        None,
        ("True/ValidMetricFound", "replicas from 1.4"),
    ),
    (
        "no figures: it holds",
        EMBEDDED,
        [live(EMBEDDED, AbleToScale=ABLE, ScalingActive=NO_METRIC)],
        None,
        ("False/FailedGetObjectMetric", "replicas stay as they are: unable to get metric"),
    ),
    (
        "it cannot read our scale",
        EMBEDDED,
        [live(EMBEDDED, AbleToScale=("False", "FailedGetScale", "forbidden"))],
        None,
        ("False/FailedGetScale", "forbidden"),
    ),
    (
        "KEDA is not installed",
        KEDA,
        [],
        KindMissing("ScaledObject", "install https://keda.sh"),
        ("False/ScaledObjectMissing", "install https://keda.sh"),
    ),
    (
        "KEDA's trigger fails",
        KEDA,
        [live(KEDA, Ready=("False", "TriggerError", "triggers are not working"))],
        None,
        ("False/TriggerError", "not working"),
    ),
    (
        "KEDA's own autoscaler fails",
        KEDA,
        [
            live(
                KEDA,
                Ready=("True", "Ready", "ok"),
                HPAActive=("False", "FailedGetExternalMetric", "gone"),
            )
        ],
        None,
        ("False/FailedGetExternalMetric", "gone"),
    ),
]


@pytest.mark.parametrize(("reason", "asked", "there", "refused", "wanted"), SCALING, ids=[row[0] for row in SCALING])
def test_scaling_active(
    reason: str,
    asked: dict[str, Any] | None,
    there: list[Object],
    refused: Refused | None,
    wanted: tuple[str, str] | None,
) -> None:
    service = parse(QUICKSTART, autoscaling=asked)
    decision = Decision(desired=Desired(autoscaler=children.autoscaler(service, SERVER)))
    found = verdicts(Situation(service, decision, observed_of(*there), NOW, scaling_refused=refused))
    if wanted is None:
        assert found == [], reason
        return
    (scaling,) = found
    assert f"{scaling.status}/{scaling.reason}" == wanted[0], reason
    assert wanted[1] in scaling.message


def test_keda_without_anybody_to_ask_says_so(settings: Settings) -> None:
    service = parse(QUICKSTART, autoscaling=KEDA)
    servers = Observed(workloads=[Workload(Live("Deployment", "s"), revision="")])
    (scaling,) = verdicts(Situation(service, Decision(), servers, NOW))
    assert (scaling.status, scaling.reason) == ("False", "NoMetricsServer")
    assert "or write autoscaling.keda.triggers" in scaling.message, "Embedded asks the metrics server, too"


def test_none_of_them_has_a_say_in_ready(settings: Settings) -> None:
    service, observed = parse(QUICKSTART, autoscaling=EMBEDDED), Observed()
    decision = decide(service, settings, observed)
    worst = Reading(report(**NOTHING_DRAFTED, worth=sure(0.5), **FLOOR), problem="away")
    situation = Situation(service, decision, observed, NOW)
    bad = replace(situation, reading=worst, scaling_refused=Refused(403, "forbidden"))
    independent = {f.type for f in verdicts(bad) if f.status == "False"}
    assert independent == {
        *("ScalingActive", "MetricsAvailable", "SpeculationActive", "SpeculationBeneficial", "ObjectivesReachable")
    }
    plain, full = (
        [c for c in status(each)["conditions"] if c["type"] not in independent] for each in (situation, bad)
    )
    assert "Ready" in {c["type"] for c in plain}
    assert full == plain


def test_figures_in_status_are_rewritten_only_when_they_move(settings: Settings) -> None:
    service, observed = parse(QUICKSTART, autoscaling=EMBEDDED), Observed()
    decision = decide(service, settings, observed)
    first = status(Situation(service, decision, observed, NOW, reading=Reading(report())))
    assert first["speculation"] == {
        **{"acceptanceRate": 0.75, "meanAcceptedLength": 3.9, "draftLength": 4.0, "speedup": 1.5},
        **{"speedupSource": "Model"},
        **{"samples": 900, "observedAt": NOW},
    }
    assert first["autoscaling"] == {"desiredReplicas": 2, "signal": "Demand", "message": "two", "observedAt": NOW}
    again = service.model_copy(update={"status": type(service.status).model_validate(first)})
    near = Reading(report(observedAt=LATER, speculation={"acceptanceRate": 0.752}))
    for reading in (near, Reading(quiet(observedAt=LATER)), Reading(answered=False), None):
        found = status(Situation(again, decision, observed, LATER, reading=reading))
        assert (found["speculation"], found["autoscaling"]) == (first["speculation"], first["autoscaling"])
    clear = Reading(report(observedAt=LATER, worth=sure(0.8)))
    moved = status(Situation(again, decision, observed, LATER, reading=clear))
    assert (moved["speculation"]["speedup"], moved["speculation"]["observedAt"]) == (0.8, LATER)
    off = again.model_copy(update={"spec": parse(QUICKSTART).spec})
    assert "autoscaling" not in status(Situation(off, decision, observed, LATER, reading=near))


def test_a_service_whose_traffic_ends_is_written_once_more_and_then_no_more(settings: Settings) -> None:
    """What is told of it goes on to come every 15 s, and what was asked for fades."""
    service, seen = parse(QUICKSTART, autoscaling=EMBEDDED), Observed()
    decision, writes = decide(service, settings, seen), []
    told: ShownReport | None = None
    for at in range(0, 4 * int(IDLE_SECONDS), 15):
        moment = f"2026-01-01T00:{at // 60:02}:{at % 60:02}Z"
        asked = {"value": 1400.0 if at < 120 else 0.5, "target": 1000.0}
        told = update(told, (report if at < 120 else quiet)(observedAt=moment, decision=asked), float(at))
        reading = Reading(told.report, told.idle)
        shown = status(Situation(service, decision, seen, moment, reading=reading))
        if service.status != (now := type(service.status).model_validate(shown)):
            writes.append(at)
        service = service.model_copy(update={"status": now})
    assert writes == [0, 105 + IDLE_SECONDS]
    assert service.status.autoscaling is not None
    assert service.status.autoscaling.value == 0.5, "and not what was asked for an hour ago"


@pytest.mark.parametrize(
    "told", [None, Reading(report()), Reading(quiet())], ids=["no server", "old pods", "no draft"]
)
def test_the_target_alone_shows_no_figures_of_the_drafts_before_it(told: Reading | None, settings: Settings) -> None:
    """Nothing would ever take them away: windows without a draft say nothing of drafts."""
    before, seen = parse(QUICKSTART), Observed()
    shown = status(Situation(before, decide(before, settings, seen), seen, NOW, reading=Reading(report())))
    alone = parse(QUICKSTART, draft=None, speculation={"decodingType": "None"})
    alone = alone.model_copy(update={"status": type(before.status).model_validate(shown)})
    assert "speculation" not in status(Situation(alone, decide(alone, settings, seen), seen, LATER, reading=told))


@pytest.mark.parametrize(
    ("change", "written"),
    [
        ({"speculation": {"acceptanceRate": 0.752, "samples": 901}, "worth": sure(1.52)}, False),
        ({"speculation": {"acceptanceRate": 0.77, "samples": 901}}, True),
        ({"worth": sure(1.7)}, True),
        ({"worth": sure(0.8)}, True),
    ],
    ids=["as the last told", "acceptance moved", "the speed-up moved", "another verdict"],
)
def test_an_operator_that_starts_anew_writes_only_what_moved(
    change: dict[str, Any], written: bool, settings: Settings
) -> None:
    """What it told before it does not remember; all services at once would be written for numbers in words."""
    service, seen = parse(QUICKSTART, autoscaling=EMBEDDED), Observed()
    decision, said = decide(service, settings, seen), {"message": "1.50 times the target alone"}

    def told(now: ServiceReport) -> dict[str, Any]:
        return status(Situation(service, decision, seen, NOW, reading=Reading(now)))

    first = told(report(worth={**sure(1.5), **said}))
    service = service.model_copy(update={"status": type(service.status).model_validate(first)})
    later = report(observedAt=LATER, **{"worth": {**sure(1.5), "message": "1.50 times, later"}, **change})
    assert (told(later) != first) is written
