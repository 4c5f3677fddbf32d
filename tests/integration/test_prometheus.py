"""A real Prometheus as the source of figures: they are those that the pods themselves give."""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tandem.http.credentials import Credentials
from tandem.metrics.telemetry.figures import Figures
from tandem.metrics.telemetry.prometheus import PrometheusSource
from tandem.metrics.telemetry.scrape import ScrapeLimits, Scraper
from tandem.metrics.telemetry.source import MetricsSource, ScrapeTarget
from tandem.metrics.telemetry.windows import Store

from .prometheus import PROMETHEUS, SCRAPE_SECONDS, Served, locked, prometheus, served

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(PROMETHEUS is None, reason="no prometheus here: `make deps` installs Debian's"),
]
WINDOW = 30.0


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
