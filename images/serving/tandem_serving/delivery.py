"""Threads that turn steps into text and send it, while the engines already work on the next round."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

log = logging.getLogger("tandem.delivery")

Work = Callable[[], None]


class Delivery:
    """Work of one key is done in order, of different ones side by side."""

    def __init__(self, threads: int = 2) -> None:
        # Sending waits for the server, without the interpreter's lock: a few threads overlap that.
        self._queues: list[SimpleQueue[Work | None]] = [SimpleQueue() for _ in range(threads)]
        self._threads = [
            threading.Thread(target=self._work, args=(queue,), name=f"delivery-{i}", daemon=True)
            for i, queue in enumerate(self._queues)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, key: object, work: Work) -> None:
        """Have `work` done after all earlier work of `key`."""
        self._queues[id(key) // 64 % len(self._queues)].put(work)

    def close(self) -> None:
        """Do what is in line, then end the threads."""
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join()

    @staticmethod
    def _work(queue: SimpleQueue[Work | None]) -> None:
        while (work := queue.get()) is not None:
            try:
                work()
            except Exception:  # one sequence's text or client must not end the others' delivery
                log.exception("a response was not delivered")
