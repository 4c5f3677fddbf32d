"""The reports as Prometheus series on the process's own `/metrics`: for dashboards, alerts and adapters."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tandem.api import KIND
from tandem.autoscaling import REPLICAS_NEEDED
from tandem.metrics_server.board import Board
from tandem.metrics_server.custom_metrics import METRICS

LABELS = ("namespace", KIND.lower())
"""As the Prometheus adapter maps them to our resource."""
HELP = {
    REPLICAS_NEEDED: "Replicas that the load needs, not rounded; absent: not known",
    "tandem_acceptance_rate": "Accepted share of the draft's tokens",
    "tandem_mean_accepted_length": "Tokens that a step of the target gave on average",
    "tandem_tokens_per_second": "Tokens generated a second",
    "tandem_requests_running": "Sequences being generated",
    "tandem_requests_waiting": "Sequences waiting for a place",
}


class ReportSeries(Collector):
    """One gauge for each metric of the custom metrics API, with the same values; unknown ones are absent."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The series, now."""
        reports = self._board.list()
        for name, value in METRICS.items():
            family = GaugeMetricFamily(name, HELP[name], labels=LABELS)
            for report in reports:
                known = value(report)
                if known is not None:
                    family.add_metric((report.namespace, report.name), known)
            yield family
