"""What `tandem metrics run` costs with a thousand pods, as a whole: watches, rounds, policy, and the server.

    PYTHONPATH=tests:operator python tests/bench/metrics_run.py

A real API server holds the services and their pods; the nodes are simulated, and the pods have addresses of
127.0.0.0/8, at which one process of this machine answers with pages of a real server (see collect.py). The metrics
server is a process with the chart's command and its default settings. While it is measured, somebody asks for every
service once an interval, as autoscalers do, and for all of them, as the operator does. Afterwards this process only
fetches the same pages, as often: the floor. It prints CPU time in cores, memory, how long answers take, and how long
a round does: from its begin, over the time in which pods are read one after the other, until its values are served.
"""

import asyncio
import base64
import contextlib
import json
import multiprocessing
import os
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import psutil
import typer
from rich.console import Console

from bench import collect
from cluster.core import Cluster
from cluster.ports import free_port
from integration.metrics_server import telling_cluster
from integration.pages import PORT
from tandem import names
from tandem.metrics.telemetry.source import ScrapeTarget
from tandem.metrics_server.authentication import AUDIENCE

REPOSITORY = Path(__file__).parents[2]
NAMESPACE, SYSTEM = "default", "tandem-system"
NODE_PODS = 200
console = Console(width=200 if not sys.stdout.isatty() else None)


def service(number: int) -> dict[str, Any]:
    """A service that asks for autoscaling."""
    spec = {
        "runtime": {"mode": "BLS", "profile": "reference"},
        "target": {"model": {"uri": "file:///opt/reference/pair/target"}},
        "draft": {"model": {"uri": "file:///opt/reference/pair/draft"}},
        "speculation": {"decodingType": "DraftTarget", "maxDraftLen": 6},
        "autoscaling": {"maxReplicas": 50, "objectives": {"queueLength": 4, "interTokenLatency": "50ms"}},
    }
    kind = {"apiVersion": "serving.tandem.dev/v1alpha1", "kind": "SpeculativeInferenceService"}
    return {**kind, "metadata": {"name": f"svc-{number}"}, "spec": spec}


