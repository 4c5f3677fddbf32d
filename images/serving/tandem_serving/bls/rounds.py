"""Which sequences run, and what each engine call's answer leads to. No threads: the runner has the lock.

Engine calls go out as batches (`start`), are in flight (`sent`), and come back with answers (`answered`) or without
(`call_ended`, `late`). Of one that streams, parts come before (`streamed`). What sequences gained waits in `outgoing`
for its delivery, the errors of requests in `failed`, engine calls to stop in `stops`: nothing is sent from here,
since who holds the runner's lock must not wait for a client.

A sequence runs (`_fill`) until its last token is known (`_finish`). It ends when that is delivered (`end`), or when
its request is over (`end_dead`), when it fails (`_fail`), or when all do (`end_all`).

An answer is taken once, whatever comes of it: a fault then ends that sequence's request alone. One that
leaves these methods leaves all sequences in an unknown state: `end_all` of them. What is only measured ends none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from tandem_serving import metrics as m
from tandem_serving.bls import padding, streams
from tandem_serving.bls.batches import Batch, Row
from tandem_serving.bls.calls import Call, NewTokens, Output, Part
from tandem_serving.bls.chunks import BlsChunk
from tandem_serving.bls.circuit_breaker import CircuitBreaker
from tandem_serving.bls.draft_length.policy import AdaptiveDraftLength
from tandem_serving.bls.in_flight import MOST_LOST, InFlightBatch, InFlightBatches
from tandem_serving.bls.limits import RoundLimits
from tandem_serving.bls.loop import FINISH_LENGTH
from tandem_serving.bls.queue import SequenceQueue
from tandem_serving.bls.schedule import Schedule
from tandem_serving.bls.sequence import BlsSequence, MakeChunks, State
from tandem_serving.bls.streams import Streams
from tandem_serving.errors import FAILED, EngineError, ServingError, Survived
from tandem_serving.requests.active import ActiveRequest, AddressedChunk

log = logging.getLogger("tandem.rounds")


class Rounds:
    """Not thread-safe. `metrics` gets what is not of one request. `delivered` is called when a sequence's last text
    is sent, or a stop word found in it: the caller is to `end` it."""

    def __init__(
        self,
        policy: AdaptiveDraftLength,
        limits: RoundLimits,
        metrics: m.Metrics,
        delivered: Callable[[BlsSequence], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.outgoing: list[tuple[BlsSequence, MakeChunks]] = []
        self.failed: list[tuple[ActiveRequest[BlsChunk], ServingError]] = []
        self.stops: list[InFlightBatch] = []
        self.streams = Streams()
        self._policy = policy
        self._limits = limits
        self._delivered = delivered
        self._clock = clock
        self._queue = SequenceQueue(limits.running, limits.waiting, limits.queue_timeout, metrics)
        self._in_flight = InFlightBatches(limits.draft_timeout)
        self._schedule: Schedule[BlsSequence] = Schedule(
            limits.steps, policy.micro_batches, limits.whole_rounds > 0, clock
        )
        self._breaker = CircuitBreaker()
        self._metrics = metrics
        self._measuring = Survived("what is measured is not known", metrics.fault)
        self._out: set[Batch[BlsSequence]] = set()
        self._probing = False

    def load(self) -> tuple[int, int]:
        """Sequences (running, waiting) now."""
        return len(self._queue.running), len(self._queue.waiting)

    # --- sequences come and go --------------------------------------------------------------------
    def admit(self, sequences: list[BlsSequence]) -> None:
        """Run sequences when there is room, all or none. Raises QueueFullError."""
        self.end(self._queue.dead())
        self._queue.enqueue(sequences)
        self._fill()

    def end(self, sequences: Iterable[BlsSequence]) -> None:
        """End these sequences, so that waiting ones can run."""
        for sequence in sequences:
            self._end(sequence)
        self._fill()

    def end_dead(self) -> None:
        """End sequences whose requests are over, and stop the engine calls that no sequence waits for any longer."""
        self.end(self._queue.dead())
        self.stops += [self._give_up(in_flight) for in_flight in self._in_flight.useless()]

    def time_out(self, now: float) -> list[tuple[ActiveRequest[BlsChunk], ServingError]]:
        """The requests that waited too long, for the caller to end them. No sequence waits behind requests that are
        over: one of several prompts failed, or a response."""
        self.end(self._queue.dead())
        return self._queue.time_out(now)

    def end_all(self) -> list[ActiveRequest[BlsChunk]]:
        """End all sequences, give up their calls; the requests, for the caller to end. Make no more use of this."""
        for batch in self._out:
            batch.void = True
        sequences = [*self._queue.running, *self._queue.waiting]
        for sequence in sequences:
            sequence.become(State.ENDED)
            with self._measuring:
                self._policy.leave(sequence)
        return [*(sequence.request for sequence in sequences), *(request for request, _ in self.failed)]

    @contextmanager
    def _ends_alone(self, sequence: BlsSequence) -> Iterator[None]:
        """What breaks off in here, whatever it is, ends this sequence's request alone."""
        try:
            yield
        except Exception:  # of any class: the other sequences go on, and this client gets an error
            log.exception("a sequence broke off")
            self._metrics.fault(m.ENDED_REQUEST)
            self._fail(sequence, EngineError(FAILED))

    def _fail(self, sequence: BlsSequence, error: ServingError) -> None:
        """End a sequence and its request; its other sequences end when the request is over."""
        self.failed.append((sequence.request, error))
        self._end(sequence)

    def _fill(self) -> None:
        if self._in_flight.lost >= self._limits.running + MOST_LOST:
            return  # who begins now might find no thread: see Runner
        for sequence in self._queue.start_waiting():
            self._schedule.enter(sequence.key)
            with self._ends_alone(sequence):
                if sequence.draft_length:
                    self._policy.enter(sequence, sequence.draft_length, sequence.fixed)
                self._begin(sequence, first=not sequence.reproducible)  # no first token waits for a draft

    def _finish(self, sequence: BlsSequence) -> None:
        """A sequence's last token is known, and it makes no more calls.

        It counts as running until its text is sent: clients that cannot be served as fast as the engines work then
        hold up new sequences, not memory.
        """
        sequence.become(State.FINISHED)
        self._schedule.leave(sequence.key)
        self._policy.leave(sequence)
        self.outgoing.append((sequence, lambda: self._delivered(sequence)))

    def _end(self, sequence: BlsSequence) -> None:
        running = sequence.state is State.RUNNING
        self._queue.end(sequence)
        if running:
            self._schedule.leave(sequence.key)
            self._policy.leave(sequence)
            for in_flight in self.streams.of(sequence):
                self._stop_stream(in_flight)

    # --- calls go out -----------------------------------------------------------------------------
    def start(self) -> list[Batch[BlsSequence]]:
        """The engine calls that begin now."""
        batches = self._schedule.start(lambda sequence: sequence.alive)
        batches = [part for batch in batches for part in self._fit(batch)]
        self._out.update(batches)
        return batches

    def sent(self, batch: Batch[BlsSequence], started: float) -> InFlightBatch:
        """An engine call began."""
        in_flight = self._in_flight.begin(batch, started)
        self.streams.begin(in_flight)
        return in_flight

    def _begin(self, sequence: BlsSequence, first: bool = False) -> None:
        """A sequence's next round."""
        if first and sequence.draft_length and not self._policy.off:
            self._ask(sequence, sequence.loop.next_token())
        else:
            self._ask(sequence, sequence.loop.begin(0 if first else self._length(sequence)))

    def _length(self, sequence: BlsSequence) -> int:
        k = min(sequence.draft_length, sequence.loop.longest_draft)
        if k > 0 and not sequence.reproducible:
            k = min(k, self._policy.length(sequence))
        if k <= 0 or self._may_draft(sequence):
            return max(0, k)
        if not (self._policy.off or self._breaker.new):
            sequence.count_draft_failure()
        return 0

    def _may_draft(self, sequence: BlsSequence) -> bool:
        lost = self._in_flight.lost_drafts
        # A text that is to be the same each time is another without its drafts.
        if lost >= MOST_LOST or self._breaker.closed or (sequence.reproducible and self._breaker.new):
            return lost < MOST_LOST
        unanswered = sum(batch.role == "draft" for batch in self._out) > lost
        return not unanswered and self._breaker.may_try(self._clock())

    def _ask(self, sequence: BlsSequence, call: Call, again: bool = False) -> None:
        # One token of the target fits into a verification of others, if there are; several are a call of their own.
        alone = call.role == "target" and not call.draft_ids
        joins = call.output_len == 1 and sequence.draft_length and not self._policy.off
        tries = call.role == "draft" and not self._breaker.closed
        single = self._limits.max_rows == 1
        own = single or sequence.isolated or tries or (alone and not joins) or not self._in_flight.shares(call.role)
        stream = streams.number() if sequence.loop.reads(call) else 0
        self._schedule.ask(Row(sequence, call, sequence.key, own, stream, again))

    def _fit(self, batch: Batch[BlsSequence]) -> list[Batch[BlsSequence]]:
        """Pad the shorter drafts of a batch: what cannot be padded goes by itself."""
        in_server = batch.via in ("round", "join")
        batches = padding.fit_to(batch, self._limits.whole_rounds) if in_server else padding.fit(batch)
        if batch not in batches:
            self._schedule.finish(batch)
        return batches

    # --- answers come in --------------------------------------------------------------------------
    def release(self, batch: Batch[BlsSequence]) -> list[Batch[BlsSequence]]:
        """All is answered: what the engine can go on with before this batch is settled."""
        self._schedule.release(batch)
        return self.start() if batch.released else []

    def answered(self, in_flight: InFlightBatch, outputs: list[tuple[int, Output]], now: float) -> None:
        """Take the outputs of rows into their sequences."""
        verifies = in_flight.batch.role == "target" or in_flight.batch.via == "round"
        drafted = in_flight.drafted(outputs)
        with self._measuring:
            self._in_flight.came(in_flight, now)
        late = in_flight.given_up  # stopped, an engine that hangs may answer without a token
        if in_flight.batch.role == "draft" and any(not late or output.ids for _, output in outputs):
            self._breaker.worked(late)
        if verifies:
            self._rounds_ended(len(outputs) if drafted else in_flight.new_tokens(outputs), drafted)
        for index, output in outputs:
            in_flight.server_round = output.server_round
            # Before it is taken: a row that is left is asked for again.
            if row := in_flight.left.pop(index, None):
                if verifies:
                    row.sequence.verified(in_flight.batch.by_itself)
                with self._ends_alone(row.sequence):
                    self._answer(row, output, drafted)

    def _rounds_ended(self, rows: int, drafted: int) -> None:
        """Tell the policy, which may choose anew; what ended is of a probe where one is on until then."""
        with self._measuring:
            probing = self._policy.probing
            if probing and not self._probing:
                self._metrics.add(m.PROBES, 1)
            self._probing = probing
            self._policy.rounds_ended(rows, drafted)

    def streamed(self, parts: Iterable[Part]) -> None:
        """Take parts of streams into their sequences; those that are to draft again leave their streams."""
        now = self._clock()
        for in_flight, sequence, part in self.streams.wanted(parts):
            with self._measuring:
                self._in_flight.part_came(in_flight, now, len(part.ids))
            self._rounds_ended(len(part.ids), 0)
            goes_on = False
            with self._ends_alone(sequence):
                goes_on = self._goes_on(sequence, part)
            if not goes_on:
                self._stop_stream(in_flight)

    def _goes_on(self, sequence: BlsSequence, part: Part) -> bool:
        """Take a part of a sequence's stream; whether its next tokens come from there, too."""
        step = sequence.loop.part(part.start, part.ids)
        if step is None:
            return True
        self._gained(sequence, step)
        if step.finish:
            return step.finish == FINISH_LENGTH  # the engine ends it by itself
        if k := self._length(sequence):
            self._ask(sequence, sequence.loop.begin(k))
        return not k

    def _stop_stream(self, in_flight: InFlightBatch) -> None:
        """Nobody waits for a stream any longer: its sequence has ended, or goes on by other calls."""
        self.streams.end(in_flight)
        in_flight.left = {}
        if not in_flight.given_up:
            self.stops.append(self._give_up(in_flight))

    def _answer(self, row: Row[BlsSequence], output: Output, drafted: int) -> None:
        sequence = row.sequence
        if not sequence.alive:
            return
        if row.call.role == "draft":
            if output.drafted is None:
                self._ask(sequence, sequence.loop.drafted(output))
                return
            sequence.loop.drafted(Output(output.drafted))  # what that asks for is answered already
        step = sequence.loop.verified(output)
        self._gained(sequence, step, drafted)
        if not step.finish:
            self._begin(sequence)

    def _gained(self, sequence: BlsSequence, step: NewTokens, drafted: int = 0) -> None:
        """Have a sequence's new tokens delivered, which may be its last."""
        probe = self._probing and not drafted
        self.outgoing.append((sequence, self._delivering(sequence, sequence.take(step, probe))))
        with self._measuring:
            self._policy.acceptance.observe(drafted, step.accepted)
        if step.finish:
            self._finish(sequence)

    def _delivering(self, sequence: BlsSequence, make: MakeChunks) -> MakeChunks:
        """The chunks; a stop word among them ends the sequence."""

        def made() -> Sequence[AddressedChunk[BlsChunk]] | None:
            chunks = make()
            if sequence.writer.over and sequence.state is State.RUNNING:
                self._delivered(sequence)
            return chunks

        return made

    def call_ended(self, in_flight: InFlightBatch, error: ServingError, now: float) -> None:
        """An engine call is over; its rows without an answer failed with `error`."""
        self._out.discard(in_flight.batch)
        self.streams.end(in_flight)
        with self._measuring:
            self._in_flight.end(in_flight, now)
        if in_flight.batch.via != "engine":
            self._schedule.server_rounds.verified(in_flight.server_round)
        if not in_flight.given_up:
            self._schedule.finish(in_flight.batch)
            self._fail_rows(in_flight, error)
        self._fill()

    def late(self, now: float) -> None:
        """Give up engine calls that take too long, stop them, and again those that were stopped before and go on. The
        calls of a draft engine that may still warm up are stopped later.

        Of a draft the sequences go on with the target alone; a call of the target each asks for again, by itself and
        once.
        """
        for in_flight in self._in_flight.late(now):
            self._give_up(in_flight)
            self.streams.end(in_flight)
            error = EngineError(f"{in_flight.batch.role} engine: no answer within {now - in_flight.heard:.1f} s")
            self._fail_rows(in_flight, error)
        self.stops += self._in_flight.unstopped(now)

    def _give_up(self, in_flight: InFlightBatch) -> InFlightBatch:
        """Wait for an engine call no longer: the engine is free for others, a late answer is dropped."""
        self._in_flight.give_up(in_flight)
        self._schedule.finish(in_flight.batch)
        return in_flight

    def _fail_rows(self, in_flight: InFlightBatch, error: ServingError) -> None:
        """Rows without an answer. What failed together with others is tried again by itself."""
        batch = in_flight.batch
        rows, in_flight.left = list(in_flight.left.values()), {}
        # Which engine failed shows when each sequence asks both by itself; what joins others may fail with them.
        together = len(batch.rows) > 1 or (batch.via == "round" and not in_flight.given_up) or batch.via == "join"
        if rows and batch.role == "draft" and (batch.via == "engine" or in_flight.given_up):
            self._draft_failed(error, late=in_flight.given_up)
        if len(rows) > 1:
            log.warning("a call for %d sequences failed, each goes by itself now: %s", len(rows), error)
        for row in rows:
            if row.sequence.alive:
                with self._ends_alone(row.sequence):
                    self._fail_row(in_flight, row, together, error)

    def _draft_failed(self, error: ServingError, late: bool) -> None:
        """Where the draft engine is down, those that were to ask it next do not, either."""
        self._breaker.failed(self._clock(), late)
        for row in [] if self._breaker.closed else self._schedule.withdraw("draft"):
            if row.sequence.alive:
                with self._ends_alone(row.sequence):
                    self._without_draft(row.sequence, error, for_good=False)

    def _fail_row(self, in_flight: InFlightBatch, row: Row[BlsSequence], together: bool, error: ServingError) -> None:
        sequence, batch, late = row.sequence, in_flight.batch, in_flight.given_up
        if together or late:
            sequence.isolate()
        if late and batch.role == "target":
            self._ask_again(in_flight, row, error)
        elif together and not late:
            self._ask(sequence, row.call)
        elif batch.role == "draft":
            self._without_draft(sequence, error, for_good=len(batch.rows) == 1 and batch.via == "engine")
        else:
            self._fail(sequence, error)

    def _ask_again(self, in_flight: InFlightBatch, row: Row[BlsSequence], error: ServingError) -> None:
        """Ask for a call of the target that is late; not for one that was asked for again."""
        call = None if in_flight.again else row.sequence.loop.again(row.call)
        if call is None:
            text = f"{error}{', nor when it was asked before' if in_flight.again else ''}"
            advice = "send the request again, or to another replica"
            self._fail(row.sequence, EngineError(f"{text}: {advice}", "UNAVAILABLE"))
        else:
            self._ask(row.sequence, call, again=True)

    def _without_draft(self, sequence: BlsSequence, error: ServingError, for_good: bool) -> None:
        sequence.count_draft_failure()
        if for_good:
            sequence.draft_length = 0
            self._policy.leave(sequence)
            log.warning("a sequence goes on with the target alone: %s", error)
        self._ask(sequence, sequence.loop.begin(0) if for_good else sequence.loop.next_token())
