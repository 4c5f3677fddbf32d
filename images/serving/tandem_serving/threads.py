"""Threads without which a model serves no client. Where one breaks off, or does not end in time, the process ends:
the entry point sees that, ends the server, and the container starts again."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger("tandem.threads")

CLOSE_SECONDS = 5.0
"""For the threads of a model to end in: no request is left by then, and calls of other models return at once."""


def end_process() -> None:
    """End this process at once: nothing that it holds can be closed. Triton's processes end with their models."""
    os._exit(1)


def start(name: str, work: Callable[[], object]) -> threading.Thread:
    """Start a thread; an exception that ends its work ends the process."""

    def run() -> None:
        try:
            work()
        except BaseException:  # whatever it is, and of any kind: requests that are not watched would never end
            log.exception("the thread %s broke off: ending this model, so that the server starts again", name)
            end_process()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


@contextmanager
def ending(seconds: float = CLOSE_SECONDS) -> Iterator[None]:
    """Threads end in here: what has not ended after so many seconds ends with the process."""

    def give_up() -> None:
        log.error("this model's threads did not end within %g s: its process ends without them", seconds)
        end_process()

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