def pod(number: int, services: int) -> dict[str, Any]:
    """A server pod of one of the services."""
    labels = {**names.selector(f"svc-{number % services}"), names.LABEL_MANAGED_BY: names.FIELD_MANAGER}
    container = {"name": names.CONTAINER, "image": "example.com/triton"}
    spec = {"nodeName": f"simulated-{number // NODE_PODS}", "containers": [container]}
    metadata = {"name": f"pod-{number}", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@contextmanager
def cluster_of(services: int, pods: int) -> Iterator[Cluster]:
    """A cluster with so many services and Ready pods."""
    manifests = [*map(service, range(services)), *(pod(number, services) for number in range(pods))]
    everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
    with telling_cluster("tandem-bench", SYSTEM, nodes=-(-pods // NODE_PODS)) as made:
        made.kubectl.run("apply", "-f", str(REPOSITORY / "crds"))
        made.kubectl.run("wait", "--for=condition=Established", "crd", "--all")
        made.kubectl.run("create", "-f", "-", stdin=everything)
        made.kubectl.run("wait", "--for=condition=Ready", "pods", "--all", "--timeout=120s")
        yield made


@contextmanager
def pages_served() -> Iterator[None]:
    """One process answers for all pods."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=collect.serve, args=(theirs, PORT), daemon=True)
    process.start()
    ours.recv()
    try:
        yield
    finally:
        process.terminate()


class Server:
    """`tandem metrics run`, and what it says."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self.http, self.https = cluster, free_port(), free_port()
        command = [sys.executable, "-m", "tandem", "metrics", "run", "--log-level", "warning"]
        command += ["--bind", f"127.0.0.1:{self.http}", "--secure-bind", f"127.0.0.1:{self.https}"]
        own = {"KUBECONFIG": str(cluster.kubeconfig), "POD_NAMESPACE": SYSTEM}
        self._process = subprocess.Popen(command, env=os.environ | own)
        self.usage = psutil.Process(self._process.pid)

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(20)

    @property
    def cpu(self) -> float:
        """CPU time so far, seconds."""
        times = self.usage.cpu_times()
        return times.user + times.system

    def access(self) -> tuple[str, ssl.SSLContext]:
        """Token and TLS of somebody who may read the reports."""
        run = self._cluster.kubectl.run
        run("create", "serviceaccount", "reader")
        run("create", "clusterrole", "reader", "--verb=get", "--non-resource-url=/v1/services,/v1/services/*")
        run("create", "clusterrolebinding", "reader", "--clusterrole=reader", f"--serviceaccount={NAMESPACE}:reader")
        secret = json.loads(run("get", "secret", "tandem-metrics-certificate", "-n", SYSTEM, "-o", "json"))
        context = ssl.create_default_context(cadata=base64.b64decode(secret["data"]["ca.crt"]).decode())
        context.check_hostname = False  # it is asked by its address here
        return run("create", "token", "reader", f"--audience={AUDIENCE}").strip(), context


async def ask(session: aiohttp.ClientSession, url: str, waited: list[float]) -> Any:
    """What the server says; `waited` gets how long it took."""
    started = time.monotonic()
    async with session.get(url) as reply:
        assert reply.status == 200, await reply.text()
        said = await reply.json()
    waited.append(time.monotonic() - started)
    return said


async def probe(server: Server, path: str) -> str:
    """What it says at the port of its probes; empty while it does not, or is not ready."""
    async with aiohttp.ClientSession() as session:
        with contextlib.suppress(aiohttp.ClientConnectorError):
            async with session.get(f"http://127.0.0.1:{server.http}{path}") as reply:
                return await reply.text() if reply.status == 200 else ""
    return ""


async def rounds_so_far(server: Server) -> tuple[float, float]:
    """Number of rounds whose values were served, and what they took from their begin until then, all together (s)."""
    series = dict(line.rsplit(" ", 1) for line in (await probe(server, "/metrics")).splitlines())
    number, seconds = (float(series[f"tandem_metrics_round_seconds_{part}"]) for part in ("count", "sum"))
    return number, seconds


async def measure(server: Server, services: int, pods: int, rounds: int, interval: float) -> None:
    """Let it run, and print what it took."""
    while not await probe(server, "/readyz"):  # noqa: ASYNC110
        await asyncio.sleep(0.5)
    token, context = server.access()
    url, headers = f"https://127.0.0.1:{server.https}/v1/services", {"Authorization": f"Bearer {token}"}
    cores: list[float] = []
    took: list[float] = []
    waited: list[float] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), headers=headers) as session:
        await asyncio.sleep(5 * interval)  # until windows are full
        for _ in range(rounds):
            cpu, started, before = server.cpu, time.monotonic(), await rounds_so_far(server)
            items = (await ask(session, url, waited))["items"]
            assert sum(item["pods"] for item in items) == pods
            assert all(item["decision"]["signal"] != "Hold" for item in items)
            for number in range(services):
                await ask(session, f"{url}/{NAMESPACE}/svc-{number}", waited)
                await asyncio.sleep(max(0.0, started + interval * (number + 1) / services - time.monotonic()))
            cores.append((server.cpu - cpu) / (time.monotonic() - started))
            done, seconds = (now - then for now, then in zip(await rounds_so_far(server), before, strict=True))
            took += [seconds / done] if done else []
    floor = await floor_of(pods, rounds, interval)
    told("tandem metrics run", cores)
    told("fetching alone", floor)
    console.print(f"ratio: {statistics.median(cores) / statistics.median(floor):.2f}")
    console.print(f"a round: {statistics.median(took):.1f} s ({min(took):.1f} to {max(took):.1f}) of {interval:g} s")
    console.print(f"memory: {server.usage.memory_info().rss / 2**20:.0f} MiB")
    median, most = statistics.median(waited), statistics.quantiles(waited, n=100, method="inclusive")[98]
    slowest = f"99% within {most * 1e3:.0f} ms, the slowest {max(waited) * 1e3:.0f} ms"
    console.print(f"answers: median {median * 1e3:.1f} ms, {slowest}")


def told(what: str, cores: list[float]) -> None:
    """Print a median."""
    console.print(f"{what}: {statistics.median(cores):.3f} cores ({min(cores):.3f} to {max(cores):.3f})")


async def floor_of(pods: int, rounds: int, interval: float) -> list[float]:
    """Cores that fetching the same pages takes."""
    targets: list[ScrapeTarget] = collect.targets_at(PORT, pods)
    async with aiohttp.ClientSession() as session:
        fetch = lambda: collect.fetch_all(session, targets, interval * 2 / 3)  # noqa: E731
        return [await collect.cores(fetch, interval) for _ in range(rounds)]


def run(
    pods: Annotated[int, typer.Option(help="Ready pods.")] = 1000,
    services: Annotated[int, typer.Option(help="Services that they belong to.")] = 100,
    rounds: Annotated[int, typer.Option(help="Intervals behind each median.")] = 6,
) -> None:
    """CPU, memory and answers of the metrics server, beside fetching alone."""
    interval = 15.0
    with ExitStack() as made:
        made.enter_context(pages_served())
        server = Server(made.enter_context(cluster_of(services, pods)))
        made.callback(server.stop)
        asyncio.run(measure(server, services, pods, rounds, interval))


if __name__ == "__main__":
    typer.run(run)
