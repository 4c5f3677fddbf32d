"""A real Prometheus as the source of figures: they are those that the pods themselves give."""

import asyncio
import contextlib
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.pki import Identity, issue, load_authority
from cluster.ports import free_port
from tandem.http.credentials import Credentials
from tandem.metrics.telemetry.figures import Figures
from tandem.metrics.telemetry.prometheus import PrometheusSource
from tandem.metrics.telemetry.scrape import ScrapeLimits, Scraper
from tandem.metrics.telemetry.source import MetricsSource, ScrapeTarget
from tandem.metrics.telemetry.windows import Store
from tandem_serving import metrics as m
from unit.metrics.telemetry.hostile_pods import Pod, fixed, serve
from unit.metrics.telemetry.metrics_pages import PageSink

PROMETHEUS = shutil.which("prometheus")
pytestmark = pytest.mark.skipif(PROMETHEUS is None, reason="no prometheus here: `make deps` installs Debian's")
SCRAPE_SECONDS = 0.5
WINDOW = 30.0
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
        process.wait(60)


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


async def first_scrape(url: str, targets: list[ScrapeTarget], credentials: Credentials | None = None) -> None:
    """Wait until Prometheus has samples of the pods: its targets change every five seconds."""
    deadline = time.monotonic() + 120
    async with PrometheusSource(url, credentials) as source:
        while problems := await source.collect(targets, Store(300)):
            assert time.monotonic() < deadline, problems
            await asyncio.sleep(SCRAPE_SECONDS)


async def test_figures_are_those_of_the_pods_themselves(tmp_path: Path) -> None:
    servers = [Served(), Served()]
    async with served(*servers) as targets, AsyncExitStack() as stack:
        url = await asyncio.to_thread(stack.enter_context, prometheus(tmp_path, targets))
        sources: list[tuple[MetricsSource, Store]] = [
            (
                await stack.enter_async_context(
                    Scraper(ScrapeLimits(spread_seconds=0, seconds=60, connect_seconds=60))
                ),
                Store(300),
            ),
            (await stack.enter_async_context(PrometheusSource(url)), Store(300)),
        ]

        async def rounds(number: int) -> list[Figures]:
            for _ in range(number):
                await asyncio.sleep(SCRAPE_SECONDS)
                for source, store in sources:
                    assert await source.collect(targets, store) == {}
            return [store.figures([t.uid for t in targets], time.time(), WINDOW) for _, store in sources]

        await first_scrape(url, targets)
        await rounds(4)
        servers[0].restart()
        scraped, asked = await rounds(8)
        for figures in (scraped, asked):
            assert (len(figures.pods), figures.unknown) == (2, 0)
            assert figures.acceptance_rate == pytest.approx(0.75)
            assert figures.mean_accepted_length == pytest.approx(4)
            assert figures.rate("rounds") == pytest.approx(200, rel=0.25)
            assert figures.rate("generation_tokens") == pytest.approx(800, rel=0.25)
            assert figures.sum("running") == 4
            latency = figures.histogram("inter_token_latency")
            assert latency is not None
            assert latency.mean == pytest.approx(0.03)
            assert latency.count == figures.sum("generation_tokens")
            assert figures.accepted_per_position == pytest.approx((figures.sum("rounds"),) * 3)


async def test_a_pod_that_prometheus_does_not_know_is_told_so(tmp_path: Path) -> None:
    async with served(Served()) as (known,):
        other = ScrapeTarget("uid-other", "ns", "another", "127.0.0.1", known.port)
        with prometheus(tmp_path, [known]) as url:
            store = Store(300)
            await first_scrape(url, [known])
            async with PrometheusSource(url) as source:
                problems = await source.collect([known, other], store)
    assert problems == {"uid-other": "Prometheus has not scraped it within a minute: does a PodMonitor select it?"}
    assert store.latest("uid-0") == pytest.approx(time.time(), abs=30)


PASSWORD, BCRYPT = "open sesame", "$2b$04$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy"


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


async def test_one_that_asks_who_asks(tmp_path: Path) -> None:
    """TLS by an authority of its own, and basic authentication: right, and with each part wrong."""
    web, asked = locked(tmp_path)
    (tmp_path / "other").write_text("open barley\n")
    wrong = {
        "answers 401: Unauthorized": asked | {"passwordFile": str(tmp_path / "other")},
        "answers 401": {"caFile": asked["caFile"]},
        "certificate verify failed": {k: v for k, v in asked.items() if k != "caFile"},
    }
    async with served(Served()) as (pod,):
        with prometheus(tmp_path, [pod], web) as url:
            right, store = Credentials.model_validate(asked), Store(300)
            await first_scrape(url, [pod], right)
            async with PrometheusSource(url, right) as source:
                assert await source.collect([pod], store) == {}
                assert store.latest("uid-0") is not None
                (tmp_path / "password").write_text("changed")
                assert "answers 401" in (await source.collect([pod], store))["uid-0"], "read anew"
            for reason, given in wrong.items():
                async with PrometheusSource(url, Credentials.model_validate(given)) as source:
                    assert reason in (await source.collect([pod], Store(300)))["uid-0"]
