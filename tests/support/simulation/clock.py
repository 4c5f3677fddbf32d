"""An event loop whose time goes on only where all wait, and then at once."""

import asyncio
import heapq
from collections import deque
from datetime import UTC, datetime, timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_BEGINNING = 1000.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """No sockets, no threads, no real time."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _now = _BEGINNING

    def time(self) -> float:
        """Seconds of virtual time."""
        return self._now

    def _run_once(self) -> None:
        """As asyncio's own, which asks the operating system each time whether a socket has something."""
        ready, timers = self._ready, self._scheduled
        while timers and (timers[0].cancelled() or not ready or timers[0].when() <= self._now):
            timer = heapq.heappop(timers)
            if not timer.cancelled():
                self._now = max(self._now, timer.when())
                ready.append(timer)
        if not ready:
            raise RuntimeError("all wait for something that nothing brings about")
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def date(self) -> datetime:
        """The same as a date."""
        return EPOCH + timedelta(seconds=self._now - _BEGINNING)

    def seconds(self, stamp: str) -> float:
        """A date of the API server in seconds of virtual time."""
        return (datetime.fromisoformat(stamp) - EPOCH).total_seconds() + _BEGINNING

    def stamp(self) -> str:
        """The same as the API server writes it."""
        return self.date().strftime("%Y-%m-%dT%H:%M:%SZ")


def install(loop: VirtualLoop, modules: list[ModuleType], patch: pytest.MonkeyPatch, skew: float = 0) -> None:
    """Give `modules` the loop's time wherever they ask for the time, a monotonic one or a date. `skew`: seconds by
    which their dates are ahead of the API server's."""

    class Date(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return loop.date() + timedelta(seconds=skew)

    time = SimpleNamespace(
        monotonic=loop.time, CLOCK_BOOTTIME=0, clock_gettime=lambda _: loop.time(), perf_counter=loop.time
    )
    for module in modules:
        for name, instead in (("time", time), ("datetime", Date)):
            if hasattr(module, name):
                patch.setattr(module, name, instead)
