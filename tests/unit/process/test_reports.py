"""Reading the metrics server: what counts as an answer, what is asked for, and when silence is told."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from support.reports import report
from tandem.conditions.writes import Reading
from tandem.metrics_server.certificates import renewed, utc_now
from tandem.metrics_server.rounds import READINGS, Rounds
from tandem.process import reports
from tandem.process.reconcile import Key, Next, Reconciler
from tandem.process.reports import SILENT_SECONDS, ReportReader
from tandem.settings import ReportsSettings, Settings

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
LLAMA = ("team-a", "llama")
UID = "uid-1"


@dataclass
class Server:
    """A stand-in for the metrics server: answers as a test says, and keeps what it was asked."""

    url: str = ""
    answer: Handler | None = None
    asked: list[web.Request] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        assert self.answer
        return await self.answer(request)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    app = web.Application()
    app.router.add_get("/{path:.*}", made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Reader:
    """The reader, its clock, and what it told."""

    server: Server
    token_file: Path | None
    clock: Clock = field(default_factory=Clock)
    told: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = ReportsSettings(url=self.server.url, token_file=str(self.token_file or ""))
        self.reader = ReportReader(settings, lambda *key: self.told.append(key), self.clock)

    async def read(self, at: float, answer: Handler) -> list[tuple[str, str]]:
        """Read at a time; the services that were told of."""
        self.server.answer, self.clock.now, self.told = answer, at, []
        await self.reader.read()
        return self.told


@pytest.fixture
def reader(server: Server, tmp_path: Path) -> Reader:
    (tmp_path / "token").write_text("first\n", encoding="utf-8")
    return Reader(server, tmp_path / "token")


def says(body: Any, status: int = 200) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(text=text, status=status, content_type="application/json")

    return answer


def items(**changes: Any) -> Handler:
    return says({"items": [report(**changes).model_dump(by_alias=True)]})


async def test_a_service_is_told_when_its_figures_change(reader: Reader) -> None:
    assert await reader.read(0, items()) == [LLAMA]
    assert await reader.read(60, items()) == []
    assert await reader.read(120, items(speculation={"acceptanceRate": 0.2})) == [LLAMA]
    reading = reader.reader.reading(*LLAMA, UID)
    assert reading is not None
    assert reading.report is not None
    assert reading.report.speculation.acceptance_rate == 0.2
    assert await reader.read(180, says({"items": []})) == []
    assert reader.reader.reading(*LLAMA, UID) == Reading(), "a service that is gone is forgotten"


async def test_the_figures_of_a_deleted_service_are_not_those_of_its_successor(reader: Reader) -> None:
    await reader.read(0, items(uid=UID))
    assert reader.reader.reading(*LLAMA, "uid-2") == Reading(), "it was made since the server was asked"
    assert await reader.read(15, items(uid="uid-2", speculation={"acceptanceRate": 0.2})) == [LLAMA]
    reading = reader.reader.reading(*LLAMA, "uid-2")
    assert reading is not None
    assert reading.report is not None
    assert reading.report.speculation.acceptance_rate == 0.2


async def test_one_request_for_all_with_the_token_of_the_settings(reader: Reader, server: Server) -> None:
    assert reader.token_file
    await reader.read(0, items())
    reader.token_file.write_text("second\n", encoding="utf-8")
    await reader.read(15, items())
    assert [(r.path, r.headers["Authorization"]) for r in server.asked] == [
        ("/v1/services", "Bearer first"),
        ("/v1/services", "Bearer second"),
    ], "tokens are renewed"


async def test_without_a_token_what_is_missing_is_said(server: Server) -> None:
    """As out of the cluster. The account's own token would open the API server: no file but the settings' is read."""
    reader = Reader(server, None)
    await reader.read(SILENT_SECONDS, says("who are you?", 401))
    assert [r.headers.get("Authorization") for r in server.asked] == [None]
    reading = reader.reader.reading(*LLAMA, UID)
    assert reading is not None
    assert "write reports.tokenFile into the operator's settings" in reading.problem


async def test_a_token_that_is_not_there_is_named(reader: Reader, server: Server) -> None:
    assert reader.token_file
    reader.token_file.unlink()
    await reader.read(SILENT_SECONDS, items())
    reading = reader.reader.reading(*LLAMA, UID)
    assert reading is not None
    assert str(reader.token_file) in reading.problem
    assert not server.asked


async def test_a_report_that_cannot_be_read_hides_no_other(reader: Reader) -> None:
    """Of a metrics server that is newer, say. What was told of the one stays."""
    odd = report(name="odd").model_dump(by_alias=True)
    one = report().model_dump(by_alias=True)
    assert await reader.read(0, says({"items": [one, odd]})) == [LLAMA, ("team-a", "odd")]
    odd["decision"]["signal"] = "OfTomorrow"
    one["speculation"]["acceptanceRate"] = 0.2
    assert await reader.read(120, says({"items": [one, odd]})) == [LLAMA]
    reading = reader.reader.reading("team-a", "odd", UID)
    assert reading is not None
    assert reading.report == report(name="odd")
    assert not reading.problem


async def elsewhere(_: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("/elsewhere")


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" " * 65536)


NO_REPORTS: list[tuple[str, Handler, str]] = [
    ("refused", says("who are you?", 401), "401: who are you?"),
    ("no JSON", says("<html>"), "cannot be parsed"),
    ("something else", says({"items": [{"name": "x"}]}), "cannot be parsed"),
    ("a redirect is not followed", elsewhere, "302"),
    ("without an end", endless, "longer than"),
]


@pytest.mark.parametrize(("reason", "answer", "said"), NO_REPORTS, ids=[row[0] for row in NO_REPORTS])
async def test_what_is_no_answer(
    reason: str, answer: Handler, said: str, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "MOST_BYTES", 1 << 20)
    await reader.read(0, items())
    assert await reader.read(15, answer) == [], "it may be a restart"
    assert await reader.read(SILENT_SECONDS, answer) == [LLAMA], "it is told, once"
    assert await reader.read(SILENT_SECONDS + 15, answer) == []
    reading = reader.reader.reading(*LLAMA, UID)
    assert reading is not None
    assert said in reading.problem, reason
    assert reading.report == report(), "the figures age"
    assert await reader.read(SILENT_SECONDS + 30, items()) == [LLAMA], "it is back"


async def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    reader = Reader(Server(url="http://127.0.0.1:9"), tmp_path / "token")
    await reader.read(SILENT_SECONDS, items())
    reading = reader.reader.reading(*LLAMA, UID)
    assert reading is not None
    assert "no reports from http://127.0.0.1:9: " in reading.problem


@pytest.mark.parametrize(
    ("trusts", "problem"),
    [
        ("its authority", ""),
        ("another authority", "CERTIFICATE_VERIFY_FAILED"),
        ("the system", "CERTIFICATE_VERIFY_FAILED"),
    ],
)
async def test_the_server_s_certificate_is_looked_at(trusts: str, problem: str, tmp_path: Path) -> None:
    own, another = (renewed(None, ["localhost"], utc_now()) for _ in range(2))
    assert own
    assert another
    authority = tmp_path / "ca.crt"
    authority.write_bytes((own if trusts == "its authority" else another).authorities)
    app = web.Application()
    app.router.add_get("/v1/services", says({"items": []}))
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=own.context("")).start()
    settings = ReportsSettings(
        url=f"https://localhost:{runner.addresses[0][1]}", ca_file="" if trusts == "the system" else str(authority)
    )
    clock = Clock()
    reader = ReportReader(settings, lambda *_: None, clock)
    clock.now = SILENT_SECONDS
    await reader.read()
    reading = reader.reading(*LLAMA, UID)
    await runner.cleanup()
    assert reading
    assert problem in reading.problem
    assert bool(reading.problem) == bool(problem)


async def test_a_service_without_a_report_is_told_of_silence_too(reader: Reader) -> None:
    """After a restart of the operator there is none yet, and status says that all is well."""
    gone = says("gone", 503)
    assert reader.reader.reading(*LLAMA, UID) == Reading(answered=False)
    assert await reader.read(SILENT_SECONDS, gone) == [LLAMA]
    assert await reader.read(SILENT_SECONDS + 15, gone) == [], "once"
    assert reader.reader.reading(*LLAMA, UID) != Reading(answered=False)
    assert await reader.read(SILENT_SECONDS + 30, says({"items": []})) == [LLAMA], "and when it is over"
    await reader.read(2 * SILENT_SECONDS + 30, gone)
    assert await reader.read(2 * SILENT_SECONDS + 45, says({"items": []})) == [], "nobody has asked since: it is gone"


async def test_without_a_metrics_server_the_reports_are_those_of_the_operators_own_rounds() -> None:
    rounds, clock, changed = Rounds(None, Settings()), Clock(), list[tuple[str, str]]()  # type: ignore[arg-type]
    reader = ReportReader(ReportsSettings(from_pods=True), lambda *key: changed.append(key), clock, rounds=rounds)
    await reader.read()
    assert reader.reading(*LLAMA, UID) == Reading(answered=False), "pods are being listed"
    clock.now = SILENT_SECONDS
    await reader.read()
    reading = reader.reading(*LLAMA, UID)
    assert reading
    assert reading.problem == "no reports from the pods: services and pods are being listed"
    for reflector in rounds._inventory._all:
        reflector.listed.set()
    changed.clear()
    for _ in range(READINGS):
        rounds.board.post([report()])
        await reader.read()
    assert set(changed) == {LLAMA}
    reading = reader.reading(*LLAMA, UID)
    assert reading
    assert (reading.report, reading.problem) == (report(), "")


async def test_rounds_that_end_by_a_defect_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "RESTART_SECONDS", 0.0)
    rounds, begun, enough = Rounds(None, Settings()), list[int](), asyncio.Event()  # type: ignore[arg-type]

    async def run() -> None:
        begun.append(1)
        if len(begun) == 3:
            enough.set()
            await asyncio.Event().wait()
        raise AssertionError("a defect")

    monkeypatch.setattr(rounds, "run", run)
    reader = ReportReader(ReportsSettings(from_pods=True), lambda *_: None, rounds=rounds)
    async with asyncio.timeout(60):
        running = asyncio.create_task(reader.run_rounds())
        await enough.wait()
    running.cancel()


class EmptyApi:
    """Knows no object."""

    async def get(self, *_: object) -> None:
        return None


async def test_a_service_that_is_gone_is_not_remembered(reader: Reader, settings: Settings) -> None:
    """Thousands may come and go while the metrics server is well."""
    reconciler = Reconciler(EmptyApi(), settings, None, reader.reader)  # type: ignore[arg-type]
    reader.reader.reading(*LLAMA, UID)
    assert await reconciler.reconcile(Key(*LLAMA)) is Next.EVENT
    assert await reader.read(SILENT_SECONDS, says("gone", 503)) == []


async def test_without_a_server_nothing_is_said_or_done(tmp_path: Path) -> None:
    reader = Reader(Server(), tmp_path / "token").reader
    await reader.run()
    assert reader.reading(*LLAMA, UID) is None
