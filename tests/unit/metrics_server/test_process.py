"""What the metrics server is wired of, by its settings."""

import asyncio
import json
from dataclasses import replace

import pytest
from aiohttp import web

from tandem.http.listener import Listener
from tandem.metrics.telemetry.source import ScrapeTarget
from tandem.metrics.telemetry.windows import Store
from tandem.metrics_server import process
from tandem.metrics_server.authentication import RequestHeader
from tandem.metrics_server.certificates import Certificate, renewed, utc_now
from tandem.metrics_server.process import MetricsServer
from tandem.metrics_server.rounds import source
from tandem.metrics_server.trust import Trust
from tandem.settings import MetricsServerSettings, Settings
from unit.metrics.telemetry.hostile_pods import fixed, serve

TOKENS = "tandem_generation_tokens_total"
SAMPLES = [{"metric": {"__name__": TOKENS, "namespace": "ns", "pod": "pod"}, "values": [[100, "7"]]}]
ANSWER = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": SAMPLES}}).encode()


async def test_pods_are_read_themselves_or_by_the_prometheus_that_is_named() -> None:
    async with serve(fixed(f"{TOKENS} 7\n".encode())) as pod, serve(fixed(ANSWER)) as prometheus:
        target, seen = ScrapeTarget("uid", "ns", "pod", "127.0.0.1", pod.port), []
        for url in ("", f"http://127.0.0.1:{prometheus.port}"):
            store = Store(300)
            settings = MetricsServerSettings(interval_seconds=0.1, prometheus_url=url)
            async with source(settings) as read:
                assert await read.collect([target], store) == {}
            assert store.latest("uid") is not None
            seen.append((pod.asked, prometheus.asked))
    assert seen == [(1, 0), (1, 1)]


def test_it_is_ready_when_pods_were_read_twice() -> None:
    """Before, it would tell autoscalers and the operator of every service that no pod tells figures."""
    server = MetricsServer(None, Settings())  # type: ignore[arg-type]  # nothing is asked of the API server
    server._trust = Trust(certificate(), RequestHeader(), "")
    for reflector in server._rounds._inventory._all:
        reflector.listed.set()
    said = [server.not_ready()]
    for _ in range(2):
        server._rounds.board.post([])
        said.append(server.not_ready())
    assert said == ["the last round is too long ago", "pods were read once: figures need two readings", ""]


def certificate() -> Certificate:
    made = renewed(None, ["x"], utc_now())
    assert made is not None
    return made


async def test_it_is_not_ready_while_its_certificate_is_no_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as an administrator's whose key was changed first: nothing listens for autoscalers."""
    monkeypatch.setattr(process, "RETRY_SECONDS", 0.01)
    server = MetricsServer(None, Settings())  # type: ignore[arg-type]  # nothing is asked of the API server
    good, said, listening = certificate(), list[str](), asyncio.Event()
    bad = replace(good, key=certificate().key)

    async def look() -> Trust:
        said.append(server.not_ready())
        return Trust(bad if len(said) < 4 else good, RequestHeader(), "")

    async def listen(_: object) -> None:
        listening.set()

    listener = Listener(web.Application(), "127.0.0.1", 0)
    monkeypatch.setattr(server._keeper, "look", look)
    monkeypatch.setattr(listener, "listen", listen)
    keeping = asyncio.create_task(server._keep_trust(listener))
    async with asyncio.timeout(60):
        await listening.wait()
    keeping.cancel()
    assert ["cannot be used" in each for each in said] == [False, True, True, True]
