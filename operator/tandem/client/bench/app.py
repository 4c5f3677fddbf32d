"""`tandem bench` without its command line: both sides in turn at each load, then the table."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tandem.client.bench.base import base_name, base_service
from tandem.client.bench.figures import Level, Side, Window, problem, refused, unjudged, verdict
from tandem.client.bench.load import Load, play
from tandem.client.bench.plot import svg
from tandem.client.bench.record import ServedRevision, keep, serving
from tandem.client.generate.app import Endpoint, connect, until_signal
from tandem.client.generate.client import TritonClient
from tandem.client.generate.request import Sampling
from tandem.client.generate.view import Progress, stdout_console

EXIT_NO_VERDICT = 3
ROUNDED = 100
"""From here on a range is in whole numbers."""
STDOUT = Path("-")


@dataclass(frozen=True)
class BenchmarkPlan:
    """Loads (requests at once), and how long each window of each side lasts, seconds; `repeats` pairs of them.

    Without `against` the same service also runs the target alone (mode BLS); else that other service does, which
    should differ in speculation only. `base`: such a one is made meanwhile. `record`: keep the result with the
    service (`tandem.client.bench.record`).
    """

    prompts: Sequence[str]
    sampling: Sampling
    streams: Sequence[int]
    warm_up: float
    seconds: float
    repeats: int
    against: Endpoint | None = None
    record: bool = False
    base: bool = False

    @property
    def of_two(self) -> bool:
        """Whether another service runs the target alone."""
        return self.base or self.against is not None


@dataclass(frozen=True)
class Files:
    """Where a result is written, too: as JSON (`-`: to standard output, in the table's place), and as a picture."""

    json: Path | None = None
    plot: Path | None = None


def bench(target: Endpoint, plan: BenchmarkPlan, files: Files, *, no_color: bool) -> int:
    """Run a plan and print it, as far as it came; returns the exit code. Signals end it.

    Raises:
        GenerateError: a service or its server cannot be reached, or refuses the requests.
        ClusterError: the result cannot be recorded; it is printed nevertheless.
    """
    progress = Progress(Console(stderr=True, soft_wrap=True))
    levels: list[Level] = []
    measured: list[ServedRevision] = []
    try:
        code = asyncio.run(until_signal(_run(target, plan, progress, levels, measured)))
    finally:
        progress.close()
        if levels:  # also where a later one could not be measured
            _show(plan, levels, stdout_console(no_color), files)
    for before in measured if code == 0 else ():
        against = plan.against.name or plan.against.url if plan.against else base_name(target.name) * plan.base
        recorded = asyncio.run(keep(before, levels, against))
        Console(stderr=True, soft_wrap=True).print(recorded, highlight=False, markup=False)
    return code or (EXIT_NO_VERDICT if problem(levels) else 0)


def _show(plan: BenchmarkPlan, levels: Sequence[Level], console: Console, files: Files) -> None:
    found = json.dumps(as_dict(plan, levels))
    if files.json == STDOUT:
        console.out(found, highlight=False)
    else:
        console.print(table(levels))
        for line in filter(None, (verdict(levels), unjudged(levels), refused(levels))):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    # Last: what was measured is shown even where a file cannot be written.
    if files.json and files.json != STDOUT:
        files.json.write_text(f"{found}\n", encoding="utf-8")
    if files.plot:
        files.plot.write_text(svg(levels), encoding="utf-8")


async def _run(
    target: Endpoint, plan: BenchmarkPlan, progress: Progress, levels: list[Level], measured: list[ServedRevision]
) -> int:
    async with _servers(target, plan, progress) as (speculative, alone):
        if plan.record:
            measured.append(await serving(target.name, target.namespace))
        for streams in plan.streams:
            levels.append(await _level(speculative, alone, plan, streams, progress))
    return 0


@contextlib.asynccontextmanager
async def _servers(
    target: Endpoint, plan: BenchmarkPlan, progress: Progress
) -> AsyncIterator[tuple[TritonClient, TritonClient]]:
    async with connect(target, progress) as server:
        await server.check(drafts_by_request=not plan.of_two)
        if not plan.of_two:
            yield server, server
            return
        async with _alone(target, plan, progress) as alone, connect(alone, progress) as other:
            await other.check()
            yield server, other


@contextlib.asynccontextmanager
async def _alone(target: Endpoint, plan: BenchmarkPlan, progress: Progress) -> AsyncIterator[Endpoint]:
    """The service that runs the target alone: one that is there, or one that is made."""
    if plan.against:
        yield plan.against
        return
    async with base_service(target, progress) as made:
        yield made


async def _level(
    speculative: TritonClient, alone: TritonClient, plan: BenchmarkPlan, streams: int, progress: Progress
) -> Level:
    """Pairs of windows, the sides in turn: what changes on the machine meanwhile meets both."""
    load = Load(plan.prompts, plan.sampling, streams)
    without = load if plan.of_two else replace(load, num_draft_tokens=0)
    pairs: list[tuple[Window, Window]] = []
    for number in range(1, plan.repeats + 1):
        of = f"{streams} streams, {number} of {plan.repeats}"
        progress(f"{of}: with speculation")
        first = await play(speculative, load, plan.warm_up, plan.seconds)
        progress(f"{of}: the target alone")
        pairs.append((first, await play(alone, without, plan.warm_up, plan.seconds)))
    progress("")
    with_speculation, target_alone = zip(*pairs, strict=True)
    return Level(streams, Side(with_speculation), Side(target_alone))


def table(levels: Sequence[Level]) -> Table:
    """One row a load."""
    columns = [
        "streams",
        "tokens/s",
        "alone",
        "speed-up",
        "accepted",
        "length",
        "TTFT ms",
        "alone",
        "ITL ms",
        "alone",
    ]
    found = Table(box=None, pad_edge=False)
    for column in columns:
        found.add_column(column, justify="right")
    for level in levels:
        ours, alone = level.speculative, level.alone
        found.add_row(
            str(level.streams),
            _spread(ours.tokens_per_second, *ours.spread, digits=1),
            _spread(alone.tokens_per_second, *alone.spread, digits=1),
            "-" if level.speedup is None else _spread(level.speedup, min(level.speedups), max(level.speedups)),
            _figure(ours.acceptance_rate, 100, "%"),
            _figure(ours.mean_accepted_length, digits=2),
            _figure(ours.first_token, 1000),
            _figure(alone.first_token, 1000),
            _figure(ours.inter_token, 1000, digits=1),
            _figure(alone.inter_token, 1000, digits=1),
        )
    return found


def _spread(middle: float, low: float, high: float, digits: int = 2) -> str:
    """A median, with the least and the most of the repeats where those differ: short, as a row is to be a line."""
    of_range = 0 if low >= ROUNDED else digits
    return f"{middle:.{digits}f}" + (f" ({low:.{of_range}f}-{high:.{of_range}f})" if low < high else "")


def _figure(value: float | None, scale: float = 1, unit: str = "", digits: int = 0) -> str:
    return "-" if value is None else f"{value * scale:.{digits}f}{unit}"


def as_dict(plan: BenchmarkPlan, levels: Sequence[Level]) -> dict[str, Any]:
    """The same for programs: plain numbers in seconds and tokens; what is not known is null."""
    return {
        "maxTokens": plan.sampling.max_tokens,
        "prompts": len(plan.prompts),
        "seconds": plan.seconds,
        "levels": [
            {
                "streams": level.streams,
                "speedup": level.speedup,
                "speedups": level.speedups,
                "speculative": _side(level.speculative),
                "alone": _side(level.alone),
            }
            for level in levels
        ],
        "verdict": verdict(levels),
        "judged": not problem(levels),
    }


def _side(side: Side) -> dict[str, float | int | None]:
    low, high = side.spread
    return {
        "tokensPerSecond": side.tokens_per_second,
        "lowestTokensPerSecond": low,
        "highestTokensPerSecond": high,
        "timeToFirstToken": side.first_token,
        "interTokenLatency": side.inter_token,
        "acceptanceRate": side.acceptance_rate,
        "meanAcceptedLength": side.mean_accepted_length,
        "requests": side.requests,
        "refused": len(side.refusals),
    }
