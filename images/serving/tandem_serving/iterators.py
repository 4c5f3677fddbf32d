"""Calls of decoupled models from inside the server: their response iterators, kept until Python may free them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

SECONDS = 10.0
"""Triton's thread drops its reference within milliseconds; a pod whose CPU is used up takes longer."""


class Recent:
    """Keeps response iterators for a while after their last response.

    That response makes Triton's stub drop its own reference, on a C++ thread (`SendCleanupId` in pb_stub.cc). Were
    that the last one, Python objects would be freed there: without the interpreter's lock up to 24.11, which
    corrupts the heap and crashes the model; with it, but in an order that can deadlock, up to 26.06.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: deque[tuple[float, Any]] = deque()
        self._lock = threading.Lock()

    def keep(self, responses: Any) -> None:
        """Keep an iterator and let go of old ones."""
        now = self._clock()
        with self._lock:
            self._kept.append((now, responses))
            while self._kept[0][0] < now - SECONDS:
                self._kept.popleft()


_recent = Recent()


def responses(call: Any, recent: Recent = _recent) -> Iterator[Any]:
    """Execute a pb_utils.InferenceRequest of a decoupled model: its responses, as they come."""
    found = call.exec(decoupled=True)
    try:
        yield from found
    finally:
        recent.keep(found)
