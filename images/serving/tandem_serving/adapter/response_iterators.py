"""Calls of decoupled models from inside the server: their response iterators, kept until Python may free them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from tandem_serving.adapter import inner_calls

SECONDS = 10.0
"""Triton's thread drops its reference within milliseconds; a pod whose CPU is used up takes longer."""
MOST_BYTES = 16 << 20
"""Of the responses of iterators that are kept: their tensors stay in shared memory, and logits are megabytes."""
RESPONSE_BYTES = 4096
"""Of a response without its tensors' contents, about."""


class Recent:
    """Keeps response iterators for a while after their last response, the latest in any case.

    That response makes Triton's stub drop its own reference, on a C++ thread (`SendCleanupId` in pb_stub.cc). Were
    that the last one, Python objects would be freed there: without the interpreter's lock up to 24.11, which
    corrupts the heap and crashes the model; with it, but in an order that can deadlock, up to 26.06.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: deque[tuple[float, int, Any]] = deque()
        self._bytes = 0
        self._lock = threading.Lock()

    def keep(self, responses: Any, size: int = 0) -> None:
        """Keep an iterator, with responses of `size` bytes, and let go of old ones."""
        now = self._clock()
        with self._lock:
            self._kept.append((now, size, responses))
            self._bytes += size
            while len(self._kept) > 1 and self._is_enough(now):
                self._bytes -= self._kept.popleft()[1]

    def _is_enough(self, now: float) -> bool:
        """Whether the oldest may go."""
        return self._kept[0][0] < now - SECONDS or self._bytes > MOST_BYTES


_recent = Recent()


def responses(call: Any, recent: Recent = _recent) -> Iterator[Any]:
    """Execute a pb_utils.InferenceRequest of a decoupled model: its responses, as they come.

    Raises ServerEndsError, and what that raises.
    """
    found, count, size = inner_calls.execute(call, decoupled=True), 0, 0
    try:
        for response in found:
            count += 1
            size = size or _size(response)  # the others are about as large
            yield response
    finally:
        recent.keep(found, count * (size + RESPONSE_BYTES))


def _size(response: Any) -> int:
    """Bytes of its tensors."""
    return 0 if response.has_error() else sum(tensor.as_numpy().nbytes for tensor in response.output_tensors())
