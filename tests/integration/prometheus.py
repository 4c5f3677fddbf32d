"""A Prometheus on this machine, and pods for it to scrape."""

import asyncio
import contextlib
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import yaml

from cluster.pki import Identity, issue, load_authority
from cluster.ports import free_port
from tandem.metrics.telemetry.source import ScrapeTarget
from tandem_serving import metrics as m
from unit.metrics.telemetry.hostile_pods import Pod, fixed, serve
from unit.metrics.telemetry.metrics_pages import PageSink

PROMETHEUS = shutil.which("prometheus")
SCRAPE_SECONDS = 0.5
POD_LABELS = {"container": "triton", "speculativeinferenceservice": "llama"}


@contextlib.contextmanager
def prometheus(folder: Path, pods: list[ScrapeTarget], web: Path | None = None, **settings: Any) -> Iterator[str]:
    """Prometheus' URL; it scrapes the pods with the labels that a PodMonitor sets. `web`: its `--web.config.file`,
    with TLS; `settings`: more of its configuration, such as further `scrape_configs`."""
    jobs = [
        {
            "targets": [f"{pod.address}:{pod.port}"],
            "labels": {**POD_LABELS, "namespace": pod.namespace, "pod": pod.name},
        }
        for pod in pods
    ]
    often = {"scrape_interval": f"{SCRAPE_SECONDS * 1000:.0f}ms", "scrape_timeout": "400ms"}
    settings = {
        "global": {**often, "evaluation_interval": "500ms"},
        **settings,
        "scrape_configs": [
            {"job_name": "services", "static_configs": jobs},
            *settings.get("scrape_configs", ()),
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
    address = f"127.0.0.1:{free_port()}"
    command = [PROMETHEUS or "", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    command += [f"--web.listen-address={address}", *([f"--web.config.file={web}"] if web else [])]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_ready(folder / "log", process)
        yield f"{'https' if web else 'http'}://{address}"
    finally:
        process.terminate()
        process.wait(240)


def wait_ready(log: Path, process: "subprocess.Popen[bytes]") -> None:
    """By its log, which it writes whoever may ask it."""
    deadline = time.monotonic() + 120
    while "Server is ready to receive web requests" not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


class Served:
    """A pod's server: 100 rounds a second of four draft tokens, three of them accepted."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Count from 0, as a container that starts again."""
        self._counted, self._sink = m.Metrics(), PageSink()
        self._started, self._rounds = time.monotonic(), 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Write the page."""
        self._counted.set(m.RUNNING, 2)
        self._counted.set(m.WAITING, 0)
        while self._rounds < 100 * (time.monotonic() - self._started):
            self._rounds += 1
            self._counted.step(tokens=4, drafted=4, accepted=3)
            self._counted.observe(m.INTER_TOKEN, 0.03, 4)
            self._counted.observe(m.FIRST_TOKEN, 0.3)
            self._counted.add(m.PROMPT_TOKENS, 16)
        self._counted.flush(self._sink)
        await fixed(self._sink.page(), "Content-Type: text/plain; version=0.0.4\r\n")(reader, writer)


@contextlib.asynccontextmanager
async def served(*servers: Served) -> AsyncIterator[list[ScrapeTarget]]:
    async with AsyncExitStack() as stack:
        pods: list[Pod] = [await stack.enter_async_context(serve(server.answer)) for server in servers]
        yield [ScrapeTarget(f"uid-{n}", "ns", f"pod-{n}", "127.0.0.1", pod.port) for n, pod in enumerate(pods)]


PASSWORD = "open sesame"
BCRYPT = "$2b$04$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy"


def locked(folder: Path) -> tuple[Path, dict[str, str]]:
    """Prometheus' `--web.config.file`, with TLS and basic authentication, and what it asks of Tandem."""
    authority = load_authority(folder, "ca")
    certificate, key = issue(authority, "prometheus", Identity("prometheus", names=("127.0.0.1",)))
    server = {"cert_file": str(certificate), "key_file": str(key)}
    (folder / "web.yml").write_text(
        yaml.safe_dump({"tls_server_config": server, "basic_auth_users": {"tandem": BCRYPT}})
    )
    (folder / "password").write_text(f"{PASSWORD}\n")
    asked = {"caFile": str(authority.path), "username": "tandem", "passwordFile": str(folder / "password")}
    return folder / "web.yml", asked
