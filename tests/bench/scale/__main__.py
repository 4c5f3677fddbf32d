"""See the package."""

import asyncio
import json
import os
import re
import socket
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
import yaml

from support import images
from tandem.api import API_VERSION, KIND, PLURAL

from .apiserver import FakeApiServer
from .store import Store, Stored

NAMESPACE, NAME = "scale-000", "svc-00000"
PER_NAMESPACE = 100
VARIANTS = 40
"""Services of their own revision, more than the operator keeps rendered: the others are copies of theirs."""
STILL_SECONDS = 10.0
SERVICE: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    "metadata": {
        "name": NAME,
        "namespace": NAMESPACE,
        "uid": "00000-service",
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    },
    "spec": {
        "runtime": {"mode": "BLS", "profile": "reference"},
        "target": {"model": {"uri": "file:///opt/reference/pair/target"}},
        "draft": {"model": {"uri": "file:///opt/reference/pair/draft"}},
        "speculation": {"decodingType": "DraftTarget", "maxDraftLen": 4},
        "replicas": 1,
    },
}
GOALS = {"restarts": 0.0, "block": 0.5, "steady": 600.0, "rss": 400.0, "writes": 0.0}


class Operator:
    """`tandem operator run` as a process."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self._log = folder / "operator.log"
        self._settings = folder / "settings.yaml"
        self._settings.write_text(yaml.safe_dump(images.SETTINGS), encoding="utf-8")
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "POD_NAME": "operator-0"}
        self._process: asyncio.subprocess.Process | None = None
        self.port = 0
        self.peak = 0

    async def start(self) -> None:
        """Start it, and sample its memory until it ends."""
        self.port = _free_port()
        command = [sys.executable, "-m", "tandem", "operator", "run", "--log-format", "text"]
        command += ["--bind", f"127.0.0.1:{self.port}", "--settings", str(self._settings)]
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, env=self._environment, stdout=log, stderr=log
            )
        self.peak = 0

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL where that does not help."""
        if self._process and self._process.returncode is None:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), 20)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()

    def usage(self) -> tuple[float, float]:
        """Resident MB now, and CPU seconds since the start. Raises where it has ended."""
        assert self._process
        if self._process.returncode is not None:
            raise SystemExit(f"the operator ended with {self._process.returncode}: {self._log.read_text()[-2000:]}")
        seen = psutil.Process(self._process.pid)
        with seen.oneshot():
            used, times = seen.memory_info().rss, seen.cpu_times()
        self.peak = max(self.peak, used)
        return used / 1e6, times.user + times.system

    async def series(self) -> dict[str, float]:
        """Its metrics by name and labels; empty while it does not answer."""
        try:
            return _parse(await asyncio.to_thread(self._get, "/metrics"))
        except OSError:
            return {}

    async def ready(self) -> bool:
        """Whether /readyz says so."""
        try:
            await asyncio.to_thread(self._get, "/readyz")
        except OSError:
            return False
        return True

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            return str(answer.read().decode())

    def keep_log(self, path: Path | None) -> None:
        """Copy the log to a file."""
        if path:
            path.write_text(self.log(), encoding="utf-8")

    def log(self) -> str:
        """All that it logged."""
        return self._log.read_text(encoding="utf-8", errors="replace")


def access(server: FakeApiServer, folder: Path) -> Path:
    """A kubeconfig for it."""
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.port}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    user = {"name": "u", "user": {"token": "t"}}
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "c"}
    made = folder / "kubeconfig"
    made.write_text(yaml.safe_dump({**config, "clusters": [cluster], "contexts": [context], "users": [user]}))
    return made


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _parse(text: str) -> dict[str, float]:
    rows = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in rows if name}


def total(series: dict[str, float], name: str) -> float:
    """Sum of a series over its labels."""
    return sum(value for key, value in series.items() if re.fullmatch(rf"{name}(\{{.*\}})?", key))


def longest_block(series: dict[str, float]) -> float:
    """Upper bound of the histogram's last bucket that holds a sample, seconds; nan: the operator has none."""
    found = re.compile(r'tandem_operator_loop_lag_seconds_bucket\{le="(.*)"\}')
    buckets = sorted((float(m[1]), value) for key, value in series.items() if (m := found.fullmatch(key)))
    if not buckets:
        return float("nan")
    return next(bound for bound, value in buckets if value == buckets[-1][1])


def copy(store: Store, count: int, variants: int = 1) -> None:
    """Copy the services that there are, and all that is their own, until there are `count`."""
    stored = [(plural, one) for plural, one in store.all() if plural != "events"]
    originals = [[(plural, one) for plural, one in stored if own_name(n) in one.name] for n in range(variants)]
    for number in range(variants, count):
        before = number % variants
        space = f"scale-{number // PER_NAMESPACE:03}"
        old, new = own_name(before), own_name(number)
        texts = [(old, new), (NAMESPACE, space), (f'uid":"{before:05}-', f'uid":"{number:05}-')]
        changes = [(one.encode(), other.encode()) for one, other in texts]
        for plural, one in originals[before]:
            whole, partial = one.whole, one.partial
            for text, other in changes:
                whole, partial = whole.replace(text, other), partial.replace(text, other)
            name, service = one.name.replace(old, new), one.service.replace(old, new)
            store.put_stored(plural, Stored(space, name, service, whole, partial))
    store.forget_history()
    uids = {json.loads(one.partial)["metadata"]["uid"] for plural, one in store.all() if plural != "events"}
    assert len(uids) == sum(1 for plural, _ in store.all() if plural != "events"), "copies of their own"


def own_name(number: int) -> str:
    """Of a service."""
    return f"svc-{number:05}"


