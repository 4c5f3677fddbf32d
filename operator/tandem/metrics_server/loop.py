"""The round: every pod is read, every service judged, and the reports go up on the board.

Each replica of the metrics server does all of it by itself; they share nothing, so one is enough to go on.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tandem import counters
from tandem.metrics.capacity.planner import Planner, PlannerOutput
from tandem.metrics.report import ServiceReport
from tandem.metrics.telemetry.figures import Figures
from tandem.metrics.telemetry.source import MetricsSource
from tandem.metrics.telemetry.windows import Store
from tandem.metrics_server.board import Board
from tandem.metrics_server.inventory import Known
from tandem.metrics_server.reports import by_revision, report
from tandem.settings import MetricsServerSettings

log = logging.getLogger(__name__)

STUCK = "sequences run and get no tokens: its engine, or the process that reports it, hangs"


class Discovery(Protocol):
    """What knows services and pods; see `tandem.metrics_server.inventory`."""

    def known(self) -> Sequence[Known]:
        """Services and their pods, now."""


class Loop:
    """Rounds, one after the other."""

    def __init__(
        self,
        discovery: Discovery,
        source: MetricsSource,
        board: Board,
        settings: MetricsServerSettings,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._discovery, self._source, self._board = discovery, source, board
        self._settings, self._clock = settings, clock
        self._store = Store(settings.window_seconds)
        self._planners: dict[str, Planner] = {}

    async def run(self) -> None:
        """Rounds, for ever: one starts every interval, later where one takes longer."""
        while True:
            started = time.monotonic()
            await self.round()
            elapsed = time.monotonic() - started
            counters.ROUND_SECONDS.observe(elapsed)
            await asyncio.sleep(max(0.0, self._settings.interval_seconds - elapsed))

    async def round(self) -> None:
        """Read all pods once, judge, and post."""
        targets = [target for known in self._discovery.known() for target in known.targets]
        problems = await self._source.collect(targets, self._store)
        # Looked at again: reading takes seconds, in which services and pods come and go.
        services = self._discovery.known()
        self._forget(services)
        reports = []
        for known in services:
            reports.append(self._judge(known, problems))
            await asyncio.sleep(0)  # questions are answered meanwhile: a hundred services take a quarter of a second
        self._board.post(reports)

    def _forget(self, services: Sequence[Known]) -> None:
        self._store.keep({target.uid for known in services for target in known.targets})
        uids = {known.service.uid for known in services}
        self._planners = {uid: planner for uid, planner in self._planners.items() if uid in uids}
        reporting = sum(self._store.latest(target.uid) is not None for known in services for target in known.targets)
        every = sum(len(known.targets) for known in services)
        counters.PODS.labels("yes").set(reporting)
        counters.PODS.labels("no").set(every - reporting)

    def _judge(self, known: Known, problems: Mapping[str, str]) -> ServiceReport:
        window = self._settings.window_seconds
        figures = self._store.figures([target.uid for target in known.targets], self._clock(), window)
        problems = {**dict.fromkeys(figures.stuck, STUCK), **problems}
        reasons = [f"{target.name}: {problems[target.uid]}" for target in known.targets if target.uid in problems]
        serving = tuple(sorted({target.revision for target in known.targets if target.revision}))
        made = report(known.service, figures, self._plan(known, figures, serving), window, reasons)
        by_its_pods = by_revision(known.service.spec, self._by_revision(known))
        return made.model_copy(update={"serving": serving, "revisions": by_its_pods})

    def _by_revision(self, known: Known) -> dict[str, Figures]:
        """Figures of each revision's pods, where the specification asks something of them."""
        if known.service.spec.speculation.min_accepted_length is None:
            return {}
        pods = defaultdict[str, list[str]](list)
        for target in known.targets:
            pods[target.revision].append(target.uid)
        at, window = self._clock(), self._settings.window_seconds
        return {revision: self._store.figures(uids, at, window) for revision, uids in pods.items()}

    def _plan(self, known: Known, figures: Figures, serving: tuple[str, ...]) -> PlannerOutput | None:
        service = known.service
        try:
            planner = self._planners.setdefault(service.uid, Planner(service.spec))
            return planner.update(figures, known.replicas, service.spec, serving)
        except Exception:  # a defect at one service must not leave all others without figures
            log.exception("no decision for service %s/%s", service.namespace, service.name)
            # What it remembers may be the cause, and would be of every round to come.
            self._planners.pop(service.uid, None)
            return None
