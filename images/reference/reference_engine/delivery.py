"""Threads that send streams' parts, while the engine's own thread goes on.

Triton's Python backend takes some 100 µs for a response, in which whoever sends waits without the interpreter's lock:
with 64 streams as long as a pass. What a stream gained meanwhile goes with its next part.
"""

import logging
import queue
import threading
from collections.abc import Callable
from itertools import cycle

log = logging.getLogger(__package__)

Action = Callable[[], None]
Lane = Callable[[Action], None]
"""Runs actions, one after the other, soon."""
_THREADS = 2


class Delivery:
    """Runs what lanes are given. Thread-safe, but for `close`."""

    def __init__(self) -> None:
        self._queues: list[queue.SimpleQueue[Action | None]] = [queue.SimpleQueue() for _ in range(_THREADS)]
        self._next = cycle(self._queues)
        self._threads = [threading.Thread(target=_run, args=(each,), name="delivery") for each in self._queues]
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def lane(self) -> Lane:
        """For what must keep its order."""
        return next(self._next).put

    def close(self, seconds: float) -> None:
        """Run what was given, for so long at most for each thread, and end."""
        for each in self._queues:
            each.put(None)
        for thread in self._threads:
            thread.join(seconds)


def _run(actions: "queue.SimpleQueue[Action | None]") -> None:
    while (action := actions.get()) is not None:
        try:
            action()
        except Exception:  # whatever it is: other streams go on
            log.exception("a response was not sent")


def at_once(action: Action) -> None:
    """A lane that is whoever gives it the action."""
    action()
