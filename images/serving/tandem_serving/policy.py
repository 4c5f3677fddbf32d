"""Policies, pure: how many tokens to draft, and how many sequences run at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from tandem_serving.errors import QueueFullError

log = logging.getLogger("tandem.policy")


class DraftLength(Protocol):
    """Chooses a sequence's draft length, round by round."""

    def next(self) -> int:
        """Tokens to draft in the next round; 0 or less: the target alone."""
        ...

    def observe(self, drafted: int, accepted: int) -> None:
        """Learn what the last round gave."""
        ...


class FixedDraftLength:
    """The same length on every round."""

    def __init__(self, length: int) -> None:
        self._length = length

    def next(self) -> int:
        """Tokens to draft in the next round."""
        return self._length

    def observe(self, drafted: int, accepted: int) -> None:
        """A fixed length learns nothing."""


class SequencePool:
    """The schedule: each sequence on a thread of its own, at most `running` at once, `waiting` in line.

    Engine calls of different sequences are then in flight together, which is what an engine's in-flight
    batching merges; a late sequence holds up no other.
    """

    def __init__(self, running: int, waiting: int) -> None:
        self._limit = running + waiting
        self._running = running
        self._admitted = 0
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(running, thread_name_prefix="sequence")

    def admit(self, count: int) -> None:
        """Reserve places for `count` sequences, all or none. Raises QueueFullError."""
        with self._lock:
            if self._admitted + count > self._limit:
                raise QueueFullError(
                    f"{self._admitted} sequences are running or waiting and the limit is {self._limit}: "
                    f"no room for {count} more; send the request again later or to another replica"
                )
            self._admitted += count

    def submit(self, work: Callable[[], None]) -> Future[None]:
        """Run `work` on an admitted place, which is free again when it ends."""
        future = self._threads.submit(work)
        future.add_done_callback(self._leave)
        return future

    def load(self) -> tuple[int, int]:
        """Sequences (running, waiting) now."""
        running = min(self._admitted, self._running)
        return running, self._admitted - running

    def shutdown(self) -> None:
        """Wait for the running sequences and end the threads; those in line are dropped."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _leave(self, done: Future[None]) -> None:
        with self._lock:
            self._admitted -= 1
        if not done.cancelled() and (error := done.exception()) is not None:
            log.error("a sequence broke off", exc_info=error)
