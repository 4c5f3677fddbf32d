"""Inventory, rounds and board, wired together: what the metrics server serves, and what an operator without one reads
itself."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import REGISTRY

from tandem.cluster.client import Api
from tandem.metrics.telemetry.prometheus import PrometheusSource
from tandem.metrics.telemetry.scrape import ScrapeLimits, Scraper
from tandem.metrics_server.board import Board
from tandem.metrics_server.inventory import Inventory, Known
from tandem.metrics_server.judgements import JudgementSeries
from tandem.metrics_server.loop import Loop
from tandem.metrics_server.series import ReportSeries
from tandem.settings import MetricsServerSettings, Settings

SPREAD = 2 / 3
"""Share of a round over which pods are read: the rest is for those that take their time."""
READINGS = 2
"""Rounds until there are figures: a new pod does not take the place of one that has them before."""


def source(settings: MetricsServerSettings) -> Scraper | PrometheusSource:
    """What reads the pods' metrics: a Prometheus where one is named, else this process."""
    if settings.prometheus_url:
        return PrometheusSource(settings.prometheus_url, settings.prometheus)
    return Scraper(ScrapeLimits(spread_seconds=settings.interval_seconds * SPREAD))


class Rounds:
    """Reads all pods at the settings' interval, and keeps the reports of the last round."""

    def __init__(self, api: Api, settings: Settings) -> None:
        self._settings = settings.metrics_server
        self._inventory = Inventory(api, settings.scopes)
        self.board = Board(keep_seconds=2 * self._settings.window_seconds)

    def known(self) -> list[Known]:
        """The services, with their pods."""
        return self._inventory.known()

    async def run(self) -> None:
        """Run until cancelled; the reports are series of the process's own `/metrics` meanwhile."""
        with self._series():
            async with source(self._settings) as read, asyncio.TaskGroup() as group:
                group.create_task(self._inventory.run())
                await self._inventory.listed()
                await Loop(self._inventory, read, self.board, self._settings).run()

    @contextmanager
    def _series(self) -> Iterator[None]:
        series = (ReportSeries(self.board), JudgementSeries(self.board.list))
        for each in series:
            REGISTRY.register(each)
        try:
            yield
        finally:
            for each in series:
                REGISTRY.unregister(each)

    def not_ready(self) -> str:
        """Why there are no figures now; empty when there are."""
        if self._inventory.problem:
            return self._inventory.problem
        if not self.board.fresh:
            return "the last round is too long ago"
        # One reading of counters has no rates: clients would read that no pod reports metrics.
        return "" if self.board.rounds >= READINGS else "pods were read once: figures need two readings"
