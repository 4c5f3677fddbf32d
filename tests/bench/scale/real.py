"""Services on a real API server with simulated nodes, by the operator and by a bare client.

    export PYTHONPATH=tests:operator:images
    python -m bench.scale.real 300 1000

For each number it starts a cluster, and prints what a burst of so many services took, a new one among them, a
restart of the operator, and a while of idling; then what the bare client (`floor`) took for the same burst, in
namespaces of its own. Where the machine has other work to do, only the ratio of the two counts.
"""

import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from kubernetes.aio.config import kube_config

from cluster.core import Cluster
from cluster.state import NodeSpec
from tandem.api.wire import Object
from tandem.cluster.client import Api
from tandem.cluster.kinds import BY_KIND, DEPLOYMENT, SERVICES_KIND, Kind
from tandem.cluster.observe import observe
from tandem.settings import load_settings

from .__main__ import PER_NAMESPACE, SERVICE, STILL_SECONDS, Operator, longest_block, own_name, steadiness, until
from .__main__ import total as sum_of
from .floor import WORKERS, Client, Floor, children, first_job

REPOSITORY = Path(__file__).parents[3]
STAGES = REPOSITORY / "tests/integration/stages"
CRD = "crd/speculativeinferenceservices.serving.tandem.dev"
NODES = NodeSpec("simulated", 2, {"cpu": "100000", "memory": "100Ti", "pods": "20000"})
NEW, OBSERVED = 6, 100
"""Services that are made one after the other where many are; reconciles of which the reads are measured alone."""
PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
RECONCILES, REQUESTS = "tandem_operator_reconcile_seconds_count", "tandem_operator_api_requests_total"
READS, LEASE_RENEWED = ("get", "list", "watch"), "update"
Serve = Callable[[Object], Awaitable[None]]


class Site:
    """A cluster of this program's own."""

    def __init__(self, name: str) -> None:
        self.cluster = Cluster(name, say=lambda text: print(text, file=sys.stderr))
        self.cluster.down()

    def up(self) -> Client:
        """Start it, with Tandem's definition."""
        stages = self.cluster.folder / "stages"
        stages.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(STAGES, stages)
        self.cluster.up([NODES])
        self.cluster.kubectl.run("apply", "-f", str(REPOSITORY / "crds"))
        self.cluster.kubectl.run("wait", "--for=condition=Established", CRD, "--timeout=60s")
        plane = self.cluster._plane(self.cluster._state())
        return Client(plane.local_server, plane.pki)

    def spent(self) -> Counter[str]:
        """CPU milliseconds of each program so far."""
        pids = self.cluster.status()
        used = {name: psutil.Process(pid).cpu_times() for name in PLANE if (pid := pids.get(name))}
        return Counter({name: round(1000 * (times.user + times.system)) for name, times in used.items()})

    def mark(self) -> int:
        """The audit log's size."""
        return self.cluster.audit_log.stat().st_size

    def requests(self, since: int) -> Counter[tuple[str, str]]:
        """Requests since a size of the audit log, by client and verb."""
        found: Counter[tuple[str, str]] = Counter()
        with self.cluster.audit_log.open("rb") as log:
            log.seek(since)
            entries = (json.loads(line) for line in log if line.endswith(b"\n"))
            for entry in entries:
                if entry["stage"] == "ResponseComplete":
                    found[entry.get("userAgent", "").partition("/")[0], entry["verb"]] += 1
        return found


def named(prefix: str, number: int) -> Object:
    """A service; `prefix` begins its namespace."""
    meta = {"name": own_name(number), "namespace": f"{prefix}-{number // PER_NAMESPACE:03}"}
    return {**SERVICE, "metadata": meta}


async def make(client: Client, services: Sequence[Object], serve: Serve) -> None:
    """Create services, so many at once; `serve` is called with each."""
    busy = asyncio.Semaphore(WORKERS)

    async def one(service: Object) -> None:
        async with busy:
            made = await client.create(service)
        await serve(made)

    await asyncio.gather(*map(one, services))


async def by_the_operator(_: Object) -> None:
    """Nothing is to be done."""


