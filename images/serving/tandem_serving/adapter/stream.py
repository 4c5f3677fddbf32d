"""Calls of decoupled models from inside the server."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any


class _Recent:
    """Keeps response iterators for a while after their calls.

    Triton's stub drops its own reference on a C++ thread when a call ends. Were that the last one, Python
    objects would be freed there: without the interpreter's lock up to 24.11, which corrupts the heap and
    crashes the model; with it, but in an order that can deadlock, up to 26.06.
    """

    SECONDS = 2.0

    def __init__(self) -> None:
        self._kept: deque[tuple[float, Any]] = deque()
        self._lock = threading.Lock()

    def keep(self, responses: Any) -> None:
        """Keep an iterator and let go of old ones."""
        now = time.monotonic()
        with self._lock:
            self._kept.append((now, responses))
            while self._kept[0][0] < now - self.SECONDS:
                self._kept.popleft()


_recent = _Recent()


def start(call: Any) -> Iterable[Any]:
    """Execute a pb_utils.InferenceRequest of a decoupled model: its responses, as they come."""
    responses: Iterable[Any] = call.exec(decoupled=True)
    _recent.keep(responses)
    return responses
