"""A small cache of answers that are dear to get: for seconds, bounded, one question at a time for each key."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class TokenCache(Generic[Value]):
    """Least recently asked keys go first. Failures are not kept."""

    def __init__(self, seconds: float, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._size, self._clock = seconds, size, clock
        self._entries: OrderedDict[Hashable, tuple[float, asyncio.Future[Value]]] = OrderedDict()

    def __len__(self) -> int:
        """Keys that are held."""
        return len(self._entries)

    def __contains__(self, key: Hashable) -> bool:
        """Whether an answer for `key` is held, or being got."""
        held = self._entries.get(key)
        return held is not None and self._clock() < held[0]

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[Value]]) -> Value:
        """The answer for `key`, from `ask` where none is held.

        Raises:
            whatever `ask` raises.
        """
        held = self._entries.get(key)
        if held is None or self._clock() >= held[0]:
            future = asyncio.ensure_future(ask())
            self._entries[key] = held = (self._clock() + self._seconds, future)
            future.add_done_callback(lambda done: self._drop_failed(key, done))
        self._entries.move_to_end(key)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)
        # Others may wait for the same answer: one who goes away does not take it from them.
        return await asyncio.shield(held[1])

    def _drop_failed(self, key: Hashable, future: "asyncio.Future[Value]") -> None:
        if not future.cancelled() and future.exception() is None:
            return
        held = self._entries.get(key)
        if held and held[1] is future:
            del self._entries[key]
