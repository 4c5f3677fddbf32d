"""What reading the metrics of a thousand pods costs.

    PYTHONPATH=tests:operator python tests/bench/collect.py run

One process stands for the pods: it answers at their addresses (127.0.0.0/8) with pages of a real server of the
speculative BLS (tests/data/input/metrics), whose counters grow. This process reads them every interval as the
metrics server does, and makes the figures of every service; in turn with it, for comparison, it only fetches the
same pages (the floor). It prints the CPU time that each takes, in cores.
"""

import asyncio
import ipaddress
import json
import multiprocessing
import re
import statistics
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated

import aiohttp
import typer
from rich.console import Console

from tandem.metrics.telemetry.exposition import parse
from tandem.metrics.telemetry.families import ENGINE_LABELS, NAMES
from tandem.metrics.telemetry.prometheus import by_pod
from tandem.metrics.telemetry.scrape import ScrapeLimits, Scraper
from tandem.metrics.telemetry.source import ScrapeTarget
from tandem.metrics.telemetry.windows import Store

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
console = Console(width=200 if not sys.stdout.isatty() else None)
PAGE = Path(__file__).parents[1] / "data/input/metrics/speculative_bls.txt"
VERSIONS = 32
WINDOW = 60.0
PODS_OF_A_SERVICE = 10

Pods = Annotated[int, typer.Option(help="Pods that are read.")]


def pages() -> list[bytes]:
    """The real page, and how it goes on: every counter of Tandem's grows by its own value each time."""
    text = PAGE.read_text()

    def version(times: int) -> bytes:
        def grown(found: "re.Match[str]") -> str:
            return f"{found[1]} {float(found[2]) * times:f}"

        return re.sub(r"(?m)^(tandem_\S*(?:_total|_bucket|_sum|_count)\S*) (\S+)$", grown, text).encode()

    return [version(times) for times in range(1, VERSIONS + 1)]


class Pod(asyncio.Protocol):
    """A connection to a pod: a page for a request. `asked` counts requests by address."""

    def __init__(self, answers: list[bytes], asked: "Counter[str]") -> None:
        self._answers, self._asked = answers, asked

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, _: bytes) -> None:
        """Answer; a request is one packet."""
        address = self._transport.get_extra_info("sockname")[0]
        self._transport.write(self._answers[self._asked[address] % VERSIONS])
        self._transport.close()
        self._asked[address] += 1


def serve(tell: "Connection[int, int]", port: int = 0) -> None:
    """Be the pods; tells the port (0: a free one)."""
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\r\n"
    answers = [head.format(len(page)).encode() + page for page in pages()]
    asked: Counter[str] = Counter()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Pod(answers, asked), "0.0.0.0", port, backlog=1024)
        tell.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def targets_at(port: int, pods: int) -> list[ScrapeTarget]:
    """Pods at addresses of their own."""
    first = ipaddress.IPv4Address("127.1.0.1")
    return [ScrapeTarget(f"uid-{n}", "ns", f"pod-{n}", str(first + n), port) for n in range(pods)]


Round = Callable[[], Awaitable[None]]


async def cores(round_of: Round, interval: float) -> float:
    """CPU time of a round over the interval that it has."""
    cpu, start = time.process_time(), time.monotonic()
    await round_of()
    await asyncio.sleep(max(0.0, interval - (time.monotonic() - start)))
    return (time.process_time() - cpu) / (time.monotonic() - start)


async def fetch_all(session: aiohttp.ClientSession, targets: list[ScrapeTarget], spread: float) -> None:
    """The floor: every page once, over `spread` seconds, and nothing made of it."""

    async def fetch(number: int, target: ScrapeTarget) -> None:
        await asyncio.sleep(spread * number / len(targets))
        async with session.get(f"http://{target.address}:{target.port}/metrics") as reply:
            await reply.read()

    await asyncio.gather(*(fetch(number, target) for number, target in enumerate(targets)))


async def compare(targets: list[ScrapeTarget], rounds: int, interval: float) -> dict[str, list[float]]:
    """Cores of the collector and of the floor, round by round in turn."""
    spread = interval * 2 / 3
    store = Store(WINDOW)
    services = [targets[n : n + PODS_OF_A_SERVICE] for n in range(0, len(targets), PODS_OF_A_SERVICE)]
    measured: dict[str, list[float]] = {"collector": [], "floor": []}
    async with Scraper(ScrapeLimits(spread_seconds=spread)) as scraper, aiohttp.ClientSession() as session:

        async def collector() -> None:
            problems = await scraper.collect(targets, store)
            assert not problems, next(iter(problems.values()))
            for pods in services:
                store.figures([target.uid for target in pods], time.time(), WINDOW)

        async def floor() -> None:
            await fetch_all(session, targets, spread)

        await collector()  # the first round fills caches
        for _ in range(rounds):
            measured["collector"].append(await cores(collector, interval))
            measured["floor"].append(await cores(floor, interval))
    return measured


