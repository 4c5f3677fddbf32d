"""The picture of a kind's objects, against a stand-in that tells lists and events as the test says."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tandem.cluster import reflector
from tandem.cluster.client import JSON, METADATA_EVENTS, METADATA_ONLY
from tandem.cluster.kinds import POD
from tandem.cluster.reflector import FIRST_DELAY_SECONDS, LAST_DELAY_SECONDS, Reflector
from tandem.errors import Transient


def obj(name: str, value: int = 0) -> dict[str, Any]:
    return {"metadata": {"uid": name}, "value": value}


class FakeApi:
    """Lists from `objects`; events come from a queue, and an exception in it ends the watch."""

    def __init__(self) -> None:
        self.objects: list[dict[str, Any]] = []
        self.events: asyncio.Queue[dict[str, Any] | Exception | None] = asyncio.Queue()
        self.lists = 0
        self.asked: list[object] = []
        """Types of content."""
        self.down = False

    async def list_at(
        self, kind: object, namespace: object, selector: object, take: Callable[[dict[str, Any]], Any], accept: object
    ) -> tuple[list[Any], str]:
        self.asked.append(accept)
        if self.down:
            raise Transient("away")
        self.lists += 1
        return list(map(take, self.objects)), str(self.lists)

    async def watch(self, *_: object) -> AsyncIterator[dict[str, Any]]:
        self.asked.append(_[-1])
        while True:
            event = await self.events.get()
            if event is None:
                return
            if isinstance(event, Exception):
                raise event
            yield event


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


def odd(item: dict[str, Any]) -> int | None:
    return int(item["value"]) if item["value"] % 2 else None


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_lists_then_follows_events(api: FakeApi) -> None:
    api.objects = [obj("a", 1), obj("b", 2)]
    seen = Reflector(api, POD, None, "", odd)  # type: ignore[arg-type]  # a fake of the part that is used
    task = asyncio.create_task(seen.run())
    await seen.listed.wait()
    assert seen.held == [1], "b is of no interest"
    steps: list[tuple[str, dict[str, Any], list[int]]] = [
        ("ADDED", obj("c", 3), [1, 3]),
        ("MODIFIED", obj("a", 5), [5, 3]),
        ("BOOKMARK", obj(""), [5, 3]),
        ("MODIFIED", obj("a", 6), [3]),
        ("DELETED", obj("c", 3), []),
        ("DELETED", obj("never seen", 3), []),
    ]
    for kind, item, held in steps:
        api.events.put_nowait({"type": kind, "object": item})
        await settle()
        assert seen.held == held, kind
    assert api.asked == [JSON, JSON]
    assert not task.done()
    task.cancel()


async def test_metadata_alone_is_asked_for_where_it_is_enough(api: FakeApi) -> None:
    seen = Reflector(api, POD, None, "", odd)  # type: ignore[arg-type]
    seen.accept = (METADATA_ONLY, METADATA_EVENTS)
    task = asyncio.create_task(seen.run())
    await settle()
    assert api.asked == [METADATA_ONLY, METADATA_EVENTS]
    task.cancel()


async def test_every_end_of_a_watch_is_followed_by_a_list(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """So what a watch lost is found: here a deletion and a creation that no event told."""
    monkeypatch.setattr(reflector, "FIRST_DELAY_SECONDS", 0.0)
    api.objects = [obj("a", 1)]
    seen = Reflector(api, POD, None, "", odd)  # type: ignore[arg-type]
    task = asyncio.create_task(seen.run())
    await seen.listed.wait()
    for end in (None, Transient("cut"), Transient("410: too old")):
        api.objects = [obj("b", 2 * api.lists + 1)]
        before = api.lists
        api.events.put_nowait(end)
        await settle()
        assert api.lists == before + 1
        assert seen.held == [2 * before + 1]
    task.cancel()


async def test_what_is_the_same_in_a_new_list_stays_the_same_object(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of new ones at each list would be garbage collection's work."""
    monkeypatch.setattr(reflector, "FIRST_DELAY_SECONDS", 0.0)
    api.objects = [obj("a", 1), obj("b", 3)]
    seen = Reflector(api, POD, None, "", lambda item: (item["value"],))  # type: ignore[arg-type]
    task = asyncio.create_task(seen.run())
    await seen.listed.wait()
    first = dict(seen.seen)
    api.objects = [obj("a", 1), obj("b", 5)]
    api.events.put_nowait(None)
    await settle()
    assert seen.seen == {"a": (1,), "b": (5,)}
    assert seen.seen["a"] is first["a"]
    task.cancel()


async def test_what_was_seen_stays_while_the_api_server_is_away(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "FIRST_DELAY_SECONDS", 0.0)
    api.objects = [obj("a", 1)]
    seen = Reflector(api, POD, None, "", odd)  # type: ignore[arg-type]
    task = asyncio.create_task(seen.run())
    await seen.listed.wait()
    api.down = True
    api.events.put_nowait(Transient("cut"))
    await settle()
    assert (seen.held, seen.problem) == ([1], "away")
    api.down = False
    await settle()
    assert seen.problem == ""
    task.cancel()


@pytest.mark.parametrize("end", [None, Transient("cut")], ids=["in peace", "by an error"])
async def test_where_each_watch_ends_at_once_lists_come_ever_more_rarely(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, end: Exception | None
) -> None:
    """Behind a proxy that ends them, say: thousands of pods are not read on end."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 7:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    for _ in range(7):
        api.events.put_nowait(end)
    with pytest.raises(asyncio.CancelledError):
        await Reflector(api, POD, None, "", odd).run()  # type: ignore[arg-type]
    most = [min(FIRST_DELAY_SECONDS * 2**i, LAST_DELAY_SECONDS) for i in range(7)]
    assert all(high / 2 <= seconds <= high for seconds, high in zip(slept, most, strict=True)), slept


async def test_a_list_that_goes_on_is_not_given_up(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a watch can have missed something. A list of thousands would never come to its end."""
    ends, listed = asyncio.Event(), api.list_at

    async def list_at(*arguments: Any) -> Any:
        await ends.wait()
        return await listed(*arguments)

    monkeypatch.setattr(api, "list_at", list_at)
    seen = Reflector(api, POD, None, "", odd)  # type: ignore[arg-type]
    await seen.restart()
    task = asyncio.create_task(seen.run())
    await settle()
    await seen.restart()
    await settle()
    ends.set()
    await settle()
    assert (seen.listed.is_set(), api.lists) == (True, 1)
    task.cancel()
