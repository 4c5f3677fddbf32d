"""Leader election against a fake API server with one Lease and a clock that the test turns."""

import asyncio
import copy
import inspect
import os
import socket
import time
from typing import Any

import pytest

from tandem.cluster.identity import identity
from tandem.cluster.lease import Leadership, since_boot
from tandem.errors import NotLeader, Refused, Transient
from tandem.settings import LeaseSettings


class FakeApi:
    """Keeps one Lease, with the API server's resourceVersion check."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.down = False

    async def get(self, _: object, *named: str) -> dict[str, Any] | None:
        assert named == ("ns", LeaseSettings().name)
        if self.down:
            raise Transient("away")
        return copy.deepcopy(self.lease)

    async def create(self, _: object, lease: dict[str, Any]) -> None:
        if self.down or self.lease:
            raise Transient("exists")
        self.lease = copy.deepcopy(lease)
        self.lease["metadata"]["resourceVersion"] = "1"

    async def replace(self, _: object, lease: dict[str, Any]) -> None:
        assert self.lease is not None
        version = self.lease["metadata"]["resourceVersion"]
        if self.down or lease["metadata"]["resourceVersion"] != version:
            raise Transient("conflict")
        self.lease = copy.deepcopy(lease)
        self.lease["metadata"]["resourceVersion"] = str(int(version) + 1)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def candidate(api: FakeApi, clock: Clock, name: str) -> Leadership:
    return Leadership(api, LeaseSettings(duration_seconds=15), "ns", name, clock)  # type: ignore[arg-type]  # a fake of the part that is used


def test_who_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pod its name, which a container that restarts keeps; elsewhere one of its own for each process."""
    monkeypatch.setenv("POD_NAME", "tandem-operator-1")
    monkeypatch.setenv("POD_NAMESPACE", "tandem-system")
    assert identity() == ("tandem-system", "tandem-operator-1")
    monkeypatch.delenv("POD_NAME")
    assert identity()[1] == f"{socket.gethostname()}-{os.getpid()}"


async def test_one_leads_and_the_other_waits_until_it_is_silent(api: FakeApi, clock: Clock) -> None:
    a, b = candidate(api, clock, "a"), candidate(api, clock, "b")
    await a._step()
    await b._step()
    assert api.lease and (api.lease["kind"], api.lease["spec"]["leaseTransitions"]) == ("Lease", 0)
    a.check()
    with pytest.raises(NotLeader):
        b.check()
    for _ in range(4):
        clock.now += 4
        await a._step()
        await b._step()
    with pytest.raises(NotLeader):
        b.check()
    clock.now += 10.5
    with pytest.raises(NotLeader):
        a.check()
    await b._step()
    with pytest.raises(NotLeader):
        b.check()
    clock.now += 5
    await b._step()
    b.check()
    await a._step()
    with pytest.raises(NotLeader):
        a.check()


async def test_a_leader_cut_off_stops_writing_before_another_may_start(api: FakeApi, clock: Clock) -> None:
    a, b = candidate(api, clock, "a"), candidate(api, clock, "b")
    await a._step()
    await b._step()
    api.down = True
    clock.now += 10
    await a._step()
    with pytest.raises(NotLeader):
        a.check()
    assert not a.acquired.is_set()
    api.down = False
    await b._step()
    with pytest.raises(NotLeader):
        b.check()


async def test_the_lease_is_counted_from_before_it_was_asked_for(
    api: FakeApi, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others count from when they see the renewal, which may be long before its answer comes."""
    a, create = candidate(api, clock, "a"), api.create

    async def answered_late(*arguments: Any) -> None:
        await create(*arguments)
        clock.now += 9

    monkeypatch.setattr(api, "create", answered_late)
    await a._step()
    a.check()
    clock.now += 1
    with pytest.raises(NotLeader):
        a.check()


async def test_a_renewal_that_is_refused_is_tried_again(
    api: FakeApi, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, get = candidate(api, clock, "a"), api.get

    async def refused(*_: object) -> None:
        raise Refused(403, "forbidden")

    monkeypatch.setattr(api, "get", refused)
    await a._step()
    with pytest.raises(NotLeader):
        a.check()
    monkeypatch.setattr(api, "get", get)
    await a._step()
    a.check()


async def test_a_request_without_an_answer_holds_up_no_renewal(
    api: FakeApi, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API client itself would wait for 30 s: longer than the Lease is held."""
    a = Leadership(api, LeaseSettings(duration_seconds=2, renew_seconds=0.02), "ns", "a", clock)  # type: ignore[arg-type]
    get, hung = api.get, asyncio.Event()

    async def hang_once(*_: object) -> None:
        monkeypatch.setattr(api, "get", get)
        hung.set()
        await asyncio.Event().wait()

    await a._step()
    monkeypatch.setattr(api, "get", hang_once)
    running = asyncio.create_task(a.run())
    await hung.wait()
    clock.now += 1
    while a._held_until < clock.now + 1:  # noqa: ASYNC110  # nothing sets an event
        await asyncio.sleep(0.001)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_time_passes_while_the_machine_is_suspended() -> None:
    """A leader that wakes up must not take the Lease that it held for its own."""
    assert since_boot() == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME), abs=60)
    assert inspect.signature(Leadership).parameters["clock"].default is since_boot


