"""Places of the sequences that run, and the line of those that wait for one. Not thread-safe."""

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
        self._places = places
        self._most = most
        self._queue_timeout = queue_timeout
        self._metrics = metrics

    def line_up(self, generations: list[BlsSequence]) -> None:
        """Put sequences in line, all or none. Raises QueueFullError."""
        admitted, limit = len(self.running) + len(self.waiting), self._places + self._most
        if admitted + len(generations) > limit:
            self._metrics.add(m.REFUSED, len(generations), m.QUEUE_FULL)
            raise QueueFullError(
                f"{admitted} sequences are running or waiting and the limit is {limit}: "
                f"no room for {len(generations)} more; send the request again later or to another replica"
            )
        self.waiting += generations

    def fill(self) -> Iterator[BlsSequence]:
        """Give free places to those in line, one by one."""
        while self.waiting and len(self.running) < self._places:
            generation = self.waiting.popleft()
            self.running[generation] = None
            generation.job.begun = True
            yield generation

    def free(self, generation: BlsSequence) -> None:
        """A sequence needs its place no longer, if it had one."""
        self.running.pop(generation, None)

    def dead(self) -> list[BlsSequence]:
        """Those with a place whose requests are over; who is in line leaves it."""
        if any(g.job.over for g in self.waiting):
            self.waiting = deque(g for g in self.waiting if not g.job.over)
        return [g for g in self.running if g.job.over]

    def refuse(self, now: float) -> list[tuple[ActiveRequest[BlsChunk], ServingError]]:
        """Take those out of the line who waited too long, for the caller to tell them. A request that has a place for
        one of its prompts waits for the others."""
        limit = self._queue_timeout
        late = {g for g in self.waiting if now - g.job.arrived > limit and not g.job.begun}
        if late:
            self._metrics.add(m.REFUSED, len(late), m.QUEUE_TIMEOUT)
            self.waiting = deque(g for g in self.waiting if g not in late)
        return [(g.job, QueueTimeoutError(now - g.job.arrived, limit)) for g in late]
