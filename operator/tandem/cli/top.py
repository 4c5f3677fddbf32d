"""`tandem top`: a table of services, the busiest first."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import compress
from typing import Any

from rich import box
from rich.console import Console, JustifyMethod
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tandem.api import GROUP, PLURAL
from tandem.api.conditions import ConditionType, ServingReason
from tandem.api.types import SpeculativeInferenceService
from tandem.cli.output import Format, write_object
from tandem.cli.services import none_here, summary
from tandem.cli.services import read as services_of
from tandem.cli.words import NONE, age, factor, now, number, percent, quantity
from tandem.client import kubectl
from tandem.client.generate.format import printable

RUNNING, WAITING, TOKENS = "tandem_requests_running", "tandem_requests_waiting", "tandem_tokens_per_second"
Key = tuple[str, str]
COLUMNS = (
    *("NAMESPACE", "NAME", "TYPE", "READY", "REPLICAS", "RUN", "WAIT", "TOKENS/S"),
    *("ACCEPTED", "LENGTH", "SPEED-UP", "AGE", "WHY"),
)
WORDS = ("NAMESPACE", "NAME", "TYPE", "READY", "WHY")
LEAST = ("TYPE", "WHY", "AGE", "LENGTH", "ACCEPTED", "REPLICAS", "SPEED-UP")
"""What is left out where the terminal is too narrow, in this order: cut names and figures would say nothing."""
MOST_WORTH = 8
"""Services below the table."""
AT_ONCE = 8
"""kubectls that run at once: a cluster may have services in hundreds of namespaces."""


@dataclass(frozen=True)
class ServiceTable:
    """Services, and custom metrics by name and service. `problem`: why there are none; empty when there are."""

    services: Sequence[SpeculativeInferenceService]
    metrics: Mapping[str, Mapping[Key, float]] = field(default_factory=dict)
    problem: str = ""


async def read(namespace: str | None, everywhere: bool) -> ServiceTable:
    """Services of a namespace (the context's when None), or of all. Raises kubectl.ClusterError."""
    services = await services_of(namespace, everywhere)
    spaces = sorted({service.namespace for service in services})
    asked = [(space, name) for space in spaces for name in (RUNNING, WAITING, TOKENS)]
    gate = asyncio.Semaphore(AT_ONCE)
    answers = await asyncio.gather(*(_metric(gate, *one) for one in asked), return_exceptions=True)
    metrics: dict[str, dict[Key, float]] = {}
    for (_, name), answer in zip(asked, answers, strict=True):
        if isinstance(answer, dict):
            metrics.setdefault(name, {}).update(answer)
        elif not isinstance(answer, kubectl.ClusterError):
            raise answer
    problems = [str(answer) for answer in answers if isinstance(answer, BaseException)]
    return ServiceTable(services, metrics, problems[0] if problems and not metrics else "")


async def _metric(gate: asyncio.Semaphore, namespace: str, name: str) -> dict[Key, float]:
    """A metric of a namespace's services. Raises kubectl.ClusterError, also where none of them is known."""
    path = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}/{PLURAL}.{GROUP}/*/{name}"
    async with gate:
        reply = kubectl.parsed(await kubectl.kubectl("get", "--raw", path, "--request-timeout=15s"))
    return {(namespace, item["describedObject"]["name"]): quantity(item["value"]) for item in reply["items"]}


def table(board: ServiceTable, at: datetime, *, everywhere: bool, less: int = 0) -> Table:
    """The table, without so many of `LEAST`. Pure."""
    notes = [f"no RUN, WAIT and TOKENS/S: {board.problem}"] if board.problem else []
    caption = escape("\n".join([*notes, *_worth(board, everywhere)])) or None
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, caption=caption, caption_justify="left")
    left_out = {*LEAST[:less], *([] if everywhere else ["NAMESPACE"])}
    shown = [name not in left_out for name in COLUMNS]
    for name in compress(COLUMNS, shown):
        # At the last names are broken, which may be as long as a line: the figures of all would have no room.
        broken = less == len(LEAST) and name in ("NAMESPACE", "NAME")
        justify: JustifyMethod = "left" if name in WORDS else "right"
        made.add_column(name, justify=justify, no_wrap=not broken, overflow="fold" if broken else "ellipsis")
    for service in _busiest_first(board):
        made.add_row(*compress(_row(board, service, at), shown))
    return made


def _worth(board: ServiceTable, everywhere: bool) -> Iterator[str]:
    """What speculation is worth on the busiest, a line each."""
    known = [service for service in _busiest_first(board) if service.status.worth]
    for service in known[:MOST_WORTH]:
        name = f"{service.namespace}/{service.name}" if everywhere else service.name
        yield f"{name}: {printable(service.status.worth)}"
    if len(known) > MOST_WORTH:
        yield f"{len(known) - MOST_WORTH} more: tandem status NAME shows what speculation is worth there"


def as_object(board: ServiceTable) -> dict[str, Any]:
    """The same for programs; what is not known is null. Pure."""
    rows = [_object(board, service) for service in _busiest_first(board)]
    return {"services": rows, "problem": board.problem or None}


def _object(board: ServiceTable, service: SpeculativeInferenceService) -> dict[str, Any]:
    key, status, seen = (service.namespace, service.name), service.status, service.status.speculation
    load = {"running": RUNNING, "waiting": WAITING, "tokensPerSecond": TOKENS}
    decided = status.autoscaling
    return {
        **summary(service),
        **{name: board.metrics.get(metric, {}).get(key) for name, metric in load.items()},
        "acceptanceRate": seen.acceptance_rate if seen else None,
        "meanAcceptedLength": seen.mean_accepted_length if seen else None,
        "speedup": seen.speedup if seen else None,
        "worth": status.worth or None,
        "observedAt": seen.observed_at if seen else None,
        "desiredReplicas": decided.desired_replicas if decided else None,
        "signal": decided.signal if decided else None,
    }


def _busiest_first(board: ServiceTable) -> list[SpeculativeInferenceService]:
    return sorted(board.services, key=lambda service: (-_tokens(board, service), service.namespace, service.name))


def _tokens(board: ServiceTable, service: SpeculativeInferenceService) -> float:
    return board.metrics.get(TOKENS, {}).get((service.namespace, service.name), 0.0)


def _row(board: ServiceTable, service: SpeculativeInferenceService, at: datetime) -> list[str]:
    """A cell for each of `COLUMNS`."""
    key, status, seen = (service.namespace, service.name), service.status, service.status.speculation
    ready = next((c for c in status.conditions if c.type == ConditionType.READY), None)
    load = [board.metrics.get(name, {}).get(key) for name in (RUNNING, WAITING, TOKENS)]
    return [
        service.namespace,
        service.name,
        str(service.spec.speculation.decoding_type),
        NONE if ready is None else "True" if ready.reason == ServingReason.SERVERS_ANSWER else ready.reason,
        _replicas(service),
        *(number(value, 0) for value in load),
        percent(seen.acceptance_rate if seen else None),
        number(seen.mean_accepted_length if seen else None),
        factor(seen.speedup if seen else None),
        age(seen.observed_at, at) if seen else NONE,
        status.autoscaling.signal if status.autoscaling else NONE,
    ]


def _replicas(service: SpeculativeInferenceService) -> str:
    """Those that answer of those that are asked for, and what the last decision wants where that differs."""
    wanted = service.status.autoscaling and service.status.autoscaling.desired_replicas
    going = f" > {wanted}" if wanted not in (None, service.spec.replicas) else ""
    return f"{service.status.ready_replicas or 0}/{service.spec.replicas}{going}"


async def write(namespace: str | None, *, everywhere: bool, form: Format) -> None:
    """Read, and write the object. Raises kubectl.ClusterError."""
    write_object(as_object(await read(namespace, everywhere)), form)


async def top(console: Console, namespace: str | None, *, everywhere: bool, watch: float | None) -> None:
    """Read and show; every `watch` seconds where that is given, until cancelled.

    Raises:
        kubectl.ClusterError: the first reading failed; a later one is made again.
    """
    found = await _shown(console, namespace, everywhere)
    if watch is None or not console.is_terminal:
        while True:
            console.print(found)
            if watch is None:
                return
            await asyncio.sleep(watch)
            found = await _again(console, namespace, everywhere)
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(found, refresh=True)
            await asyncio.sleep(watch)
            found = await _again(console, namespace, everywhere)


async def _again(console: Console, namespace: str | None, everywhere: bool) -> Table | Text:
    try:
        return await _shown(console, namespace, everywhere)
    except kubectl.ClusterError as error:
        return Text(f"trying again: {error}", "yellow")


async def _shown(console: Console, namespace: str | None, everywhere: bool) -> Table | Text:
    board = await read(namespace, everywhere)
    if not board.services:
        return Text(none_here(everywhere))
    return fitting(console, board, now(), everywhere=everywhere)


def fitting(console: Console, board: ServiceTable, at: datetime, *, everywhere: bool) -> Table:
    """The table with as many columns as the console is wide enough for."""
    wide = console.options.update_width(10_000)
    for less in range(len(LEAST)):
        made = table(board, at, everywhere=everywhere, less=less)
        if console.measure(made, options=wide).maximum <= console.width:
            return made
    return table(board, at, everywhere=everywhere, less=len(LEAST))
