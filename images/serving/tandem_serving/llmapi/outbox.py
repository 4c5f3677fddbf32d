"""A sequence's chunks on their way to its client."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tandem_serving.llmapi.chunks import LlmApiChunk

Put = Callable[[Callable[[], None], bool], None]


class Outbox:
    """Chunks that wait are sent as one.

    Sending waits for the server. Where that takes longer than the engine's steps, a client gets more tokens at a
    time, and gets them as early as it can; one by one each would come later than the one before. `put` has another
    thread do something after all that was put before; a sequence's `first` chunk goes before those of others. `send`
    sends. `add` is for one thread.
    """

    def __init__(self, put: Put, send: Callable[[LlmApiChunk], None]) -> None:
        self._put, self._send = put, send
        self._lock = threading.Lock()
        self._first = True
        self._waiting: LlmApiChunk | None = None

    def add(self, chunk: LlmApiChunk) -> None:
        """Have a chunk sent, with those that wait."""
        with self._lock:
            before, self._waiting = self._waiting, self._waiting.then(chunk) if self._waiting else chunk
        if before is None:
            first, self._first = self._first, False
            self._put(self._deliver, first)

    def _deliver(self) -> None:
        with self._lock:
            chunk, self._waiting = self._waiting, None
        if chunk is not None:  # it is not: `add` puts this once
            self._send(chunk)
