"""A work queue of keys, after client-go's: each key at most once in the queue and once in work.

A key added while it is in work comes again after it. Failures come back with exponential, jittered delays.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

FIRST_DELAY_SECONDS, LAST_DELAY_SECONDS = 0.2, 60.0
EAGER_TRIES, HURRIED_SECONDS = 6, 3.0
"""Events hurry a key that failed so often no further than that: what status shows of a failure is an event itself;
a message that differs each time would come again at once, for ever."""


class WorkQueue(Generic[Key]):
    """Not thread-safe: use it in its event loop."""

    def __init__(self) -> None:
        self._ready: asyncio.Queue[Key] = asyncio.Queue()
        self._queued: set[Key] = set()
        self._working: set[Key] = set()
        self._again: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        """Keys that wait, delayed ones not counted."""
        return len(self._queued)

    def add(self, key: Key) -> None:
        """Ask for `key`, now; what waited for a later try comes now too, or soon, where it failed many times."""
        if timer := self._timers.pop(key, None):
            if self._failures.get(key, 0) > EAGER_TRIES:
                self._timers[key] = self._hurried(key, timer)
                return
            timer.cancel()
        if key in self._working:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.put_nowait(key)

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
            key = await self._ready.get()
            self._queued.discard(key)
            self._working.add(key)
            try:
                await handle(key)
            finally:
                self._working.discard(key)
                if key in self._again:
                    self._again.discard(key)
                    self.add(key)

    def _hurried(self, key: Key, timer: asyncio.TimerHandle) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        if timer.when() <= loop.time() + HURRIED_SECONDS:
            return timer
        timer.cancel()
        return loop.call_later(HURRIED_SECONDS, self._expire, key)

    def _expire(self, key: Key) -> None:
        self._timers.pop(key, None)
        self.add(key)
