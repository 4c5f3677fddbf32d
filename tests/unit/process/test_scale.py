"""The rules by which thousands of services settle, on a few: `tests/bench/scale` measures them on thousands."""

import asyncio
import gc
import time
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import generate_latest

from bench.scale.__main__ import NAMESPACE, copy, own_name, total
from support.api_server import Cluster
from tandem.api.types import SpeculativeInferenceService
from tandem.cluster.client import Api
from tandem.cluster.observe import observe
from tandem.process.operator import COLLECTED, Operator
from tandem.process.reconcile import Key, Next
from tandem.rollout.decide import Decision, decide
from tandem.rollout.observed import Observed
from tandem.settings import Settings

SERVICES = 20


def series(name: str) -> float:
    """Of this process, whose tests before it have counted, too."""
    rows = (line.rpartition(" ") for line in generate_latest().decode().splitlines() if not line.startswith("#"))
    return total({key: float(value) for key, _, value in rows}, name)


async def test_a_first_list_that_takes_long_is_no_dead_watch(cluster: Cluster) -> None:
    """kopf works through it, and comparisons come meanwhile: nothing is listed or reconciled twice."""
    await cluster.bring_up()
    copy(cluster.server.store, SERVICES)
    restarts, reconciles = "tandem_operator_watch_restarts_total", "tandem_operator_reconcile_seconds_count"
    before = {name: series(name) for name in (restarts, reconciles)}
    cluster.server.list_seconds = {"kopf": 8.0}
    gc.unfreeze()
    task = asyncio.create_task(Operator(cluster.api, cluster.settings).run("127.0.0.1", 0))
    await asyncio.sleep(14)
    assert not task.done()
    assert gc.get_freeze_count() > 0, "the first lists are no work for garbage collection"
    assert gc.get_threshold() == COLLECTED
    assert series(restarts) - before[restarts] == 0
    assert series(reconciles) - before[reconciles] == SERVICES
    assert cluster.writes() == set()
    task.cancel()
    await asyncio.wait([task])


async def test_lists_of_children_are_of_their_metadata_alone(cluster: Cluster) -> None:
    """Whole ones are several times as large, and nobody looks at them: a reconcile reads its own service's anew."""
    await cluster.bring_up()
    asked: list[tuple[str, bool]] = []

    def look(request: web.Request) -> None:
        if "/namespaces/" not in request.path and request.query:
            asked.append((request.path.rpartition("/")[2], "PartialObjectMetadata" in request.headers["Accept"]))

    cluster.server.instead = look
    task = asyncio.create_task(Operator(cluster.api, cluster.settings).run("127.0.0.1", 0))
    await asyncio.sleep(4)
    task.cancel()
    await asyncio.wait([task])
    whole = {plural for plural, partial in asked if not partial}
    assert whole == {"speculativeinferenceservices", "horizontalpodautoscalers", "scaledobjects"}


async def test_services_that_are_decided_at_once_leave_the_loop_its_turns(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All workers hear from the API server at about the same time: one after the other they would block for long."""
    await cluster.bring_up()
    copy(cluster.server.store, SERVICES)
    seconds, lags, answers = 0.1, list[float](), asyncio.Event()

    async def observed(
        api: Api, settings: Settings, *key: str
    ) -> tuple[SpeculativeInferenceService, Observed] | None:
        found = await observe(api, settings, *key)
        await answers.wait()
        return found

    def slow(*arguments: Any) -> Decision:
        time.sleep(seconds)
        return decide(*arguments)

    async def sample() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0)
            lags.append(time.monotonic() - began)

    monkeypatch.setattr("tandem.process.reconcile.decide", slow)
    monkeypatch.setattr("tandem.process.reconcile.observe", observed)
    keys = [Key(NAMESPACE, own_name(number)) for number in range(SERVICES)]
    done = asyncio.gather(*map(cluster.reconciler.reconcile, keys))
    await asyncio.sleep(3)
    sampler = asyncio.create_task(sample())
    answers.set()
    assert set(await done) == {Next.EVENT}
    sampler.cancel()
    assert max(lags) < SERVICES * seconds / 2
