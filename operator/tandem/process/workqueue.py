"""A work queue of keys, after client-go's: each key at most once in the queue and once in work.

A key added while it is in work comes again after it. Failures come back with exponential, jittered delays.

What somebody has asked for anew comes before what goes on, or is only looked at again: of the keys that wait, the
one that was handled least often since it was asked for anew is next. Otherwise a change would wait for all that a
thousand services do on their way, or for all of them to be read after a restart. controller-runtime's queue has
such priorities, too (`UsePriorityQueue`).
"""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

FIRST_DELAY_SECONDS, LAST_DELAY_SECONDS = 0.2, 60.0
EAGER_TRIES, HURRIED_SECONDS = 6, 3.0
"""Events hurry a key that failed so often no further than that: what status shows of a failure is an event itself;
a message that differs each time would come again at once, for ever."""
FIRST_TURNS = 4
"""Turns after which a key that was asked for anew waits with all others: most services are served by then."""


class WorkQueue(Generic[Key]):
    """Not thread-safe: use it in its event loop."""

    def __init__(self) -> None:
        self._ready = asyncio.PriorityQueue[tuple[int, int, Key]]()
        """By turns, then as they came."""
        self._numbers = itertools.count()
        self._queued: dict[Key, int] = {}
        """Their numbers: what else `_ready` has of them is out of date."""
        self._turns: dict[Key, int] = {}
        """How often they were handled since they were asked for anew, below FIRST_TURNS."""
        self._working: set[Key] = set()
        self._again: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        """Keys that wait, delayed ones not counted."""
        return len(self._queued)

    def add(self, key: Key, anew: bool = False) -> None:
        """Ask for `key`, now; what waited for a later try comes now too, or soon, where it failed many times.

        `anew`: somebody asks for something else of it than before.
        """
        if sooner := anew and self._turns.get(key) != 0:
            self._turns[key] = 0
        if timer := self._timers.pop(key, None):
            if self._failures.get(key, 0) > EAGER_TRIES:
                self._timers[key] = self._hurried(key, timer)
                return
            timer.cancel()
        if key in self._working:
            self._again.add(key)
        elif sooner or key not in self._queued:
            number = self._queued[key] = next(self._numbers)
            self._ready.put_nowait((self._turns.get(key, FIRST_TURNS), number, key))

    def retry(self, key: Key) -> float:
        """Ask for `key` after its next delay, which is returned, in seconds."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = min(LAST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(failures - 1, 20))
        delay *= random.uniform(0.75, 1.25)
        self.add_later(key, delay)
        return delay

    def add_later(self, key: Key, delay: float) -> None:
        """Ask for `key` after `delay` seconds, unless it is to come later already."""
        if key not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[key] = loop.call_later(delay, self._expire, key)

    def forget(self, key: Key) -> None:
        """`key` succeeded: the next failure starts with the first delay again."""
        self._failures.pop(key, None)

    async def work(self, handle: Callable[[Key], Awaitable[None]]) -> None:
        """Take keys and `handle` them one after the other, for ever; run several for several at once.

        `handle` must not raise; whatever it raises ends this worker.
        """
        while True:
            _, number, key = await self._ready.get()
            if self._queued.get(key) != number:
                continue
            del self._queued[key]
            self._working.add(key)
            self._count_turn(key)
            try:
                await handle(key)
            finally:
                self._working.discard(key)
                if key in self._again:
                    self._again.discard(key)
                    self.add(key)

    def _count_turn(self, key: Key) -> None:
        turns = self._turns.pop(key, FIRST_TURNS) + 1
        if turns < FIRST_TURNS:
            self._turns[key] = turns

    def _hurried(self, key: Key, timer: asyncio.TimerHandle) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        if timer.when() <= loop.time() + HURRIED_SECONDS:
            return timer
        timer.cancel()
        return loop.call_later(HURRIED_SECONDS, self._expire, key)

    def _expire(self, key: Key) -> None:
        self._timers.pop(key, None)
        self.add(key)