async def test_people_see_who_leads_since_when_and_how_often_it_changed(api: FakeApi, clock: Clock) -> None:
    a, b = candidate(api, clock, "a"), candidate(api, clock, "b")
    await a._step()
    assert api.lease
    first = api.lease["spec"]
    await a._step()
    renewed = api.lease["spec"]
    assert renewed["renewTime"] > first["renewTime"] == first["acquireTime"] == renewed["acquireTime"]
    assert (first["leaseTransitions"], renewed["leaseTransitions"]) == (0, 0)
    await b._step()
    clock.now += 20
    await b._step()
    taken = api.lease["spec"]
    assert (taken["holderIdentity"], taken["leaseTransitions"]) == ("b", 1)
    assert taken["acquireTime"] > renewed["renewTime"]
    clock.now += 1
    await a._step()
    clock.now += 20
    await a._step()
    assert (api.lease["spec"]["holderIdentity"], api.lease["spec"]["leaseTransitions"]) == ("a", 2)


async def test_a_released_lease_is_taken_at_once(api: FakeApi, clock: Clock) -> None:
    a, b = candidate(api, clock, "a"), candidate(api, clock, "b")
    await a._step()
    await a._release()
    with pytest.raises(NotLeader):
        a.check()
    await b._step()
    b.check()


async def test_a_renewal_that_failed_is_tried_again_sooner(
    api: FakeApi, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        api.down = len(slept) == 1
        if len(slept) == 3:
            raise asyncio.CancelledError

    a = candidate(api, clock, "a")
    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await a.run()
    renewal = LeaseSettings().renew_seconds
    assert slept == [renewal, pytest.approx(renewal / 5), renewal]


async def test_a_renewal_that_was_on_its_way_does_not_keep_the_lease(
    api: FakeApi, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = candidate(api, clock, "a"), candidate(api, clock, "b")
    await a._step()
    read = api.get

    async def read_before_it_arrives(kind: object, *named: str) -> dict[str, Any] | None:
        lease = await read(kind, *named)
        monkeypatch.setattr(api, "get", read)
        assert lease is not None
        await api.replace(None, lease)
        return lease

    monkeypatch.setattr(api, "get", read_before_it_arrives)
    await a._release()
    await b._step()
    b.check()


async def test_the_same_identity_takes_up_its_own_lease_at_once(api: FakeApi, clock: Clock) -> None:
    await candidate(api, clock, "pod-1")._step()
    again = candidate(api, clock, "pod-1")
    await again._step()
    again.check()


@pytest.mark.parametrize("lease", [{}, {"spec": {}}, {"spec": {"holderIdentity": "", "leaseDurationSeconds": None}}])
async def test_a_lease_that_somebody_made_by_its_name_is_taken(
    lease: dict[str, Any], api: FakeApi, clock: Clock
) -> None:
    api.lease = {"metadata": {"name": "tandem-operator", "resourceVersion": "1"}, **lease}
    a = candidate(api, clock, "a")
    await a._step()
    a.check()
    assert api.lease["spec"]["holderIdentity"] == "a"


@pytest.mark.parametrize("later", range(8))
async def test_it_ends_when_it_is_told_to_though_an_answer_comes_at_that_moment(clock: Clock, later: int) -> None:
    """`later`: turns of the event loop between the answer and the end. `asyncio.wait_for` of Python 3.11 loses the
    end at some of them, and the operator would run until it is killed."""
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    class Slow(FakeApi):
        async def get(self, *_: object) -> dict[str, Any] | None:
            await answer
            return copy.deepcopy(self.lease)

    task = asyncio.create_task(candidate(Slow(), clock, "a").run())
    await asyncio.sleep(0.01)
    answer.set_result(None)
    for _ in range(later):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=1)
    assert done
