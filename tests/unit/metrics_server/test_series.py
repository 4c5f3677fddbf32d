"""The series of `/metrics` say what the custom metrics API says."""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics import MetricWrapperBase

from tandem import counters
from tandem.metrics_server import judgements
from tandem.metrics_server.board import Board
from tandem.metrics_server.series import HELP, ReportSeries

from .conftest import report

METRICS = Path(__file__).parents[3] / "docs/reference/metrics.md"


def lines(board: Board) -> list[str]:
    registry = CollectorRegistry()
    registry.register(ReportSeries(board))
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def test_one_series_a_service_and_metric_and_none_where_nothing_is_known() -> None:
    board = Board(120)
    board.post([report(), report("idle", load=None)])
    found = lines(board)
    assert 'tandem_replicas_needed{namespace="team-a",speculativeinferenceservice="llama"} 2.5' in found
    assert not [line for line in found if line.startswith("tandem_replicas_needed") and "idle" in line]
    assert 'tandem_requests_running{namespace="team-a",speculativeinferenceservice="idle"} 12.0' in found
    assert not [line for line in found if line.startswith("tandem_mean_accepted_length")]


def test_old_reports_have_no_series() -> None:
    clock = [0.0]
    board = Board(120, lambda: clock[0])
    board.post([report()])
    clock[0] = 121
    assert lines(board) == []


def test_the_documentation_names_every_series() -> None:
    own = [each for each in vars(counters).values() if isinstance(each, MetricWrapperBase)]
    families = [family for each in own for family in each.collect()]
    made = {f"{family.name}{'_total' if family.type == 'counter' else ''}" for family in families}
    rows = re.findall(r"^\| (`tandem_.*?) \|", METRICS.read_text(encoding="utf-8"), re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`(tandem_\w+)", row)}
    assert told == made | set(HELP) | set(judgements.FAMILIES)
