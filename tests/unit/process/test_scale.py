"""The rules by which thousands of services settle, on a few: `tests/bench/scale` measures them on thousands."""

import asyncio
import gc
import itertools
from collections.abc import Callable
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
WHOLE = {"speculativeinferenceservices", "horizontalpodautoscalers", "scaledobjects"}
OF_METADATA = {"deployments", "configmaps", "services", "jobs"}


async def until(reached: Callable[[], bool]) -> None:
    """Wait for what only a fault keeps from coming within two minutes."""
    for _ in range(2400):
        if reached():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("not within two minutes")


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
    await until(lambda: series(reconciles) - before[reconciles] >= SERVICES)
    await asyncio.sleep(3)  # nothing comes behind
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
    expected = {(plural, False) for plural in WHOLE} | {(plural, True) for plural in OF_METADATA}
    await until(lambda: expected <= {*asked})
    task.cancel()
    await asyncio.wait([task])
    assert {plural for plural, partial in asked if not partial} == WHOLE


async def test_services_that_are_decided_at_once_leave_the_loop_its_turns(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All workers hear from the API server at about the same time: one after the other they would block for long."""
    await cluster.bring_up()
    copy(cluster.server.store, SERVICES)
    order, asked, answers = list[str](), list[str](), asyncio.Event()

    async def observed(
        api: Api, settings: Settings, *key: str
    ) -> tuple[SpeculativeInferenceService, Observed] | None:
        found = await observe(api, settings, *key)
        asked.append(key[1])
        await answers.wait()
        return found

    def noted(*arguments: Any) -> Decision:
        order.append("decided")
        return decide(*arguments)

    async def others() -> None:
        while True:
            await asyncio.sleep(0)
            order.append("others")

    monkeypatch.setattr("tandem.process.reconcile.decide", noted)
    monkeypatch.setattr("tandem.process.reconcile.observe", observed)
    keys = [Key(NAMESPACE, own_name(number)) for number in range(SERVICES)]
    done = asyncio.gather(*map(cluster.reconciler.reconcile, keys))
    await until(lambda: len(asked) == SERVICES)
    beside = asyncio.create_task(others())
    answers.set()
    assert set(await done) == {Next.EVENT}
    beside.cancel()
    runs = [len(list(run)) for what, run in itertools.groupby(order) if what == "decided"]
    assert sum(runs) == SERVICES
    assert max(runs) == 1, "others have a turn after each"
