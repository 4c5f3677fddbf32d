"""Reading the reports of the metrics server (`tandem metrics run`): all services in one request, kept in memory."""

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
from tandem.conditions.writes import News, Telling, tell
from tandem.metrics.report import ServiceReport
from tandem.settings import ReportsSettings

log = logging.getLogger(__name__)

TIMEOUT = aiohttp.ClientTimeout(total=10)
MOST_BYTES = 64 << 20
SILENT_SECONDS = 60.0
"""A server that is silent for so long is a problem; before that it may be a restart."""


class ReportsError(Exception):
    """The server gave no reports; the message says why."""


class ReportReader:
    """Asks again and again, and calls `on_news` with namespace and name of a service whose status is to change."""

    def __init__(
        self,
        settings: ReportsSettings,
        on_news: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._on_news = on_news
        self._clock = clock
        self._told: dict[tuple[str, str], Telling] = {}
        self._asking: set[tuple[str, str]] = set()
        """Services that asked since a problem came or went last: their status speaks of it, report or not."""
        self._answered_at = clock()
        self._problem = ""
        self._asked = False

    def news(self, namespace: str, name: str, uid: str) -> News | None:
        """What is known of a service; None where no metrics server is set up. Of one that was deleted and made anew
        nothing is known until the server tells of the new one."""
        if not self._settings.url:
            return None
        self._asking.add((namespace, name))
        told = self._told.get((namespace, name))
        if told is None or told.report.uid not in ("", uid):
            return News(asked=self._asked, problem=self._problem)
        return News(told.report, told.idle, self._asked, self._problem)

    def forget(self, namespace: str, name: str) -> None:
        """A service is gone: nobody asks for it any more."""
        self._asking.discard((namespace, name))

    async def run(self) -> None:
        """Read at the settings' interval, for ever; nothing where no server is set up."""
        while self._settings.url:
            await self.read()
            await asyncio.sleep(self._settings.poll_seconds * random.uniform(0.9, 1.1))

    async def read(self) -> None:
        """Read once. What goes wrong is kept as a problem, and told when it lasts."""
        try:
            reports = await self._ask()
        except ReportsError as error:
            silent = self._clock() - self._answered_at
            log.info("no reports for %.0f s: %s", silent, error)
            if silent >= SILENT_SECONDS:
                self._set_problem(f"{self._settings.url} does not answer: {error}")
            return
        self._answered_at, self._asked = self._clock(), True
        self._set_problem("")
        self._note(*reports)

    def _note(self, reports: list[ServiceReport], unread: int) -> None:
        known = {(report.namespace, report.name): report for report in reports}
        # Of which service one is that could not be read is not known: what was told of any may be of that one.
        for key in self._told.keys() - known.keys() if not unread else ():
            del self._told[key]
        for key, report in known.items():
            before = self._told.get(key)
            self._told[key] = now = tell(before, report, self._clock())
            if now != before:
                self._on_news(*key)

    def _set_problem(self, problem: str) -> None:
        changed = bool(problem) != bool(self._problem)
        if changed:
            self._problem = problem  # the first words stay: others would be a write for nothing
            for key in self._asking | self._told.keys():
                self._on_news(*key)
            self._asking.clear()

    async def _ask(self) -> tuple[list[ServiceReport], int]:
        """The reports that can be read, and how many cannot. Raises ReportsError."""
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
            raise ReportsError("401: it wants to know who asks: write reports.tokenFile into the operator's settings")
        if reply.status != 200:
            raise ReportsError(f"{reply.status}: {body[:200].decode('utf-8', 'replace').strip()}")
        return await asyncio.to_thread(_read, body)  # of thousands of services it takes a second

    def _trust(self) -> ssl.SSLContext | bool:
        # Read anew each time: the authority may be renewed.
        return ssl.create_default_context(cafile=self._settings.ca_file) if self._settings.ca_file else True

    def _authorization(self) -> dict[str, str]:
        # Read anew each time, since the kubelet renews it; for this server's audience alone.
        if not self._settings.token_file:
            return {}
        token = Path(self._settings.token_file).read_text(encoding="utf-8").strip()
        return {"Authorization": f"Bearer {token}"}


class _Items(Wire):
    """`Reports`, of which each is looked at by itself: what one says must not hide all others."""

    items: tuple[JsonValue, ...]


def _read(body: bytes) -> tuple[list[ServiceReport], int]:
    reports, problems = [], []
    try:
        items = _Items.model_validate_json(body).items
    except ValidationError as error:
        raise ReportsError(f"what it says are no reports: {_first(error)}") from error
    for item in items:
        try:
            reports.append(ServiceReport.model_validate(item))
        except ValidationError as error:
            problems.append(_first(error))
    if problems and not reports:
        raise ReportsError(f"what it says are no reports: {problems[0]}")
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
