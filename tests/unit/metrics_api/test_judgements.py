"""What alerts are made of: series of the metrics server's own, by reports."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tandem.metrics_api.judgements import JudgementSeries
from tandem.metrics_api.reports import report
from tandem.report import ServiceReport
from tandem.telemetry.figures import Figures
from unit.operator.conftest import QUICKSTART, parse

LABELS = 'namespace="team-a",speculativeinferenceservice="llama"'
PODS = {
    f'tandem_service_pods{{{LABELS},state="told"}} 2.0',
    f'tandem_service_pods{{{LABELS},state="unknown"}} 1.0',
}
ROWS: list[tuple[str, dict[str, Any], set[str]]] = [
    ("what is not known has no series", {}, set()),
    ("worth", {"worth": {"speedup": 0.9}}, {f"tandem_speculation_speedup{{{LABELS}}} 0.9"}),
    (
        "objectives",
        {"objectives": {"timeToFirstToken": 0.5}},
        {
            'tandem_objective_seconds{namespace="team-a",objective="timeToFirstToken",'
            'speculativeinferenceservice="llama"} 0.5'
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
            {"timeToFirstToken": 0.5},
        ),
        ({"maxReplicas": 4, "objectives": {"interTokenLatency": "0.05s"}}, {"interTokenLatency": 0.05}),
    ],
    ids=["no autoscaling", "no objectives", "a latency, and a length, which is none", "seconds"],
)
def test_reports_tell_the_objectives(autoscaling: Any, wanted: dict[str, float]) -> None:
    service = parse(QUICKSTART, autoscaling=autoscaling)
    assert report(service, Figures(at=0.0), None, 60, ()).objectives == wanted
