"""The reports of the last round, in memory: the loop writes them, the server reads them."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tandem.metrics.report import ServiceReport

Key = tuple[str, str]
"""Namespace and name of a service."""


@dataclass
class Board:
    """Reports by service. What is older than `keep_seconds` is dropped: it would steer by a world that is gone."""

    keep_seconds: float
    clock: Callable[[], float] = time.monotonic
    rounds: int = 0
    """That were posted."""
    _reports: Mapping[Key, ServiceReport] = field(default_factory=dict)
    _posted_at: float | None = None

    def post(self, reports: Sequence[ServiceReport]) -> None:
        """Replace all reports by those of a round."""
        self._reports = {(report.namespace, report.name): report for report in reports}
        self._posted_at = self.clock()
        self.rounds += 1

    @property
    def age(self) -> float | None:
        """Seconds since the last round; None before the first."""
        return None if self._posted_at is None else self.clock() - self._posted_at

    @property
    def fresh(self) -> bool:
        """Whether there was a round lately."""
        return self.age is not None and self.age <= self.keep_seconds

    def get(self, namespace: str, name: str) -> ServiceReport | None:
        """The report of one service; None where nothing is known of it."""
        return self._reports.get((namespace, name)) if self.fresh else None

    def list(self, namespace: str = "") -> list[ServiceReport]:
        """The reports of a namespace, of all when none is given, by name."""
        found = self._reports.values() if self.fresh else ()
        return sorted((r for r in found if namespace in ("", r.namespace)), key=lambda r: (r.namespace, r.name))