async def complete(client: Client, wanted: Counter[Kind], seconds: float) -> float:
    """Seconds until there are so many of each kind. nan: not in time."""
    began = time.monotonic()
    while (took := time.monotonic() - began) < seconds:
        if all([await client.count(kind) >= number for kind, number in wanted.items()]):
            return took
        await asyncio.sleep(0.2)
    return float("nan")


async def one_more(client: Client, service: Object, last: str, serve: Serve) -> float:
    """Seconds until a new service has its Deployment, the child that is made last."""
    began = time.monotonic()
    served = asyncio.ensure_future(serve(await client.create(service)))
    meta = service["metadata"]
    name = last.replace(own_name(0), meta["name"])
    while not await client.there(DEPLOYMENT, meta["namespace"], name):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    took = time.monotonic() - began
    await served
    return took


class Run:
    """One number of services."""

    def __init__(self, site: Site, client: Client, operator: Operator, count: int, limit: float) -> None:
        self.site, self.client, self.operator = site, client, operator
        self.count, self.limit = count, limit
        self.result: dict[str, Any] = {"services": count}

    def _note(self, what: str, figures: dict[str, Any]) -> None:
        print(json.dumps({what: figures}), flush=True)
        self.result[what] = figures

    async def all(self, idle: float) -> dict[str, Any]:
        """Operator, then floor."""
        for number in range(-(-(self.count + NEW) // PER_NAMESPACE)):
            for prefix in ("operator", "floor"):
                body = {"metadata": {"name": f"{prefix}-{number:03}"}}
                await self.client.ask("POST", "/api/v1/namespaces", body)
        await self._first()
        await self._measure("operator", by_the_operator)
        await self._settled()
        await self._reads()
        await self._restart(idle)
        await self.operator.stop()
        floor = Floor(self.client, self.template)
        async with floor.watching():
            await self._measure("floor", floor.serve)
        return self.result

    async def _first(self) -> None:
        """Start the operator, and learn from one service what children are."""
        await self.operator.start()
        made = asyncio.create_task(first_job(self.client))
        await until("the operator", 120, self.operator, self.operator.ready)
        await self.client.create(named("operator", 0))
        job = await made

        async def is_ready() -> bool:
            found = await self.client.ask("GET", SERVICES_KIND.path("operator-000", own_name(0)))
            conditions = found.get("status", {}).get("conditions", [])
            return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

        await until("the first service", 120, self.operator, is_ready)
        self.template = await children(self.client, "operator-000", own_name(0), job)
        self.kinds = Counter(BY_KIND[child["kind"]] for child in self.template if child["kind"] != "Job")

    async def _measure(self, who: str, serve: Serve) -> None:
        """A burst, and new ones among many."""
        services = [named(who, number) for number in range(1, self.count)]
        wanted = Counter({k: await self.client.count(k) + each * len(services) for k, each in self.kinds.items()})
        mark, spent = self.site.mark(), self._spent(who)
        making = asyncio.create_task(make(self.client, services, serve))
        took = await complete(self.client, wanted, self.limit)
        after = self._spent(who)
        await making
        requests = await self._requests(mark)
        self._note(f"{who} burst", {"seconds": round(took, 1), "CPU ms": after - spent, "requests": requests})
        await asyncio.sleep(5)
        last = next(child for child in self.template if child["kind"] == "Deployment")["metadata"]["name"]
        numbers = range(self.count, self.count + NEW)
        each = [await one_more(self.client, named(who, number), last, serve) for number in numbers]
        self._note(f"{who} new", {"median": round(statistics.median(each), 2), "slowest": round(max(each), 2)})

    def _spent(self, who: str) -> Counter[str]:
        """CPU milliseconds, with the operator's where it works."""
        used = round(1000 * self.operator.usage()[1]) if who == "operator" else 0
        return self.site.spent() + Counter({who: used})

    async def _requests(self, mark: int) -> dict[str, int]:
        found = await asyncio.to_thread(self.site.requests, mark)
        return {f"{who} {verb}": n for (who, verb), n in sorted(found.items()) if who in ("tandem", "kopf", "floor")}

    async def _settled(self) -> None:
        took = await until("all to settle", self.limit, self.operator, steadiness(self.operator, self.count))
        series = await self.operator.series()
        conflicts = [n for key, n in series.items() if REQUESTS in key and 'code="409"' in key]
        figures = {
            "settled after": round(took - STILL_SECONDS, 1),
            "reconciles": sum_of(series, RECONCILES),
            "409": sum(conflicts),
            "MB": round(self.operator.peak / 1e6),
            "block": longest_block(series),
        }
        self._note("burst and new", figures)

    async def _reads(self) -> None:
        """What the reads of one reconcile cost, where nothing else is done."""
        kube_config.KUBE_CONFIG_DEFAULT_LOCATION = str(self.site.cluster.kubeconfig)  # read where it is imported
        settings, spent, own, began = load_settings(), self.site.spent(), time.process_time(), time.monotonic()
        async with await Api.connect() as api:
            for start in range(0, OBSERVED, 4):
                keys = [named("operator", n % self.count)["metadata"] for n in range(start, start + 4)]
                await asyncio.gather(*(observe(api, settings, key["namespace"], key["name"]) for key in keys))
        used = self.site.spent() - spent
        figures = {
            **{name: round(used[name] / OBSERVED, 2) for name in ("etcd", "kube-apiserver")},
            "client": round(1000 * (time.process_time() - own) / OBSERVED, 2),
            "elapsed": round(1000 * (time.monotonic() - began) / OBSERVED, 2),
        }
        self._note("reads of a reconcile, ms", figures)

    async def _restart(self, idle: float) -> None:
        await self.operator.stop()
        mark, spent = self.site.mark(), self.site.spent()
        await self.operator.start()
        took = await until("a restart", self.limit, self.operator, steadiness(self.operator, self.count))
        figures = {
            "steady after": round(took - STILL_SECONDS, 1),
            "CPU ms": self.site.spent() - spent,
            "requests": await self._requests(mark),
            "MB": round(self.operator.peak / 1e6),
            "block": longest_block(await self.operator.series()),
        }
        self._note("restart", figures)
        mark, used, began = self.site.mark(), self.operator.usage()[1], time.monotonic()
        await asyncio.sleep(idle)
        cores = (self.operator.usage()[1] - used) / (time.monotonic() - began)
        requests = await self._requests(mark)
        writes = {key: n for key, n in requests.items() if key.split()[-1] not in (*READS, LEASE_RENEWED)}
        self._note("idle", {"cores": round(cores, 3), "writes": writes})


def table(results: Sequence[dict[str, Any]]) -> str:
    """The rows of docs/design/operator.md."""
    rows = [
        "| services | burst: operator | floor | ratio | a new one: operator | floor | restart | MB | idle: cores |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for each in results:
        ours, least = each["operator burst"]["seconds"], each["floor burst"]["seconds"]
        new = [f"{each[f'{who} new']['median']} s" for who in ("operator", "floor")]
        rows.append(
            f"| {each['services']:,} | {ours} s | {least} s | {ours / least:.1f} | {' | '.join(new)}"
            f" | {each['restart']['steady after']} s | {each['restart']['MB']} | {each['idle']['cores']} |"
        )
    return "\n".join(rows)


async def measured(site: Site, folder: Path, count: int, limit: float, idle: float) -> dict[str, Any]:
    """Everything about one number of services."""
    operator = Operator(site.cluster.kubeconfig, folder)
    async with site.up() as client:
        try:
            return await Run(site, client, operator, count, limit).all(idle)
        finally:
            await operator.stop()


def main(
    services: list[int],
    limit: Annotated[float, typer.Option(help="Seconds for a burst or a restart, at most.")] = 600,
    idle: Annotated[float, typer.Option(help="Seconds to idle.")] = 60,
    keep_log: Annotated[Path | None, typer.Option(help="File for the operator's log.")] = None,
) -> None:
    """Run, and print all figures and the table."""
    results = []
    for count in services:
        site = Site(f"tandem-scale-{count}")
        with tempfile.TemporaryDirectory() as folder:
            try:
                results.append(asyncio.run(measured(site, Path(folder), count, limit, idle)))
            finally:
                if keep_log and (Path(folder) / "operator.log").exists():
                    shutil.copy(Path(folder) / "operator.log", keep_log)
                site.cluster.down()
    print(table(results))


if __name__ == "__main__":
    typer.run(main)
