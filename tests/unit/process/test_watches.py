"""What is kept of a child, which change concerns its service, and kinds that leave each other alone."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from support.metadata import OWNED, meta
from tandem import names
from tandem.cluster.kinds import (
    BY_KIND,
    CONFIGMAP,
    DISRUPTION_BUDGET,
    LEADER_WORKER_SET,
    POD,
    SERVICES_KIND,
    WATCHED,
    Kind,
)
from tandem.errors import Refused, Transient
from tandem.process.reconcile import Key
from tandem.process.watches import ChildWatches, Sighting, concerns, service_key, sight


@pytest.mark.parametrize(
    ("kind", "metadata", "key", "reason"),
    [
        (SERVICES_KIND, meta("svc"), Key("ns", "svc"), "the service itself"),
        (POD, meta("p", "1", **OWNED), Key("ns", "svc"), "a child names its service by a label"),
        (CONFIGMAP, meta("c"), None, "somebody else's object"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_service_key(kind: Kind, metadata: dict[str, Any], key: Key | None, reason: str) -> None:
    assert service_key(kind, metadata) == key, reason


def autoscaler(version: str, active: str = "True", value: str = "1", **spec: Any) -> dict[str, Any]:
    conditions = [{"type": "ScalingActive", "status": active, "reason": "r", "lastTransitionTime": version}]
    status = {"conditions": conditions, "currentMetrics": [{"value": value}]}
    return {"metadata": meta("h", version, **OWNED), "spec": {"maxReplicas": 4, **spec}, "status": status}


HPA_EVENTS = [
    ("the first that is heard of it", autoscaler("1"), True),
    ("only its figure changed", autoscaler("2", value="2"), False),
    ("it has no figures any more", autoscaler("3", active="False"), True),
    ("nor now", autoscaler("4", active="False", value="3"), False),
    ("somebody edited it", autoscaler("5", active="False", maxReplicas=9), True),
]


def test_an_autoscaler_that_only_counts_concerns_nobody() -> None:
    before: Sighting | None = None
    for reason, obj, told in HPA_EVENTS:
        now = sight(BY_KIND["HorizontalPodAutoscaler"], obj)
        assert concerns(before, now) is told, reason
        assert now.version == obj["metadata"]["resourceVersion"], "or it were missed"
        before = now
    assert concerns(before, None), "it is gone"


def test_everything_that_is_applied_is_watched() -> None:
    assert {kind.kind for kind in WATCHED} >= {"SpeculativeInferenceService", "Deployment", "Pod", "ConfigMap"}


class FakeApi:
    """Lists pods of `pods` and groups, nothing of other kinds; refuses those of `refused`."""

    def __init__(self) -> None:
        self.pods: list[dict[str, Any]] = []
        self.groups: list[dict[str, Any]] = []
        self.refused: dict[Kind, Exception] = {}
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def list_at(
        self, kind: Kind, namespace: str | None, selector: str, take: Callable[[dict[str, Any]], Any], *_: object
    ) -> tuple[list[Any], str]:
        if kind in self.refused:
            raise self.refused[kind]
        found = {POD: self.pods, LEADER_WORKER_SET: self.groups}.get(kind, [])
        return [take({"metadata": each}) for each in found], "1"

    async def watch(self, kind: Kind, *_: object) -> AsyncIterator[dict[str, Any]]:
        while True:
            event = await self.events.get() if kind is POD else await asyncio.Event().wait()
            assert isinstance(event, dict)
            yield event


async def test_one_kind_that_may_not_be_listed_leaves_the_others_watched() -> None:
    api, told = FakeApi(), asyncio.Queue[Key]()
    api.pods = [meta("p", "7", **OWNED)]
    api.refused = {DISRUPTION_BUDGET: Refused(403, "no"), LEADER_WORKER_SET: Refused(404, "no such kind")}
    watches = ChildWatches(api, [None], told.put_nowait)  # type: ignore[arg-type]  # a fake of the part that is used
    task = asyncio.create_task(watches.run())
    await asyncio.wait_for(watches.first_lists(), 60)
    assert told.empty(), "every service is reconciled by its own list"
    api.events.put_nowait({"type": "MODIFIED", "object": {"metadata": meta("p", "8", **OWNED)}})
    assert await asyncio.wait_for(told.get(), 60) == Key("ns", "svc")
    follows = {watch.kind: watch.follows for watch in watches.all}
    assert {kind for kind, so in follows.items() if not so} == {DISRUPTION_BUDGET, LEADER_WORKER_SET}
    task.cancel()


async def test_a_child_with_the_label_of_another_service_concerns_both() -> None:
    """Or the one that lost it would wait for a chance to be looked at."""
    api, told = FakeApi(), asyncio.Queue[Key]()
    api.pods = [meta("p", "7", **OWNED)]
    watches = ChildWatches(api, [None], told.put_nowait)  # type: ignore[arg-type]
    task = asyncio.create_task(watches.run())
    await asyncio.wait_for(watches.first_lists(), 60)
    stolen = meta("p", "8", **{names.LABEL_SERVICE: "other"})
    api.events.put_nowait({"type": "MODIFIED", "object": {"metadata": stolen}})
    found = {await asyncio.wait_for(told.get(), 60) for _ in range(2)}
    assert found == {Key("ns", "svc"), Key("ns", "other")}
    task.cancel()


async def test_a_kind_that_may_be_listed_again_tells_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandem.cluster.reflector.FIRST_DELAY_SECONDS", 0.01)
    api, told = FakeApi(), asyncio.Queue[Key]()
    api.pods = [meta("p", "7", **OWNED)]
    api.refused = {POD: Transient("away")}
    watches = ChildWatches(api, [None], told.put_nowait)  # type: ignore[arg-type]
    task = asyncio.create_task(watches.run())
    await asyncio.wait_for(watches.first_lists(), 60)
    api.refused = {}
    assert await asyncio.wait_for(told.get(), 60) == Key("ns", "svc")
    task.cancel()


async def test_a_kind_whose_definition_is_removed_leaves_nothing_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or each comparison would find its objects gone, and ask for their services, for ever."""
    monkeypatch.setattr("tandem.cluster.reflector.FIRST_DELAY_SECONDS", 0.01)
    api, told = FakeApi(), asyncio.Queue[Key]()
    api.groups = [meta("g", "7", **OWNED)]
    watches = ChildWatches(api, [None], told.put_nowait)  # type: ignore[arg-type]
    task = asyncio.create_task(watches.run())
    await asyncio.wait_for(watches.first_lists(), 60)
    groups = next(watch for watch in watches.all if watch.kind is LEADER_WORKER_SET)
    assert groups.seen.keys() == {"uid-g"}
    api.refused = {LEADER_WORKER_SET: Refused(404, "no such kind")}
    await groups.restart()
    assert await asyncio.wait_for(told.get(), 60) == Key("ns", "svc")
    assert not groups.seen
    task.cancel()


async def test_a_dead_watch_is_listed_anew_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandem.cluster.reflector.FIRST_DELAY_SECONDS", 0.01)
    api, told = FakeApi(), asyncio.Queue[Key]()
    watches = ChildWatches(api, [None], told.put_nowait)  # type: ignore[arg-type]
    task = asyncio.create_task(watches.run())
    await asyncio.wait_for(watches.first_lists(), 60)
    api.pods = [meta("p", "7", **OWNED)]
    pods = next(watch for watch in watches.all if watch.kind is POD)
    await pods.restart()
    assert await asyncio.wait_for(told.get(), 60) == Key("ns", "svc")
    assert pods.seen == {"uid-p": Sighting("7", Key("ns", "svc"))}
    assert pods.follows
    task.cancel()
