"""The queue of requests that wait for a thread. One thread adds to it while another looks who is late."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import Generic, TypeVar

R = TypeVar("R")


class RequestQueue(Generic[R]):
    """Requests in the order of their arrival, which is the one in which they begin; `timeout` in seconds."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._queue: deque[tuple[float, Future[None], R]] = deque()

    def add(self, request: R, answer: Future[None], now: float) -> None:
        """A request arrived; `answer` runs when it begins."""
        self._queue.append((now, answer, request))

    def late(self, now: float) -> list[tuple[R, float]]:
        """Who waited too long, and how long: their answers never run. Who has begun is forgotten with his tensors."""
        late = []
        while self._queue:
            arrived, answer, request = self._queue[0]
            waits = not (answer.running() or answer.done())
            if waits and now - arrived <= self._timeout:
                break
            self._queue.popleft()
            if waits and answer.cancel():
                late.append((request, now - arrived))
        return late
