"""A request's control: its deadline, its end from outside, and the engine calls to cancel then."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, wait
from contextlib import contextmanager
from typing import Protocol

from tandem_serving.errors import EngineError, ServingError
from tandem_serving.loop import Call, Engine, Output


class Control:
    """Shared by a request's sequences and the watchdog; all methods are thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[object, Callable[[], None]] = {}
        self._error: ServingError | None = None

    def stop(self, error: ServingError) -> None:
        """End the request: cancel its engine calls; the next `check` raises `error`."""
        with self._lock:
            self._error = self._error or error
            cancels = list(self._calls.values())
        for cancel in cancels:
            cancel()

    def check(self) -> None:
        """Raise the error that `stop` was called with, if it was."""
        if self._error is not None:
            raise self._error

    @contextmanager
    def track(self, cancel: Callable[[], None]) -> Iterator[None]:
        """Have `cancel` called when the request is stopped inside this block."""
        key = object()
        with self._lock:
            self.check()
            self._calls[key] = cancel
        try:
            yield
        finally:
            with self._lock:
                del self._calls[key]


class Abortable(Engine, Protocol):
    """An engine whose call in flight can be cancelled from another thread."""

    def abort(self) -> None:
        """Cancel the call in flight, if there is one."""
        ...


class TimeLimited:
    """An engine that is given up when a whole call takes too long.

    Engine calls block their thread and cannot be interrupted, so they run on another one, which is left
    behind when the time is over: the pool behind it bounds how many can be stuck.
    """

    def __init__(self, engine: Abortable, threads: Executor, seconds: float) -> None:
        self._engine = engine
        self._threads = threads
        self._seconds = seconds

    def run(self, call: Call) -> Generator[Output, None, None]:
        """Yield the call's responses when all are there. Raises EngineError, also after `seconds`."""
        future = self._threads.submit(lambda: list(self._engine.run(call)))
        if not wait([future], self._seconds).done:
            future.cancel()
            self._engine.abort()
            raise EngineError(f"no answer within {self._seconds:g} s")
        yield from future.result()
