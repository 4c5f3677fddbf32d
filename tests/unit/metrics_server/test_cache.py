"""The cache of reviews: for seconds, bounded, shared by those who ask at once, without failures."""

import asyncio

import pytest

from tandem.metrics_server.cache import TokenCache


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Answers:
    """Counts questions; answers after `gate` is open."""

    def __init__(self) -> None:
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.broken = False

    async def ask(self) -> int:
        self.asked += 1
        await self.gate.wait()
        if self.broken:
            raise OSError("away")
        return self.asked


async def test_an_answer_is_held_for_its_time() -> None:
    clock, answers = Clock(), Answers()
    cache: TokenCache[int] = TokenCache(10, 100, clock)
    assert await cache.get("a", answers.ask) == 1
    clock.now = 9.9
    assert await cache.get("a", answers.ask) == 1
    clock.now = 10.0
    assert await cache.get("a", answers.ask) == 2


async def test_those_who_ask_at_once_share_one_question_and_one_may_go_away() -> None:
    answers = Answers()
    answers.gate.clear()
    cache: TokenCache[int] = TokenCache(10, 100)
    tasks = [asyncio.create_task(cache.get("a", answers.ask)) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    answers.gate.set()
    assert await asyncio.gather(*tasks[1:]) == [1, 1]


async def test_it_is_bounded_and_keeps_what_was_asked_for_last() -> None:
    answers = Answers()
    cache: TokenCache[int] = TokenCache(10, 2)
    for key in ("a", "b", "a", "c"):
        await cache.get(key, answers.ask)
    assert len(cache) == 2
    assert await cache.get("a", answers.ask) == 1
    assert await cache.get("b", answers.ask) == 4, "forgotten, so asked again"


async def test_failures_are_not_held() -> None:
    answers = Answers()
    answers.broken = True
    cache: TokenCache[int] = TokenCache(10, 2)
    with pytest.raises(OSError, match="away"):
        await cache.get("a", answers.ask)
    await asyncio.sleep(0)
    assert len(cache) == 0
    answers.broken = False
    assert await cache.get("a", answers.ask) == 2


async def test_a_late_failure_does_not_take_the_answer_that_came_after_it() -> None:
    clock, late, answers = Clock(), Answers(), Answers()
    late.gate.clear()
    late.broken = True
    cache: TokenCache[int] = TokenCache(10, 2, clock)
    waiting = asyncio.create_task(cache.get("a", late.ask))
    await asyncio.sleep(0)
    clock.now = 11.0
    assert await cache.get("a", answers.ask) == 1
    late.gate.set()
    with pytest.raises(OSError, match="away"):
        await waiting
    await asyncio.sleep(0)
    assert await cache.get("a", answers.ask) == 1, "still held"
