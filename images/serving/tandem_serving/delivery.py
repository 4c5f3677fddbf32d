"""Threads that turn steps into text and send it, while the engines already work on the next round."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from queue import SimpleQueue
from typing import NamedTuple, TypeVar

R = TypeVar("R")

log = logging.getLogger("tandem.delivery")

Send = Callable[[], None]
Make = Callable[[], Send]


class _Wave(NamedTuple):
    makes: list[Make]
    urgent: bool


class Delivery:
    """Steps of one sequence are delivered in order, of different ones side by side.

    What a wave brings is made together, then sent together: between two responses the processors do the server's
    work, and have to fetch ours again.

    With `waves` it makes way, unless for what is urgent: no work begins while a `hurry` lasts, since the interpreter
    runs one thread at a time and engines that wait for their next call cost every sequence. Nor in the first `GRACE`
    seconds after it: the call is then on its way through the server, on the same processors. Without, each sequence
    makes its own calls, and one of them is always in a hurry.

    Who makes engine calls must not run ahead of it: see `keep_up`.
    """

    GRACE = 0.0007

    def __init__(self, threads: int = 2, waves: bool = True, most_behind: float = math.inf) -> None:
        # Sending waits for the server, without the interpreter's lock: two threads overlap that.
        self._queues: list[SimpleQueue[_Wave | None]] = [SimpleQueue() for _ in range(threads)]
        self._waves = waves
        self._most_behind = most_behind
        self._behind = 0  # steps in line
        self._caught_up = threading.Condition()
        self._free = threading.Event()
        self._free.set()
        self._hurries = 0
        self._ended = 0.0
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._work, args=(queue,), name=f"delivery-{i}", daemon=True)
            for i, queue in enumerate(self._queues)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, sequence: Hashable, send: Send) -> None:
        """Send something after all earlier steps of a sequence."""
        self.put_wave([(sequence, lambda: send)])

    def put_wave(self, steps: Iterable[tuple[Hashable, Make]], urgent: bool = False) -> None:
        """Deliver steps of sequences, each after all earlier ones of its sequence; `urgent`: without making way."""
        parts: dict[int, list[Make]] = {}
        for sequence, make in steps:
            parts.setdefault(id(sequence) // 64 % len(self._queues), []).append(make)
        with self._caught_up:
            self._behind += sum(map(len, parts.values()))
        for number, makes in parts.items():
            self._queues[number].put(_Wave(makes, urgent))

    def hurry(self, begins: bool) -> None:
        """A hurry begins or ends; several may overlap."""
        if not self._waves:
            return
        with self._lock:
            self._hurries += 1 if begins else -1
            if self._hurries:
                self._free.clear()
            else:
                self._ended = time.monotonic()
                self._free.set()

    def keep_up(self) -> None:
        """In a hurry: wait while more than `most_behind` steps are in line.

        The threads of many engine calls get the interpreter's lock more often than those of deliveries: texts would
        come seconds late, and sequences that have ended would keep their places until then.
        """
        if self._behind <= self._most_behind:
            return
        self.hurry(False)
        with self._caught_up:
            self._caught_up.wait_for(lambda: self._behind <= self._most_behind)
        self.hurry(True)

    def close(self) -> None:
        """Do what is in line, then end the threads."""
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join()

    def _give_way(self) -> None:
        if self._hurries:
            self._free.wait()
        while (rest := self._ended + self.GRACE - time.monotonic()) > 0:
            time.sleep(rest)
            self._free.wait()

    def _work(self, queue: SimpleQueue[_Wave | None]) -> None:
        while (wave := queue.get()) is not None:
            sends = [self._do(make, wave.urgent) for make in wave.makes]
            for send in sends:
                if send:
                    self._do(send, wave.urgent)
            with self._caught_up:
                self._behind -= len(wave.makes)
                if self._behind <= self._most_behind:
                    self._caught_up.notify_all()

    def _do(self, part: Callable[[], R], urgent: bool) -> R | None:
        if not urgent:
            self._give_way()
        try:
            return part()
        except Exception:  # one sequence's text or client must not end the others' delivery
            log.exception("a response was not delivered")
            return None
