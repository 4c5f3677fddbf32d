"""An event loop whose time goes on only where all wait, and then at once."""

import asyncio
import selectors
from datetime import UTC, datetime, timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_BEGINNING = 1000.0


class _Selector(selectors.SelectSelector):
    """Sleeps for nobody: moves the loop's time on by as much."""

    now = _BEGINNING

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("all wait for something that nothing brings about")
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """No sockets, no threads, no real time."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Seconds of virtual time."""
        return self._virtual.now

    def date(self) -> datetime:
        """The same as a date."""
        return EPOCH + timedelta(seconds=self._virtual.now - _BEGINNING)

    def seconds(self, stamp: str) -> float:
        """A date of the API server in seconds of virtual time."""
        return (datetime.fromisoformat(stamp) - EPOCH).total_seconds() + _BEGINNING

    def stamp(self) -> str:
        """The same as the API server writes it."""
        return self.date().strftime("%Y-%m-%dT%H:%M:%SZ")


def install(loop: VirtualLoop, modules: list[ModuleType], patch: pytest.MonkeyPatch) -> None:
    """Give `modules` the loop's time wherever they ask for the time, a monotonic one or a date."""

    class Date(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return loop.date()

    time = SimpleNamespace(
        monotonic=loop.time, CLOCK_BOOTTIME=0, clock_gettime=lambda _: loop.time(), perf_counter=loop.time
    )
    for module in modules:
        for name, instead in (("time", time), ("datetime", Date)):
            if hasattr(module, name):
                patch.setattr(module, name, instead)
