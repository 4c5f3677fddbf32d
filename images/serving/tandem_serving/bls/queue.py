"""The sequences that run, and the queue of those that wait until one of them ends. Not thread-safe."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from tandem_serving import metrics as m
from tandem_serving.bls.chunks import BlsChunk
from tandem_serving.bls.sequence import BlsSequence, State
from tandem_serving.errors import QueueFullError, QueueTimeoutError, ServingError
from tandem_serving.requests.active import ActiveRequest


class SequenceQueue:
    """At most `running` sequences run, and at most `waiting` wait, for `queue_timeout` seconds each."""

    def __init__(self, running: int, waiting: int, queue_timeout: float, metrics: m.Metrics) -> None:
        self.running: dict[BlsSequence, None] = {}
        self.waiting: dict[BlsSequence, None] = {}
        self._most_running = running
        self._most_waiting = waiting
        self._queue_timeout = queue_timeout
        self._metrics = metrics

    def enqueue(self, sequences: list[BlsSequence]) -> None:
        """Queue sequences, all or none. Raises QueueFullError."""
        admitted, limit = len(self.running) + len(self.waiting), self._most_running + self._most_waiting
        if admitted + len(sequences) > limit:
            self._metrics.add(m.REFUSED, len(sequences), m.QUEUE_FULL)
            raise QueueFullError(admitted, limit, len(sequences))
        self.waiting.update(dict.fromkeys(sequences))

    def start_waiting(self) -> Iterator[BlsSequence]:
        """Let sequences run, in the order of the queue, as long as there is room."""
        while self.waiting and len(self.running) < self._most_running:
            sequence = next(iter(self.waiting))
            del self.waiting[sequence]
            self.running[sequence] = None
            sequence.become(State.RUNNING)
            sequence.request.begun = True
            yield sequence

    def end(self, sequence: BlsSequence) -> None:
        """A sequence waits and runs no longer."""
        sequence.become(State.ENDED)
        self.waiting.pop(sequence, None)
        self.running.pop(sequence, None)

    def dead(self) -> list[BlsSequence]:
        """Sequences whose requests are over."""
        return [g for g in chain(self.running, self.waiting) if g.request.over]

    def time_out(self, now: float) -> list[tuple[ActiveRequest[BlsChunk], ServingError]]:
        """End sequences that waited too long, for the caller to end their requests. A request
        of which a sequence runs waits for its others."""
        limit = self._queue_timeout
        late = [g for g in self.waiting if now - g.request.arrived > limit and not g.request.begun]
        if late:
            self._metrics.add(m.REFUSED, len(late), m.QUEUE_TIMEOUT)
        for sequence in late:
            self.end(sequence)
        return [(g.request, QueueTimeoutError(now - g.request.arrived, limit)) for g in late]
