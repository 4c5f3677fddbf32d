"""Runs sequences: engine calls on threads, their answers into the rounds, the next calls out of them.

Whoever completes an engine call settles it under the lock (answers into the loops, next calls to the
schedule), and goes on with the first batch that can start; no hand-over between threads lies between a
verification and the next draft. Text and sending happen on delivery threads, while the engines work.

A fault that is no single sequence's leaves all of them in an unknown state. Whichever thread meets it, all requests
end with an error, their engine calls are stopped, and the rounds begin anew, without any (`_together`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Protocol, runtime_checkable

from tandem_serving import metrics as m
from tandem_serving.bls.batches import Batch, Route, Row
from tandem_serving.bls.calls import Output, Part, Role
from tandem_serving.bls.chunks import BlsChunk
from tandem_serving.bls.draft_length.policy import AdaptiveDraftLength
from tandem_serving.bls.in_flight import MOST_LOST, InFlightBatch
from tandem_serving.bls.limits import RoundLimits
from tandem_serving.bls.rounds import Rounds
from tandem_serving.bls.sequence import BlsSequence, MakeChunks, State
from tandem_serving.errors import COUNTED, FAILED, EngineError, QueueFullError, ServingError, Survived
from tandem_serving.requests.active import AddressedChunk, send
from tandem_serving.requests.delivery import Delivery
from tandem_serving.threads import start as start_thread

log = logging.getLogger("tandem.runner")

# Engine calls wait while more steps than sequences may run wait to be delivered, or than this: where few may
# run, a step or two always are.
LEAST_BEHIND = 16
# A shared batch brings the tokens of all its sequences at once, and they are delivered while the next two are under
# way: with only one waiting, 64 sequences on engines that share a device would wait for deliveries at every round.
BATCHES_BEHIND = 3
DELIVERIES = 2
"""Threads that make texts and send them."""
# Before streams are read again, where that failed: what they have brought comes with their ends at the latest.
UNREAD_SECONDS = 0.1

Outputs = list[tuple[int, Output]]
Step = tuple[BlsSequence, MakeChunks]


class EngineResponses(Protocol):
    """One engine call in flight."""

    def __iter__(self) -> Iterator[Outputs]:
        """Outputs with their rows, as they come; raises EngineError."""
        ...

    def stop(self) -> None:
        """Ask the engine to end the call; returns at once."""
        ...


class BlsEngine(Protocol):
    """The target or the draft engine."""

    def call(self, rows: Sequence[Row[BlsSequence]]) -> EngineResponses:
        """An engine call with these rows; it starts when it is read."""
        ...


@runtime_checkable
class StreamEngine(BlsEngine, Protocol):
    """The target engine for calls whose tokens are read while they run."""

    def read(self) -> list[Part]:
        """What came of all such calls since the last read; waits for it, for a second at most. Raises EngineError."""
        ...


class Runner:
    """Thread-safe. `metrics` gets what is not of one request. `engines` by role; where the server makes whole rounds,
    by "round" what makes them, by "join" what lets calls join them; by "stream" a StreamEngine."""

    def __init__(
        self, engines: Mapping[Route, BlsEngine], policy: AdaptiveDraftLength, limits: RoundLimits, metrics: m.Metrics
    ) -> None:
        self._engines = engines
        self._policy = policy
        self._lock = threading.Lock()
        self._metrics = metrics
        self._limits = limits
        self._rounds = self._new_rounds()
        self._answers: dict[InFlightBatch, EngineResponses] = {}
        batched = limits.max_rows > 1
        behind = max(LEAST_BEHIND, limits.running * (BATCHES_BEHIND if batched else 1))
        deliver = partial(send, count=partial(metrics.fault, m.ENDED_REQUEST))
        self._delivery: Delivery[AddressedChunk[BlsChunk]] = Delivery(deliver, DELIVERIES, batched, behind)
        self._stopping = Survived("an engine call could not be stopped", metrics.fault)
        self._closed, self._streaming = threading.Event(), threading.Event()
        # For each sequence that runs a call, and one of each engine that it has lost; and for calls that were given
        # up before, which keep theirs: no sequence begins while those are more than one for each that may run, and
        # MOST_LOST.
        self._threads = ThreadPoolExecutor(4 * limits.running + MOST_LOST, thread_name_prefix="engine")
        engine = engines.get("stream")
        self._reader = (
            start_thread("streams", partial(self._read, engine)) if isinstance(engine, StreamEngine) else None
        )

    def add(self, sequences: list[BlsSequence]) -> None:
        """Run sequences when there is room, all or none. Raises QueueFullError."""
        with self._changing() as rounds:
            rounds.admit(sequences)

    def end_dead(self) -> None:
        """End sequences whose requests are over: their engine calls are stopped, and waiting sequences can run."""
        with self._changing() as rounds:
            rounds.end_dead()

    def watch(self, now: float) -> None:
        """Refuse who waited too long, give up engine calls that are late, stop those that go on nevertheless."""
        with self._changing() as rounds:
            refused = rounds.time_out(now)
            rounds.late(now)
        for request, error in refused:
            request.fail(error)

    def load(self) -> tuple[int, int]:
        """Sequences (running, waiting) now."""
        with self._lock:
            return self._rounds.load()

    def close(self) -> None:
        """End the threads. The sequences' requests are over already."""
        self.end_dead()
        with self._lock:  # a draft engine that warms up is still at work for nobody
            self._stop(self._answers.values())
        self._closed.set()
        self._streaming.set()
        if self._reader:
            self._reader.join()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._delivery.close()

    @contextmanager
    def _changing(self) -> Iterator[Rounds]:
        """Change the rounds under the lock, then make the engine calls that begin."""
        with self._together():
            with self._lock:
                yield self._rounds
                ready = self._start()
            self._submit(ready)

    def _start(self) -> list[Batch[BlsSequence]]:
        """The engine calls that begin now. Under the lock: errors of requests are sent on other threads."""
        for request, error in self._rounds.failed:
            self._threads.submit(request.fail, error)
        self._rounds.failed.clear()
        # A call may have ended since it was put there: `add` breaks off where the queue is full.
        self._stop(self._answers[in_flight] for in_flight in self._rounds.stops if in_flight in self._answers)
        self._rounds.stops.clear()
        return self._rounds.start()

    # --- faults that are no single sequence's -----------------------------------------------------
    @contextmanager
    def _together(self) -> Iterator[None]:
        """What breaks off in here, on whichever thread, ends all requests; it goes on to whoever called."""
        try:
            yield
        except QueueFullError:
            raise
        except BaseException as error:  # whatever it is, and of any kind: no other thread waits for this one
            log.exception("the work for all sequences broke off: their requests end, others are taken")
            self._metrics.fault(m.ENDED_ALL)
            setattr(error, COUNTED, True)
            self._begin_anew()
            raise

    def _new_rounds(self) -> Rounds:
        return Rounds(self._policy, self._limits, self._metrics, self._delivered)

    def _begin_anew(self) -> None:
        with self._lock:
            ended, self._rounds = self._rounds.end_all(), self._new_rounds()
            calls, self._answers = list(self._answers.values()), {}
        for request in ended:
            request.fail(EngineError(FAILED))
        self._stop(calls)

    # --- on the delivery threads ------------------------------------------------------------------
    def _delivered(self, sequence: BlsSequence) -> None:
        with self._changing() as rounds:
            rounds.end([sequence])

    # --- on the engine threads --------------------------------------------------------------------
    def _submit(self, batches: Iterable[Batch[BlsSequence]]) -> None:
        for batch in batches:
            self._threads.submit(self._drive, batch)

    def _drive(self, batch: Batch[BlsSequence]) -> None:
        """Run an engine call, then whatever can start when it is settled."""
        self._delivery.hurry(True)
        following: Batch[BlsSequence] | None = batch
        try:
            with self._together():
                while following is not None:
                    self._delivery.keep_up()
                    following = self._run(following)
        finally:
            self._delivery.hurry(False)

    def _run(self, batch: Batch[BlsSequence]) -> Batch[BlsSequence] | None:
        """Run an engine call and settle it; a batch that can start now. In a hurry but for the call itself."""
        started = time.monotonic()
        answers = self._call(batch)
        with self._lock:
            if batch.void:
                return None
            in_flight = self._rounds.sent(batch, started)
            self._answers[in_flight] = answers
            if self._rounds.streams:
                self._streaming.set()
        responses = iter(answers)
        while not isinstance(found := self._wait_for(batch.role, responses), ServingError):
            self._take(in_flight, found)
        return self._settle(in_flight, found)

    def _call(self, batch: Batch[BlsSequence]) -> EngineResponses:
        try:
            return self._engines[batch.route].call(batch.rows)
        except Exception:  # of any class: without answers the call has failed, and other calls go on
            log.exception("an engine call could not be made")
            return _NO_CALL

    def _wait_for(self, role: Role, responses: Iterator[Outputs]) -> Outputs | ServingError:
        """What comes next, or what rows without an answer failed with; deliveries go on while we wait for it."""
        self._delivery.hurry(False)
        try:
            found = next(responses, None)
            return EngineError(f"{role} engine: the call ended without an answer") if found is None else found
        except ServingError as error:
            return error
        except Exception:  # whatever it is, the sequences of this call must end, and the others go on
            log.exception("an engine call broke off")
            return EngineError(FAILED)
        finally:
            self._delivery.hurry(True)

    def _take(self, in_flight: InFlightBatch, outputs: Outputs) -> None:
        if in_flight.batch.shared and len(outputs) == len(in_flight.left):
            # All is answered: the engine goes on with others before this batch is settled.
            with self._lock:
                ready = [] if in_flight.batch.void else self._rounds.release(in_flight.batch)
            self._submit(ready)
        now = time.monotonic()
        with self._lock:
            if in_flight.batch.void:
                return
            self._rounds.answered(in_flight, outputs, now)
            self._deliver()

    def _deliver(self) -> None:
        """Under the lock: without it, another thread could run a sequence's next round and put that step first."""
        outgoing, self._rounds.outgoing = self._rounds.outgoing, []
        first, then = by_urgency(outgoing)
        self._delivery.put_batch(first, first=True)
        self._delivery.put_batch(then)

    def _settle(self, in_flight: InFlightBatch, error: ServingError) -> Batch[BlsSequence] | None:
        with self._lock:
            if in_flight.batch.void:
                return None
            del self._answers[in_flight]
            self._rounds.call_ended(in_flight, error, time.monotonic())
            ready = self._start()
        self._submit(ready[1:])
        return ready[0] if ready else None

    # --- on the thread that reads streams ---------------------------------------------------------
    def _read(self, engine: StreamEngine) -> None:
        """Take what streams bring, as long as any is under way."""
        reading = Survived("streams could not be read", self._metrics.fault)
        self._delivery.hurry(True)
        while not self._closed.is_set():
            self._delivery.keep_up()
            self._delivery.hurry(False)
            self._streaming.wait()
            parts: list[Part] | None = None
            with reading, suppress(EngineError):
                parts = engine.read()
            self._delivery.hurry(True)
            if parts is None:
                self._closed.wait(UNREAD_SECONDS)
                continue
            with reading, self._changing() as rounds:
                rounds.streamed(parts)
                self._deliver()
                if not rounds.streams:
                    self._streaming.clear()
        self._delivery.hurry(False)

    def _stop(self, calls: Iterable[EngineResponses]) -> None:
        for call in calls:
            with self._stopping:
                call.stop()


def by_urgency(outgoing: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    """First tokens, and all other steps: before the rest those that end a sequence, since others wait to run.

    Each is looked at once: its sequence's first token may be delivered meanwhile.
    """
    first: list[Step] = []
    then: list[Step] = []
    for step in outgoing:
        (then if step[0].has_first_token else first).append(step)
    return first, sorted(then, key=lambda step: step[0].state is State.RUNNING)


class _NoCall:
    def __iter__(self) -> Iterator[Outputs]:
        return iter(())

    def stop(self) -> None:
        """There is nothing to stop."""


_NO_CALL = _NoCall()