async def until(what: str, seconds: float, operator: Operator, check: Callable[[], Awaitable[bool]]) -> float:
    """Poll until it holds; how long that took. nan: it did not."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        operator.usage()
        if await check():
            return time.monotonic() - began
        await asyncio.sleep(0.5)
    print(f"not within {seconds:.0f} s: {what}", file=sys.stderr)
    return float("nan")


async def settle(server: FakeApiServer, operator: Operator) -> None:
    """Have the operator bring up the services that are copied."""
    for number in range(VARIANTS):
        server.store.put(PLURAL, service(number))
    await operator.start()

    async def are_ready() -> bool:
        found = [server.store.get(PLURAL, NAMESPACE, own_name(number)) or {} for number in range(VARIANTS)]
        conditions = [each.get("status", {}).get("conditions", []) for each in found]
        return all(any(c["type"] == "Ready" and c["status"] == "True" for c in each) for each in conditions)

    await until("services to be Ready", 60, operator, are_ready)
    await asyncio.sleep(3)  # for the Events that say so
    if not await are_ready():
        raise SystemExit(operator.log()[-3000:])
    await operator.stop()


def service(number: int) -> dict[str, Any]:
    """One that asks for another revision than those before."""
    meta = {**SERVICE["metadata"], "name": own_name(number), "uid": f"{number:05}-service"}
    speculation = {**SERVICE["spec"]["speculation"], "maxDraftLen": 1 + number % 8}
    changes = {"speculation": speculation, "serving": {"maxBatchSize": 1 + number // 8}}
    return {**SERVICE, "metadata": meta, "spec": {**SERVICE["spec"], **changes}}


@dataclass
class Row:
    """What a number of services took."""

    services: int
    objects: int
    steady: float
    reconciles: float
    requests: int
    block: float
    peak: float
    cpu: float
    restarts: float
    writes: int

    def missed(self) -> list[str]:
        """Goals that are missed."""
        found = {"restarts": self.restarts, "block": self.block, "steady": self.steady, "rss": self.peak}
        found["writes"] = self.writes
        return [goal for goal, value in found.items() if not value <= GOALS[goal]]

    def __str__(self) -> str:
        return (
            f"| {self.services:,} | {self.objects:,} | {self.steady:.0f} s | {self.reconciles:,.0f}"
            f" | {self.requests:,} | {self.block:g} s | {self.peak:.0f} MB"
            f" | {self.cpu:.2f} | {self.restarts:.0f} | {self.writes} |"
        )


HEAD = """\
| services | objects | steady after | reconciles | requests | loop never late by | memory, peak | idle: cores\
 | watch restarts | idle: writes |
|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"""


def steadiness(operator: Operator, count: int) -> Callable[[], Awaitable[bool]]:
    """Whether it is ready, nothing waits, and for ten seconds nothing was reconciled."""
    same = [0.0, time.monotonic()]

    async def is_steady() -> bool:
        series = await operator.series()
        done = total(series, "tandem_operator_reconcile_seconds_count")
        waits = total(series, "tandem_operator_queue_depth")
        if done != same[0] or waits or done < count or not await operator.ready():
            same[:] = [done, time.monotonic()]
        return time.monotonic() - same[1] > STILL_SECONDS

    return is_steady


async def measure(server: FakeApiServer, operator: Operator, count: int, limit: float, idle: float) -> Row:
    """Start the operator with `count` services, wait until it is steady, and let it idle."""
    copy(server.store, count, VARIANTS)
    server.requests.clear()
    await operator.start()
    steady = await until(f"{count} services to be reconciled", limit, operator, steadiness(operator, count))
    series, asked = await operator.series(), sum(server.requests.values())
    before, (_, used), began = server.writes(), operator.usage(), time.monotonic()
    while time.monotonic() - began < idle:
        await asyncio.sleep(0.5)
        operator.usage()
    cpu = (operator.usage()[1] - used) / (time.monotonic() - began)
    after = await operator.series()
    await operator.stop()
    return Row(
        services=count,
        objects=sum(1 for _ in server.store.all()),
        steady=steady - STILL_SECONDS,
        reconciles=total(series, "tandem_operator_reconcile_seconds_count"),
        requests=asked,
        block=longest_block(after),
        peak=operator.peak / 1e6,
        cpu=cpu,
        restarts=total(after, "tandem_operator_watch_restarts_total"),
        writes=server.writes() - before,
    )


async def run(counts: list[int], limit: float, idle: float, keep_log: Path | None) -> list[Row]:
    """A row for each number of services; each starts from one service."""
    rows = []
    for count in counts:
        server = FakeApiServer()
        await server.start()
        with tempfile.TemporaryDirectory() as folder:
            operator = Operator(access(server, Path(folder)), Path(folder))
            try:
                await settle(server, operator)
                rows.append(await measure(server, operator, count, limit, idle))
            finally:
                await operator.stop()
                operator.keep_log(keep_log)
        await server.stop()
        print(rows[-1], flush=True)
    return rows


def main(
    services: list[int],
    limit: Annotated[float, typer.Option(help="Seconds to become steady, at most.")] = 600,
    idle: Annotated[float, typer.Option(help="Seconds to idle afterwards.")] = 90,
    keep_log: Annotated[Path | None, typer.Option(help="File for the operator's log.")] = None,
) -> None:
    """Run, print the table, and exit with 1 where a goal is missed."""
    print(HEAD)
    missed = {row.services: row.missed() for row in asyncio.run(run(services, limit, idle, keep_log))}
    for count, goals in missed.items():
        print(f"{count}: missed: {', '.join(goals)}" if goals else f"{count}: all goals are met", file=sys.stderr)
    raise typer.Exit(any(missed.values()))


if __name__ == "__main__":
    typer.run(main)