@app.command()
def run(
    pods: Pods = 1000,
    interval: Annotated[float, typer.Option(help="Seconds between readings of a pod.")] = 15.0,
    rounds: Annotated[int, typer.Option(help="Readings of all pods behind each median.")] = 5,
) -> None:
    """CPU of the collector, beside that of fetching alone."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    measured = asyncio.run(compare(targets_at(ours.recv(), pods), rounds, interval))
    process.terminate()
    size = len(PAGE.read_bytes())
    console.print(f"{pods} pods every {interval:g} s, pages of {size} bytes, {rounds} rounds each")
    medians = {name: statistics.median(values) for name, values in measured.items()}
    for name, values in measured.items():
        console.print(f"{name:>10}: {medians[name]:.3f} cores ({min(values):.3f} to {max(values):.3f})")
    console.print(f"collector / floor: {medians['collector'] / medians['floor']:.2f}")


@app.command()
def memory(pods: Pods = 1000) -> None:
    """Memory of the samples, by the length of the window that is kept."""
    read = [parse(page) for page in pages()]
    for seconds in (60, 300):
        tracemalloc.start()
        store = Store(seconds)
        for number, at in enumerate(range(0, 2 * seconds, 15)):
            for pod in range(pods):
                store.add(f"uid-{pod}", float(at), read[number % VERSIONS])
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        console.print(f"{pods} pods, samples of {seconds} s: {size / 1e6:.1f} MB, {size / pods / 1024:.1f} KiB a pod")


MONITOR = {"container": "triton", "endpoint": "metrics", "job": "team-a/tandem-serving", "namespace": "team-a"}
"""Labels that a PodMonitor sets, beside those of each pod."""
SERIES = re.compile(f"({'|'.join(NAMES)})(?:{{(.*)}})? ")
ENGINES = [
    f'{family}{{model="{model}",version="1",{label}="{number}"}} 1'
    for model in ("tensorrt_llm", "tensorrt_llm_draft")
    for family, label in ENGINE_LABELS.items()
    if family.startswith("nv_trt_llm")
    for number in ("used", "free", "max", "active", "waiting")
]
"""Series of TensorRT-LLM's engines, of which the page that was recorded has none."""


def answer_of(pods: int) -> bytes:
    """What a Prometheus tells that scrapes so many every 15 s: four samples of each series in its minute."""
    found = [match for line in [*PAGE.read_text().splitlines(), *ENGINES] if (match := SERIES.match(line))]
    own = [{"__name__": match[1], **dict(re.findall(r'(\w+)="([^"]*)"', match[2] or ""))} for match in found]
    values = [[1764000000.123 + 15 * n, str(123456 * (n + 1))] for n in range(4)]

    def of_pod(number: int) -> str:
        service = f"llama-{number // PODS_OF_A_SERVICE}"
        pod = {"pod": f"{service}-server-7d9c8b6f5d-{number:05}", "speculativeinferenceservice": service}
        instance = {"instance": f"{ipaddress.IPv4Address('10.0.0.1') + number}:8002"}
        series = [{"metric": {**labels, **MONITOR, **pod, **instance}, "values": values} for labels in own]
        return json.dumps(series, separators=(",", ":"))[1:-1]

    result = ",".join(map(of_pod, range(pods)))
    return f'{{"status":"success","data":{{"resultType":"matrix","result":[{result}]}}}}'.encode()


@app.command()
def prometheus(pods: Pods = 1000, rounds: Annotated[int, typer.Option(help="Answers that are read.")] = 5) -> None:
    """CPU time and memory of reading an answer of Prometheus with all pods."""
    answer, took = answer_of(pods), []
    for _ in range(rounds):
        started = time.process_time()
        by_pod(answer)
        took.append(time.process_time() - started)
    tracemalloc.start()
    by_pod(answer)
    _, most = tracemalloc.get_traced_memory()
    console.print(f"{pods} pods: {len(answer) / 2**20:.1f} MiB, {len(answer) / pods / 1024:.1f} KiB a pod")
    console.print(
        f"CPU: {statistics.median(took):.2f} s ({min(took):.2f} to {max(took):.2f}); memory: {most >> 20} MiB"
    )


if __name__ == "__main__":
    app()
