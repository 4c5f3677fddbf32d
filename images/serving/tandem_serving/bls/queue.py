"""The sequences that run, and the queue of those that wait until one of them ends. Not thread-safe."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from tandem_serving import metrics as m
from tandem_serving.bls.chunks import BlsChunk
from tandem_serving.bls.sequence import BlsSequence
from tandem_serving.errors import QueueFullError, QueueTimeoutError, ServingError
from tandem_serving.requests.active import ActiveRequest


class SequenceQueue:
    """`places` for sequences that run, `most` in line, for `queue_timeout` seconds each."""

    def __init__(self, places: int, most: int, queue_timeout: float, metrics: m.Metrics) -> None:
        self.running: dict[BlsSequence, None] = {}
        self.waiting: deque[BlsSequence] = deque()
        self._queue = places
        self._most = most
        self._queue_timeout = queue_timeout
        self._metrics = metrics

    def enqueue(self, sequences: list[BlsSequence]) -> None:
        """Put sequences in line, all or none. Raises QueueFullError."""
        admitted, limit = len(self.running) + len(self.waiting), self._queue + self._most
        if admitted + len(sequences) > limit:
            self._metrics.add(m.REFUSED, len(sequences), m.QUEUE_FULL)
            raise QueueFullError(
                f"{admitted} sequences are running or waiting and the limit is {limit}: "
                f"no room for {len(sequences)} more; send the request again later or to another replica"
            )
        self.waiting += sequences

    def start_waiting(self) -> Iterator[BlsSequence]:
        """Give free places to those in line, one by one."""
        while self.waiting and len(self.running) < self._queue:
            sequence = self.waiting.popleft()
            self.running[sequence] = None
            sequence.request.begun = True
            yield sequence

    def remove(self, sequence: BlsSequence) -> None:
        """A sequence needs its place no longer, if it had one."""
        self.running.pop(sequence, None)

    def over(self) -> list[BlsSequence]:
        """Those with a place whose requests are over; who is in line leaves it."""
        if any(g.request.over for g in self.waiting):
            self.waiting = deque(g for g in self.waiting if not g.request.over)
        return [g for g in self.running if g.request.over]

    def time_out(self, now: float) -> list[tuple[ActiveRequest[BlsChunk], ServingError]]:
        """Take those out of the line who waited too long, for the caller to tell them. A request that has a place for
        one of its prompts waits for the others."""
        limit = self._queue_timeout
        late = {g for g in self.waiting if now - g.request.arrived > limit and not g.request.begun}
        if late:
            self._metrics.add(m.REFUSED, len(late), m.QUEUE_TIMEOUT)
            self.waiting = deque(g for g in self.waiting if g not in late)
        return [(g.request, QueueTimeoutError(now - g.request.arrived, limit)) for g in late]
