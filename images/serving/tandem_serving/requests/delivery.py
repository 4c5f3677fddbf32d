"""Threads that turn new tokens into text and send it, while the engines already work on the next round."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Generic, TypeVar

from tandem_serving.threads import start as start_thread

R = TypeVar("R")
T = TypeVar("T")

log = logging.getLogger("tandem.delivery")

Make = Callable[[], Sequence[T] | None]


class _Queue(Generic[T]):
    """What waits for one thread: batches, None at the end; and batches of first steps, which go before all others."""

    def __init__(self) -> None:
        self.batches: SimpleQueue[list[Make[T]] | None] = SimpleQueue()
        self.first: SimpleQueue[list[Make[T]]] = SimpleQueue()


class Delivery(Generic[T]):
    """Steps of one sequence are delivered in order, of different ones side by side.

    What a batch brings is made, then sent: between two responses the processors do the server's work, and have to
    fetch ours again. Sending waits for the server, without the interpreter's lock: several threads overlap that, and
    a client whose response the server does not take holds up those of its thread alone.

    Where `batched`, it makes way, but for first steps: no work begins while a `hurry` lasts, since the
    interpreter runs one thread at a time and engines that wait for their next call cost every sequence. Nor in the
    first `GRACE` seconds after it: the call is then on its way through the server, on the same processors. Without,
    each sequence makes its own calls, and one of them is always in a hurry.

    Who makes engine calls must not run ahead of it: see `keep_up`.
    """

    GRACE = 0.0007

    def __init__(
        self,
        send: Callable[[T], None] = lambda made: None,
        threads: int = 1,
        batched: bool = True,
        most_behind: float = math.inf,
    ) -> None:
        """`send` sends each of what is made. `threads`: each delivers its part of the sequences."""
        self._send = send
        self._queues: list[_Queue[T]] = [_Queue() for _ in range(threads)]
        self._batched = batched
        self._most_behind = most_behind
        self._behind = 0  # steps that wait
        self._caught_up = threading.Condition()
        self._free = threading.Event()
        self._free.set()
        self._hurries = 0
        self._ended = 0.0
        self._lock = threading.Lock()
        self._threads = [
            start_thread(f"delivery-{i}", partial(self._work, queue)) for i, queue in enumerate(self._queues)
        ]

    def put(self, sequence: Hashable, action: Callable[[], None]) -> None:
        """Do something after all earlier steps of a sequence."""
        self.put_batch([(sequence, action)])

    def put_batch(self, steps: Iterable[tuple[Hashable, Make[T]]], first: bool = False) -> None:
        """Deliver steps of sequences, each after all earlier ones of its sequence; `first`: there are none."""
        parts: dict[int, list[Make[T]]] = {}
        for sequence, make in steps:
            parts.setdefault(id(sequence) // 64 % len(self._queues), []).append(make)
        with self._caught_up:
            self._behind += sum(map(len, parts.values()))
        for number, makes in parts.items():
            queue = self._queues[number]
            if first:
                queue.first.put(makes)
            queue.batches.put([] if first else makes)  # in any case: the thread waits for it

    def hurry(self, begins: bool) -> None:
        """A hurry begins or ends; several may overlap."""
        if not self._batched:
            return
        with self._lock:
            self._hurries += 1 if begins else -1
            if self._hurries:
                self._free.clear()
            else:
                self._ended = time.monotonic()
                self._free.set()

    def keep_up(self) -> None:
        """In a hurry: wait while more than `most_behind` steps wait.

        The threads of many engine calls get the interpreter's lock more often than those of deliveries: texts would
        come seconds late, and sequences that have ended would count as running until then.
        """
        if self._behind <= self._most_behind:
            return
        self.hurry(False)
        try:
            with self._caught_up:
                self._caught_up.wait_for(lambda: self._behind <= self._most_behind)
        finally:
            self.hurry(True)

    def close(self) -> None:
        """Do what waits, then end the threads."""
        for queue in self._queues:
            queue.batches.put(None)
        for thread in self._threads:
            thread.join()

    def _give_way(self) -> None:
        if self._hurries:
            self._free.wait()
        while (rest := self._ended + self.GRACE - time.monotonic()) > 0:
            time.sleep(rest)
            self._free.wait()

    def _work(self, queue: _Queue[T]) -> None:
        while (makes := queue.batches.get()) is not None:
            self._deliver_first(queue)
            made = [each for make in makes for each in self._do(make) or ()]
            self._give_way()  # once: who ends is to ask again in time for the next verification
            for each in made:
                self._do(partial(self._send, each), urgent=True)
                self._deliver_first(queue)
            self._delivered(len(makes))

    def _deliver_first(self, queue: _Queue[T]) -> None:
        while not queue.first.empty():
            makes = queue.first.get()
            for made in [each for make in makes for each in self._do(make, urgent=True) or ()]:
                self._do(partial(self._send, made), urgent=True)
            self._delivered(len(makes))

    def _delivered(self, steps: int) -> None:
        with self._caught_up:
            self._behind -= steps
            if self._behind <= self._most_behind:
                self._caught_up.notify_all()

    def _do(self, part: Callable[[], R], urgent: bool = False) -> R | None:
        if not urgent:
            self._give_way()
        try:
            return part()
        except Exception:  # one sequence's text or client must not end the others' delivery
            log.exception("a response was not delivered")
            return None
