"""The queue: each key once, never twice at the same time, never lost."""

import asyncio
import itertools
import time
from collections.abc import Callable

import pytest

from tandem.process import workqueue
from tandem.process.workqueue import WorkQueue


async def drain(queue: "Recorder", workers: int, seconds: float = 0.05) -> None:
    """Work until nothing has been handed out for `seconds`."""
    tasks = [asyncio.create_task(queue.work(queue.handle)) for _ in range(workers)]
    before = -1
    while len(queue.seen) > before or queue.at_once:
        before = len(queue.seen)
        await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()


class Recorder(WorkQueue[str]):
    """A queue whose handler writes down what it was given; `during` runs inside."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.at_once = 0
        self.most_at_once = 0
        self.during: Callable[[str], None] = lambda key: None

    async def handle(self, key: str) -> None:
        self.seen.append(key)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.during(key)
        try:
            await asyncio.sleep(0.001)
        finally:  # a worker may be cancelled here
            self.at_once -= 1


async def test_a_key_that_waits_is_not_queued_twice() -> None:
    queue = Recorder()
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert len(queue) == 2
    await drain(queue, 1)
    assert queue.seen == ["a", "b"]


async def test_a_key_added_while_in_work_comes_again_and_never_at_the_same_time() -> None:
    queue = Recorder()
    added: list[str] = []

    def during(key: str) -> None:
        if len(added) < 3:
            added.append(key)
            queue.add(key)
            queue.add(key)

    queue.during = during
    queue.add("a")
    await drain(queue, 4)
    assert queue.seen == ["a"] * 4
    assert queue.most_at_once == 1


async def test_retries_come_later_and_later_until_forgotten() -> None:
    queue = Recorder()
    delays = []
    for _ in range(30):
        delays.append(queue.retry("a"))
    assert delays[0] < 0.3
    assert all(later > sooner for sooner, later in itertools.pairwise(delays[:7]))
    assert max(delays) <= 1.25 * workqueue.LAST_DELAY_SECONDS
    queue.forget("a")
    assert queue.retry("a") < 0.3


async def test_an_event_overtakes_a_delayed_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workqueue, "FIRST_DELAY_SECONDS", 30)
    queue = Recorder()
    queue.retry("a")
    await drain(queue, 1)
    assert queue.seen == []
    queue.add("a")
    await drain(queue, 1)
    assert queue.seen == ["a"]


async def test_what_fails_again_and_again_is_not_hurried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A webhook that refuses with the time in its words: each try changes the status, which is an event."""
    monkeypatch.setattr(workqueue, "FIRST_DELAY_SECONDS", 30)
    monkeypatch.setattr(workqueue, "HURRIED_SECONDS", 0.05)
    queue = Recorder()

    def during(key: str) -> None:
        queue.retry(key)
        queue.add(key)

    queue.during = during
    queue.add("a")
    worker, began = asyncio.create_task(queue.work(queue.handle)), time.monotonic()
    for _ in range(1000):
        await asyncio.sleep(0.05)
        if len(queue.seen) > workqueue.EAGER_TRIES + 5:
            break
    worker.cancel()
    hurried = (time.monotonic() - began) / workqueue.HURRIED_SECONDS
    assert workqueue.EAGER_TRIES + 5 < len(queue.seen) <= workqueue.EAGER_TRIES + 2 + hurried
    queue.add("a")
    queue.forget("a")
    before = len(queue.seen)
    queue.add("a")
    queue.during = lambda key: None
    await drain(queue, 1)
    assert len(queue.seen) == before + 1, "what succeeded is eager again"


async def test_what_is_asked_for_anew_comes_first_for_its_first_turns() -> None:
    """A new service among a hundred whose pods report: each turn of it leads to another, until it is served."""
    queue = Recorder()
    others = [f"other {number}" for number in range(100)]

    def during(key: str) -> None:
        if key == "new" and queue.seen.count("new") <= workqueue.FIRST_TURNS:
            queue.add("new")  # its child made an event

    queue.during = during
    for key in others:
        queue.add(key)
    queue.add("new", anew=True)
    await drain(queue, 1)
    first = ["new"] * workqueue.FIRST_TURNS
    assert queue.seen == [*first, *others, "new"], "then it waits as all do"


async def test_of_those_asked_for_anew_the_one_with_fewer_turns_comes_first() -> None:
    queue = Recorder()
    queue.during = lambda key: queue.add(key) if queue.seen.count(key) < 3 else None
    for key in ("a", "b", "c"):
        queue.add(key, anew=True)
    await drain(queue, 1)
    assert queue.seen == ["a", "b", "c"] * 3


async def test_a_key_that_waits_already_comes_first_when_it_is_asked_for_anew_once() -> None:
    queue = Recorder()
    for key in ("a", "b", "c"):
        queue.add(key)
    queue.add("c", anew=True)
    queue.add("c", anew=True)
    assert len(queue) == 3
    await drain(queue, 1)
    assert queue.seen == ["c", "a", "b"]


async def test_a_key_asked_for_anew_while_in_work_comes_first_again() -> None:
    queue = Recorder()

    def during(key: str) -> None:
        if queue.seen == ["a"]:
            queue.add("b")
            queue.add("a", anew=True)

    queue.during = during
    queue.add("a")
    await drain(queue, 1)
    assert queue.seen == ["a", "a", "b"]
