"""What the metrics server alone knows of services, as Prometheus series for alerts and dashboards.

Labels `namespace` and `speculativeinferenceservice` are the service's: scrape them with honorLabels.
"""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tandem.api import KIND
from tandem.metrics.report import QUEUE_LENGTH, ServiceReport

LABELS = ("namespace", KIND.lower())
FAMILIES = {
    "tandem_speculation_speedup": "Tokens a second relative to the target alone, at the same load, by source",
    "tandem_asked_draft_length": "Draft tokens a step by the specification at the present load",
    "tandem_min_accepted_length": "Tokens that a step of the target must give on average, by the specification",
    "tandem_service_pods": "Ready pods, by whether they report metrics",
    "tandem_objective_seconds": "What autoscaling is to keep",
    "tandem_objective_requests": "What autoscaling is to keep: requests that wait for each replica",
}
FURTHER_LABELS = {
    "tandem_speculation_speedup": ("source",),
    "tandem_service_pods": ("state",),
    "tandem_objective_seconds": ("objective",),
    "tandem_objective_requests": ("objective",),
}


class JudgementSeries(Collector):
    """Collects from the reports that `reports` gives at each scrape. What is not known has no series."""

    def __init__(self, reports: Callable[[], Iterable[ServiceReport]]) -> None:
        self._reports = reports

    def collect(self) -> Iterator[Metric]:
        """The families, each with all of its series."""
        families = {
            name: GaugeMetricFamily(name, text, labels=[*LABELS, *FURTHER_LABELS.get(name, ())])
            for name, text in FAMILIES.items()
        }
        for report in self._reports():
            for name, further, value in _series(report):
                families[name].add_metric([report.namespace, report.name, *further], value)
        yield from families.values()


def _series(report: ServiceReport) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Family, further label values, and value."""
    yield "tandem_service_pods", ("reporting",), report.pods
    yield "tandem_service_pods", ("unknown",), report.unknown
    if report.worth.speedup is not None:
        yield "tandem_speculation_speedup", (report.worth.source,), report.worth.speedup
    elif report.benchmarked_speedup is not None:
        yield "tandem_speculation_speedup", ("Benchmark",), report.benchmarked_speedup
    if report.speculation.asked_length is not None:
        yield "tandem_asked_draft_length", (), report.speculation.asked_length
    if report.min_accepted_length is not None:
        yield "tandem_min_accepted_length", (), report.min_accepted_length
    for objective, value in report.objectives.items():
        unit = "requests" if objective == QUEUE_LENGTH else "seconds"
        yield f"tandem_objective_{unit}", (objective,), value
