"""Reading the reports of the metrics server (`tandem metrics run`): all services in one request, kept in memory.

An operator that is not allowed what a metrics server needs reads the pods itself (`reports.fromPods`), by the same
rounds.
"""

import asyncio
import logging
import random
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp
from pydantic import JsonValue, ValidationError

from tandem.api.wire import Wire
from tandem.conditions.writes import Reading, ShownReport, update
from tandem.metrics.report import ServiceReport
from tandem.metrics_server.rounds import Rounds
from tandem.settings import ReportsSettings

log = logging.getLogger(__name__)

TIMEOUT = aiohttp.ClientTimeout(total=10)
MOST_BYTES = 64 << 20
SILENT_SECONDS = 60.0
"""A server that is silent for so long is a problem; before that it may be a restart."""


RESTART_SECONDS = 30.0
"""Until rounds that ended by a defect begin anew: services are reconciled meanwhile."""


class ReportsError(Exception):
    """The reports could not be read; the message says why."""


class ReportReader:
    """Reads at an interval, and calls `on_change` with namespace and name of a service whose status is to change."""

    def __init__(
        self,
        settings: ReportsSettings,
        on_change: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
        rounds: Rounds | None = None,
    ) -> None:
        self._settings = settings
        self._rounds = rounds
        self._on_change = on_change
        self._clock = clock
        self._shown: dict[tuple[str, str], ShownReport] = {}
        self._asking: set[tuple[str, str]] = set()
        """Services that asked since a problem last began or ended: their status shows it, report or not."""
        self._answered_at = clock()
        self._problem = ""
        self._answered = False

    def reading(self, namespace: str, name: str, uid: str) -> Reading | None:
        """What was read of a service; None where no metrics server is set up. Without a report for one that was
        deleted and made again, until the server reports the new one."""
        if not (self._settings.url or self._rounds):
            return None
        self._asking.add((namespace, name))
        shown = self._shown.get((namespace, name))
        if shown is None or shown.report.uid not in ("", uid):
            return Reading(answered=self._answered, problem=self._problem)
        return Reading(shown.report, shown.idle, self._answered, shown.standings, self._problem, shown.blind)

    def forget(self, namespace: str, name: str) -> None:
        """A service is gone: it does not ask any more."""
        self._asking.discard((namespace, name))

    async def run(self) -> None:
        """Read at the settings' interval, for ever; nothing where no server is set up."""
        while self._settings.url or self._rounds:
            await self.read()
            await asyncio.sleep(self._settings.poll_seconds * random.uniform(0.9, 1.1))

    async def run_rounds(self) -> None:
        """Read the pods here, for ever; nothing where a metrics server does."""
        while self._rounds:
            try:
                await self._rounds.run()
            except Exception:  # no figures are better than no operator
                log.exception("reading the pods' metrics again in %.0f s", RESTART_SECONDS)
            await asyncio.sleep(RESTART_SECONDS)

    async def read(self) -> None:
        """Read once. What goes wrong is a problem once it lasts."""
        try:
            reports = await self._ask()
        except ReportsError as error:
            silent = self._clock() - self._answered_at
            log.info("no reports for %.0f s: %s", silent, error)
            if silent >= SILENT_SECONDS:
                self._set_problem(f"no reports from {self._settings.url or 'the pods'}: {error}")
            return
        self._answered_at, self._answered = self._clock(), True
        self._set_problem("")
        self._note(*reports)

    def _note(self, reports: list[ServiceReport], unread: int) -> None:
        known = {(report.namespace, report.name): report for report in reports}
        # It is not known of which service a report is that could not be read: any that is shown may be its.
        for key in self._shown.keys() - known.keys() if not unread else ():
            del self._shown[key]
        for key, report in known.items():
            before = self._shown.get(key)
            self._shown[key] = now = update(before, report, self._clock())
            if now != before:
                self._on_change(*key)

    def _set_problem(self, problem: str) -> None:
        changed = bool(problem) != bool(self._problem)
        if changed:
            self._problem = problem  # the first message stays: another would be a write without need
            for key in self._asking | self._shown.keys():
                self._on_change(*key)
            self._asking.clear()

    async def _ask(self) -> tuple[list[ServiceReport], int]:
        """The reports that can be read, and how many cannot. Raises ReportsError."""
        if self._rounds:
            if problem := self._rounds.not_ready():
                raise ReportsError(problem)
            return self._rounds.board.list(), 0
        url = f"{self._settings.url.rstrip('/')}/v1/services"
        try:
            headers, connector = self._authorization(), aiohttp.TCPConnector(ssl=self._trust())
            async with (
                aiohttp.ClientSession(connector=connector, timeout=TIMEOUT) as session,
                session.get(url, headers=headers, allow_redirects=False) as reply,
            ):
                body = await _bounded(reply.content)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ReportsError(str(error) or type(error).__name__) from error
        if reply.status == 401 and not headers:
            raise ReportsError("401: it needs a token: write reports.tokenFile into the operator's settings")
        if reply.status != 200:
            raise ReportsError(f"{reply.status}: {body[:200].decode('utf-8', 'replace').strip()}")
        return await asyncio.to_thread(_read, body)  # of thousands of services it takes a second

    def _trust(self) -> ssl.SSLContext | bool:
        # Read each time: the authority may be renewed.
        return ssl.create_default_context(cafile=self._settings.ca_file) if self._settings.ca_file else True

    def _authorization(self) -> dict[str, str]:
        # Read each time, since the kubelet renews it; for this server's audience alone.
        if not self._settings.token_file:
            return {}
        token = Path(self._settings.token_file).read_text(encoding="utf-8").strip()
        return {"Authorization": f"Bearer {token}"}


class _Items(Wire):
    """`Reports`, each parsed by itself: one that cannot be read must not hide the others."""

    items: tuple[JsonValue, ...]


def _read(body: bytes) -> tuple[list[ServiceReport], int]:
    reports, problems = [], []
    try:
        items = _Items.model_validate_json(body).items
    except ValidationError as error:
        raise ReportsError(f"its answer cannot be parsed: {_first(error)}") from error
    for item in items:
        try:
            reports.append(ServiceReport.model_validate(item))
        except ValidationError as error:
            problems.append(_first(error))
    if problems and not reports:
        raise ReportsError(f"its answer cannot be parsed: {problems[0]}")
    if problems:
        log.warning("%d of %d reports cannot be read: %s", len(problems), len(items), problems[0])
    return reports, len(problems)


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


async def _bounded(stream: aiohttp.StreamReader) -> bytes:
    body = bytearray()
    async for chunk in stream.iter_any():
        body += chunk
        if len(body) > MOST_BYTES:
            raise ReportsError(f"the answer is longer than {MOST_BYTES >> 20} MiB")
    return bytes(body)
