"""`tandem conformance` without its command line: the service, its cases, the report, the exit code."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from rich.console import Console

import tandem
from tandem import names
from tandem.api import ports
from tandem.api.wire import Object
from tandem.client.conformance import facts
from tandem.client.conformance.cases import CASES, failed
from tandem.client.conformance.cluster import Cluster, reach, within
from tandem.client.conformance.report import Report, as_json, lines
from tandem.client.conformance.results import CaseResult, broke, not_applicable
from tandem.client.conformance.soak import soak
from tandem.client.conformance.subject import Alone, Subject
from tandem.client.conformance.watch import Watch, health
from tandem.client.generate.app import EXIT_FAILED, Endpoint, connect, until_signal
from tandem.client.generate.client import TritonClient
from tandem.client.generate.cluster import read_service
from tandem.client.generate.errors import ServerError
from tandem.client.generate.view import Progress, stdout_console
from tandem.client.kubectl import ClusterError
from tandem.errors import TandemError

STDOUT = Path("-")


@dataclass(frozen=True)
class ConformancePlan:
    """What to try: completions of `max_tokens`, then the mix for so many minutes. `against`: who answers by the
    target alone where the service cannot; `report`: where the JSON goes, `-`: to standard output, instead of the
    lines. `cases`: names in `CASES`."""

    max_tokens: int
    minutes: float
    report: Path | None = None
    against: Endpoint | None = None
    cases: tuple[str, ...] = tuple(CASES)


def conformance(target: Endpoint, plan: ConformancePlan, *, no_color: bool) -> int:
    """Run a plan and write its report, as far as it came; returns the exit code. Signals end it.

    Raises:
        TandemError: the service or its server cannot be reached, or the report cannot be written.
    """
    progress = Progress(Console(stderr=True, soft_wrap=True))
    report = Report(tandem.__version__, datetime.now(UTC).isoformat(timespec="seconds"), plan.minutes)
    begun = time.monotonic()
    try:
        code = asyncio.run(until_signal(_run(target, plan, report, progress)))
    finally:
        progress.close()
        report.seconds = time.monotonic() - begun
        if report.complete:
            _write(report, plan.report, no_color)
    return code


def _write(report: Report, file: Path | None, no_color: bool) -> None:
    if file == STDOUT:
        sys.stdout.write(as_json(report))
        return
    console = stdout_console(no_color)
    for line in lines(report):
        console.print(line, soft_wrap=True, highlight=False)
    if file:
        file.write_text(as_json(report), encoding="utf-8")
        console.print(f"report: {file}", soft_wrap=True, highlight=False, markup=False)


async def _run(target: Endpoint, plan: ConformancePlan, report: Report, progress: Progress) -> int:
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(_server(target, progress))
        await server.check()
        # Only now, when the service is Ready, do its pods show all that the report has.
        watch = await stack.enter_async_context(_watch(target, report)) if target.name else None
        report.about.setdefault("versions", {})["triton"] = await server.version()
        subject = await _subject(server, plan, stack, progress)
        if watch:
            subject.running = watch.running
            await watch.look()
        await _cases(_tried(subject, plan, watch, progress), report, progress)
    return EXIT_FAILED if broke(report.results) else 0


@contextlib.asynccontextmanager
async def _watch(target: Endpoint, report: Report) -> AsyncIterator[Watch]:
    async with reach(target.name, target.namespace) as cluster:
        service = await cluster.service()
        await _describe(cluster, service, report)
        yield Watch(cluster, service)


async def _describe(cluster: Cluster, service: Object, report: Report) -> None:
    pods = await cluster.pods(service)
    report.about |= {"service": facts.of_service(service), "pods": facts.of_pods(pods), "notRead": []}
    nodes = sorted({pod["spec"].get("nodeName", "") for pod in pods} - {""})
    try:
        report.about["node"] = facts.of_node(await cluster.node(nodes[0])) if nodes else {}
    except TandemError as error:
        report.about["notRead"].append("the node")
        _note(error)
    try:
        version = await cluster.engine_version(pods[0]) if pods else ""
    except TandemError as error:
        report.about["notRead"].append("TensorRT-LLM's version in the image")
        version = ""
        _note(error)
    report.about["versions"] = {"tensorrtLlm": version}


@contextlib.asynccontextmanager
async def _server(target: Endpoint, progress: Progress) -> AsyncIterator[TritonClient]:
    """A service's server: from within the cluster by its own name, else as other commands reach it."""
    if target.url or not within():
        async with connect(target, progress) as server:
            yield server
        return
    async with reach(target.name, target.namespace) as cluster:
        found = read_service(await cluster.service())
    if found.problem:
        raise ClusterError(f"no server of {found.namespace}/{found.name} answers: {found.problem}")
    url = f"{names.endpoint(found.name)}.{found.namespace}.svc:{ports.GRPC}"
    async with connect(Endpoint(url=url), progress) as server:
        yield server


async def _subject(
    server: TritonClient, plan: ConformancePlan, stack: contextlib.AsyncExitStack, progress: Progress
) -> Subject:
    async def unknown() -> None:
        return None

    made = Subject(server, plan.max_tokens, unknown, None, refused=await server.refused_parameters())
    if plan.against is not None:
        other = await stack.enter_async_context(_server(plan.against, progress))
        await other.check()
        made.alone = Alone(other, None if await other.drafts_fixed() else 0)
    elif why := await server.drafts_fixed():
        made.why_not = f"it serves {why}: give --against a service of decodingType None that is otherwise the same"
    else:
        made.alone = Alone(server, 0)
    return made


Tried = dict[str, Callable[[], Awaitable[CaseResult]]]


def _tried(subject: Subject, plan: ConformancePlan, watch: Watch | None, progress: Progress) -> Tried:
    async def look() -> None:
        if watch:
            await watch.look()

    async def healthy() -> CaseResult:
        if watch is None:
            return not_applicable("health", "pods are not known by a URL: give the service's name")
        await watch.look()
        if error := watch.moments[-1].error:
            _note(error)
        return health(watch.moments)

    tried: Tried = {name: partial(case, subject) for name, case in CASES.items() if name in plan.cases}
    if plan.minutes:
        tried["soak"] = partial(soak, subject, plan.minutes, look, progress)
    tried["health"] = healthy
    return tried


async def _cases(tried: Tried, report: Report, progress: Progress) -> None:
    gone = ""
    for number, (name, case) in enumerate(tried.items(), 1):
        progress(f"{number} of {len(tried)}: {name}")
        if gone and name != "health":
            report.results.append(not_applicable(name, f"not tried: {gone}"))
            continue
        try:
            report.results.append(await case())
        except TandemError as error:
            lost = isinstance(error, ServerError)
            gone = "the server does not answer any more" if lost else ""
            report.results.append(failed(name, gone or "the cluster could not be read"))
            _note(error)
    progress("")


def _note(error: TandemError) -> None:
    """Show an error, which may hold the user's own names, where it does not get into the report."""
    Console(stderr=True, soft_wrap=True).print(f"note: {error}", highlight=False, markup=False)
