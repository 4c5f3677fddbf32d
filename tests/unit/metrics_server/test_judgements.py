"""What alerts are made of: series of the metrics server's own, by reports."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from support.services import QUICKSTART, parse
from tandem.metrics.report import ServiceReport
from tandem.metrics.telemetry.figures import Figures, PodFigures
from tandem.metrics_server.judgements import JudgementSeries
from tandem.metrics_server.reports import report

LABELS = 'namespace="team-a",speculativeinferenceservice="llama"'
PODS = {
    f'tandem_service_pods{{{LABELS},state="reporting"}} 2.0',
    f'tandem_service_pods{{{LABELS},state="unknown"}} 1.0',
}


def speedup(source: str, value: float) -> str:
    labels = f'namespace="team-a",source="{source}",speculativeinferenceservice="llama"'
    return f"tandem_speculation_speedup{{{labels}}} {value}"


ROWS: list[tuple[str, dict[str, Any], set[str]]] = [
    ("what is not known has no series", {}, set()),
    ("worth", {"worth": {"speedup": 0.9}}, {speedup("Model", 0.9)}),
    ("worth, by probes", {"worth": {"speedup": 0.9, "source": "Probe"}}, {speedup("Probe", 0.9)}),
    ("a benchmark, where the traffic does not tell", {"benchmarkedSpeedup": 0.8}, {speedup("Benchmark", 0.8)}),
    ("the traffic knows better", {"worth": {"speedup": 1.2}, "benchmarkedSpeedup": 0.8}, {speedup("Model", 1.2)}),
    (
        "drafts that are asked for, and none",
        {"speculation": {"askedLength": 0}},
        {f"tandem_asked_draft_length{{{LABELS}}} 0.0"},
    ),
    ("a minimum", {"minAcceptedLength": 2.5}, {f"tandem_min_accepted_length{{{LABELS}}} 2.5"}),
    (
        "objectives",
        {"objectives": {"timeToFirstToken": 0.5, "queueLength": 4}},
        {
            'tandem_objective_seconds{namespace="team-a",objective="timeToFirstToken",'
            'speculativeinferenceservice="llama"} 0.5',
            'tandem_objective_requests{namespace="team-a",objective="queueLength",'
            'speculativeinferenceservice="llama"} 4.0',
        },
    ),
]


@pytest.mark.parametrize(("reason", "fields", "wanted"), ROWS, ids=[row[0] for row in ROWS])
def test_series(reason: str, fields: dict[str, Any], wanted: set[str]) -> None:
    told = ServiceReport.model_validate(
        {
            **{"namespace": "team-a", "name": "llama", "observedAt": "2026-01-01T00:00:00Z"},
            **{"windowSeconds": 60, "pods": 2, "unknown": 1, **fields},
        }
    )
    registry = CollectorRegistry()
    registry.register(JudgementSeries(lambda: [told]))
    page = generate_latest(registry).decode()
    assert {line for line in page.splitlines() if line and not line.startswith("#")} == wanted | PODS, reason


@pytest.mark.parametrize(
    ("autoscaling", "wanted"),
    [
        (None, {}),
        ({"maxReplicas": 4}, {}),
        (
            {"maxReplicas": 4, "objectives": {"timeToFirstToken": "500ms", "queueLength": 4}},
            {"timeToFirstToken": 0.5, "queueLength": 4},
        ),
        ({"maxReplicas": 4, "objectives": {"interTokenLatency": "0.05s"}}, {"interTokenLatency": 0.05}),
    ],
    ids=["no autoscaling", "no objectives", "a latency, and a queue's length", "seconds"],
)
def test_reports_tell_the_objectives(autoscaling: Any, wanted: dict[str, float]) -> None:
    service = parse(QUICKSTART, autoscaling=autoscaling)
    assert report(service, Figures(at=0.0), None, 60, ()).objectives == wanted


SLOWER, CLOSE = ("False", "Slower"), ("Unknown", "NoClearDifference")
SHOWN: list[tuple[str, str | None, tuple[str, str] | None, float | None]] = [
    # reason, source of status.speculation.speedup 0.8, condition SpeculationBeneficial, wanted
    ("the benchmark says that it loses", "Benchmark", SLOWER, 0.8),
    ("its pairs disagree", "Benchmark", CLOSE, None),
    ("the traffic said it, and may tell anew", "Model", SLOWER, None),
    ("nothing was said", None, None, None),
]


@pytest.mark.parametrize(("reason", "source", "condition", "wanted"), SHOWN, ids=[row[0] for row in SHOWN])
def test_reports_tell_what_status_says_of_a_benchmark(
    reason: str, source: str | None, condition: tuple[str, str] | None, wanted: float | None
) -> None:
    at = "2026-01-01T00:00:00Z"
    status: dict[str, Any] = {}
    if source:
        status["speculation"] = {"speedup": 0.8, "speedupSource": source, "observedAt": at}
    if condition:
        kind = dict(zip(("status", "reason"), condition, strict=True))
        status["conditions"] = [{"type": "SpeculationBeneficial", "message": "", "lastTransitionTime": at, **kind}]
    service = parse(QUICKSTART)
    shown = service.model_copy(update={"status": type(service.status).model_validate(status)})
    assert report(shown, Figures(at=0.0), None, 60, ()).benchmarked_speedup == wanted, reason


LLMAPI = {"runtime": {"mode": "LLMAPI", "profile": "reference"}}
SCHEDULE = [{"maxBatchSize": 4, "draftLen": 4}, {"maxBatchSize": 8, "draftLen": 2}]


def pods(*running: float | None, tokens: float = 100) -> Figures:
    return Figures(0.0, tuple(PodFigures(60, running=each, generation_tokens=tokens) for each in running))


ASKED: list[tuple[str, dict[str, Any], dict[str, Any], Figures, float | None]] = [
    # reason, fields, speculation, figures, wanted
    ("no schedule: at every load", LLMAPI, {}, pods(16.0), 4),
    ("within the second step", LLMAPI, {"draftLenSchedule": SCHEDULE}, pods(6.0), 2),
    ("above the last", LLMAPI, {"draftLenSchedule": SCHEDULE}, pods(9.0), 0),
    ("of one pod: the least", LLMAPI, {"draftLenSchedule": SCHEDULE}, pods(1.0, 9.0), 0),
    ("above the limit", LLMAPI, {"maxConcurrency": 2}, pods(3.0), 0),
    ("a pod without traffic asks for nothing", LLMAPI, {}, pods(0.0, tokens=0), None),
    ("a pod that does not tell", LLMAPI, {}, pods(None), None),
    ("mode BLS: pods and requests choose", {}, {}, pods(1.0), None),
]


@pytest.mark.parametrize(
    ("reason", "fields", "speculation", "figures", "wanted"), ASKED, ids=[row[0] for row in ASKED]
)
def test_reports_tell_what_is_asked_for(
    reason: str, fields: dict[str, Any], speculation: dict[str, Any], figures: Figures, wanted: float | None
) -> None:
    drafts = {"decodingType": "DraftTarget", "maxDraftLen": 4, **speculation}
    service = parse(QUICKSTART, **fields, speculation=drafts)
    assert report(service, figures, None, 60, ()).speculation.asked_length == wanted, reason
