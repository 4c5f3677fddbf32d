"""Which sequences run, and what each engine call's answer leads to. No threads: the runner has the lock.

Engine calls go out as batches (`start`), become flights (`took_off`), and come back with answers (`answered`) or
without (`landed`, `late`); what sequences gained waits in `outgoing` for its delivery.

An answer is taken once, whatever comes of it: a fault then ends that sequence's request, and nobody else's. One that
leaves these methods leaves all sequences in an unknown state: `abandon` them. What is only measured ends none.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from tandem_serving import metrics as m
from tandem_serving.bls.calls import Call, NewTokens, Output
from tandem_serving.bls.chunks import BlsChunk
from tandem_serving.bls.circuit_breaker import CircuitBreaker
from tandem_serving.bls.draft_length.draft_ahead import DraftAhead
from tandem_serving.bls.draft_length.policy import DraftLengthPolicy
from tandem_serving.bls.in_flight import InFlightBatch, InFlightBatches
from tandem_serving.bls.queue import SequenceQueue
from tandem_serving.bls.schedule import Batch, Overlap, Row, Schedule
from tandem_serving.bls.sequence import BatchKey, BlsSequence, MakeChunks
from tandem_serving.errors import FAILED, EngineError, ServingError, Survived
from tandem_serving.requests.active import ActiveRequest

log = logging.getLogger("tandem.rounds")
_BROKE_OFF = "a sequence broke off"


@dataclass(frozen=True)
class RoundLimits:
    """`running` sequences at once, `waiting` more in line; `rows` of an engine call; seconds of a draft call;
    `ahead`: whether few sequences may draft ahead while the target verifies; `queue_timeout`: seconds in line;
    `whole_rounds`: the longest draft of those that the server makes by itself, 0: it makes none."""

    running: int
    waiting: int
    rows: int
    draft_timeout: float
    ahead: bool = False
    queue_timeout: float = math.inf
    whole_rounds: int = 0


class Rounds:
    """Not thread-safe. `metrics` gets what is not of one request; `depart` is called when a sequence's last text
    is sent, and lets it `leave`.

    `held`: what `start` kept back starts then (monotonic seconds) at the latest, if it is called; 0: nothing is.
    """

    def __init__(
        self,
        policy: DraftLengthPolicy,
        limits: RoundLimits,
        metrics: m.Metrics,
        depart: Callable[[BlsSequence], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.outgoing: list[tuple[BlsSequence, MakeChunks]] = []
        self._policy = policy
        self._limits = limits
        self._depart = depart
        self._clock = clock
        self._foresight = DraftAhead(limits.ahead)
        self._schedule: Schedule[BlsSequence] = Schedule(limits.rows, self._order, self._hold, self._in_rounds, clock)
        self._places = SequenceQueue(limits.running, limits.waiting, limits.queue_timeout, metrics)
        self._flights = InFlightBatches(policy, self._foresight, limits.rows > 1, limits.draft_timeout)
        self._breaker = CircuitBreaker()
        self._metrics = metrics
        self._measuring = Survived("what is measured is not known", metrics.fault)
        self._out: set[Batch[BlsSequence]] = set()
        self.held = 0.0

    def load(self) -> tuple[int, int]:
        """Sequences (running, waiting) now."""
        return len(self._places.running), len(self._places.waiting)

    # --- sequences come and go --------------------------------------------------------------------
    def admit(self, generations: list[BlsSequence]) -> None:
        """Run sequences when there is room, all or none. Raises QueueFullError."""
        self.forget_dead()
        self._places.line_up(generations)
        self._fill()

    def forget_dead(self) -> None:
        """Let go of sequences whose requests are over: their places become free."""
        for generation in self._places.dead():
            self._let_go(generation)
        self._fill()

    def refuse(self, now: float) -> list[tuple[ActiveRequest[BlsChunk], ServingError]]:
        """Those who waited in line too long, for the caller to tell them.

        Nobody waits for places of requests that are over: one of several prompts failed, or a response.
        """
        self.forget_dead()
        return self._places.refuse(now)

    def leave(self, generation: BlsSequence) -> None:
        """A sequence is over and delivered: its place is free."""
        self._let_go(generation)
        self._fill()

    def abandon(self) -> list[ActiveRequest[BlsChunk]]:
        """Give up all sequences and their calls; the requests, for the caller to end. Make no more use of this."""
        for batch in self._out:
            batch.void = True
        sequences = [*self._places.running, *self._places.waiting]
        for generation in sequences:
            with self._measuring:
                self._policy.leave(generation.acceptance)
        return [generation.job for generation in sequences]

    def _break_off(self, generation: BlsSequence) -> None:
        """End a request for a fault that is being handled."""
        self._metrics.fault(m.ENDED_REQUEST)
        generation.job.fail(EngineError(FAILED))
        self._let_go(generation)

    def _fill(self) -> None:
        for generation in self._places.fill():
            self._schedule.enter(generation.key)
            try:
                if generation.draft_length:
                    self._policy.enter(generation.acceptance, generation.draft_length)
                self._begin(generation, first=not generation.reproducible)  # nobody's first token waits for a draft
            except Exception:  # whatever it is, it is this sequence's
                log.exception(_BROKE_OFF)
                self._break_off(generation)

    def _let_go(self, generation: BlsSequence) -> None:
        self._retire(generation)
        self._places.free(generation)

    def _retire(self, generation: BlsSequence) -> None:
        """A sequence makes no more calls."""
        if generation in self._places.running and not generation.retired:
            generation.retired = True
            self._schedule.leave(generation.key)
            self._policy.leave(generation.acceptance)

    # --- calls go out -----------------------------------------------------------------------------
    def start(self) -> list[Batch[BlsSequence]]:
        """The engine calls that begin now."""
        self.held = 0.0
        batches = self._schedule.start(lambda generation: generation.alive)
        batches = [part for batch in batches for part in self._fit(batch)]
        self._out.update(batches)
        return batches

    def _order(self, sequences: int) -> Overlap:
        if self._draft_ahead(sequences):
            return "ahead"
        return "alternating" if self._policy.slots(sequences) > 1 else "lock-step"

    def _in_rounds(self, key: Hashable) -> bool:
        """Whether the server makes whole rounds of these sequences."""
        return bool(self._limits.whole_rounds) and isinstance(key, BatchKey) and key.whole_rounds

    def _draft_ahead(self, sequences: int) -> bool:
        return self._foresight.worth(sequences, self._policy.server) and self._policy.slots(sequences) == 1

    def _hold(self, key: Hashable) -> bool:
        """Whether a verification waits for drafts: until `held` at most."""
        until = self._flights.worth_waiting(key, self._clock())
        self.held = max(self.held, until)
        return until > 0

    def took_off(self, batch: Batch[BlsSequence], started: float) -> InFlightBatch:
        """An engine call began."""
        return self._flights.begin(batch, started, len(self._places.running))

    def _begin(self, generation: BlsSequence, first: bool = False) -> None:
        """A sequence's next round."""
        if first:
            self._ask(generation, generation.loop.begin(0))
        elif not generation.loop.waits(k := self._length(generation)):
            self._ask(generation, generation.loop.begin(k))

    def _length(self, generation: BlsSequence) -> int:
        if not generation.draft_length:
            return 0
        if not (self._flights.draft_returns and self._breaker.closed(self._clock())):
            if not self._policy.off:
                generation.count_draft_failure()
            return 0
        if generation.reproducible:
            return generation.draft_length
        return min(generation.draft_length, self._policy.length(generation.acceptance))

    def _ask(self, generation: BlsSequence, call: Call) -> None:
        # One token of the target fits into a verification of others, if there are; several are a call of their own.
        alone = call.role == "target" and not call.draft_ids
        joins = call.output_len == 1 and generation.draft_length and not self._policy.off
        own = generation.isolated or (alone and not joins) or not self._flights.shares(call.role)
        self._schedule.ask(Row(generation, call, generation.key, own))
        if call.role == "draft" or own or generation.reproducible:
            return
        if self._draft_ahead(len(self._places.running)):
            k = len(call.draft_ids) or self._length(generation)
            if foresight := generation.loop.ahead(k):
                self._schedule.ask(Row(generation, foresight, generation.key, ahead=True))

    def _fit(self, batch: Batch[BlsSequence]) -> list[Batch[BlsSequence]]:
        """One verification needs equal draft lengths: pad the shorter ones, leave out what can't be."""
        if batch.via != "engine":
            return self._fit_server(batch)
        if batch.role == "draft" or len(batch.turns) == 1:
            return [batch]
        longest = max(len(turn.call.draft_ids) for turn in batch.turns)
        together, apart = [], []
        for turn in batch.turns:
            call: Call | None = turn.call
            if len(turn.call.draft_ids) < longest:
                call = None if turn.sequence.reproducible else turn.sequence.loop.pad_to(turn.call, longest)
            if call is None:
                apart.append(turn)
            else:
                together.append(Row(turn.sequence, call, turn.key))
        batch.turns = together
        return [batch, *(Batch(batch.role, [turn], wave=False) for turn in apart)]

    def _fit_server(self, batch: Batch[BlsSequence]) -> list[Batch[BlsSequence]]:
        """The server fills up drafts as long as any: leave out what can't be."""
        longest = self._limits.whole_rounds
        fitting: list[Row[BlsSequence]] = []
        apart: list[Row[BlsSequence]] = []
        for turn in batch.turns:
            (fitting if turn.sequence.loop.takes(turn.call, longest) else apart).append(turn)
        alone = [Batch(batch.role, [turn], wave=False) for turn in apart]
        if not fitting:
            self._schedule.finish(batch)
            return alone
        batch.turns = fitting
        return [batch, *alone]

    # --- answers come in --------------------------------------------------------------------------
    def release(self, batch: Batch[BlsSequence]) -> list[Batch[BlsSequence]]:
        """All is answered: what the engine can go on with before this batch is settled."""
        self._schedule.release(batch)
        return self.start() if batch.released else []

    def answered(self, flight: InFlightBatch, outputs: list[tuple[int, Output]], now: float) -> None:
        """Take the outputs of rows into their sequences."""
        if flight.batch.role == "target" or flight.batch.via == "round":
            with self._measuring:
                self._policy.turns(len(outputs), _drafted(flight, outputs))
        for row, output in outputs:
            flight.served = output.served
            # Before it is taken: a row that is left is asked for again.
            if turn := flight.left.pop(row, None):
                try:
                    self._answer(turn, output, now - flight.started)
                except Exception:  # whatever it is, it is this sequence's, which may have gone on already
                    log.exception(_BROKE_OFF)
                    self._break_off(turn.sequence)

    def _answer(self, turn: Row[BlsSequence], output: Output, seconds: float) -> None:
        generation = turn.sequence
        if not generation.alive:
            return
        if turn.ahead:
            if call := generation.loop.guessed(turn.call, output):
                self._ask(generation, call)
            return
        if turn.call.role == "draft":
            self._breaker.worked()
            if output.drafted is None:
                self._ask(generation, generation.loop.drafted(output))
                return
            generation.loop.drafted(Output(output.drafted))  # what that asks for is answered already
        step = generation.loop.verified(output, seconds)
        self.outgoing.append((generation, generation.take(step)))
        with self._measuring:
            self._measure(generation, step)
        if generation.over:
            self._retire(generation)
            # It keeps its place until its text is sent: clients that cannot be served as fast as the engines
            # work then hold up new sequences, not memory.
            self.outgoing.append((generation, lambda: self._depart(generation)))
        else:
            self._begin(generation)

    def _measure(self, generation: BlsSequence, step: NewTokens) -> None:
        if step.drafted:
            generation.acceptance.observe(step.drafted, step.accepted)
        if generation.over:
            seconds_alone = self._policy.step(len(self._places.running))
            self._policy.ended(*generation.loop.calls_alone(seconds_alone))

    def landed(self, flight: InFlightBatch, error: ServingError, now: float) -> None:
        """An engine call is over; its rows without an answer failed with `error`."""
        self._out.discard(flight.batch)
        with self._measuring:
            self._flights.end(flight, len(self._places.running), now)
        if flight.batch.via != "engine":
            self._schedule.landed(flight.served)
        if not flight.given_up:
            self._schedule.finish(flight.batch)
            self._fail_rows(flight, error)
        self._fill()

    def useless(self) -> list[InFlightBatch]:
        """Engine calls that nobody waits for any longer, given up."""
        self.forget_dead()
        return [self._give_up(flight) for flight in self._flights.useless()]

    def late(self, now: float) -> list[InFlightBatch]:
        """Engine calls that take too long, given up, and those that were and have to be stopped again.

        Of a draft the sequences go on with the target alone, of a verification each by itself.
        """
        for flight in self._flights.late(now):
            self._give_up(flight)
            self._fail_rows(
                flight, EngineError(f"{flight.batch.role} engine: no answer within {now - flight.started:.1f} s")
            )
        return self._flights.unstopped(now)

    def _give_up(self, flight: InFlightBatch) -> InFlightBatch:
        """Wait for an engine call no longer: its lane is free, what it still says is not heard."""
        self._flights.give_up(flight)
        self._schedule.finish(flight.batch)
        return flight

    def _fail_rows(self, flight: InFlightBatch, error: ServingError) -> None:
        """Rows without an answer. What failed together with others is tried again by itself."""
        batch = flight.batch
        for turn in flight.left.values():
            if turn.ahead and not turn.sequence.loop.awaits(turn.call):
                turn.sequence.loop.guessed(turn.call, Output([]))  # no answer: the next round must not wait for it
        rows, flight.left = flight.awaited(), {}
        # Which engine failed shows when each sequence asks both by itself; what joins others may fail with them.
        together = len(batch.turns) > 1 or (batch.via == "round" and not flight.given_up) or batch.via == "join"
        if rows and batch.role == "draft" and (batch.via == "engine" or flight.given_up):
            self._breaker.failed(self._clock())
        if len(rows) > 1:
            log.warning("a call for %d sequences failed, each goes by itself now: %s", len(rows), error)
        for turn in rows:
            if turn.sequence.alive:
                try:
                    self._fail_row(flight, turn, together, error)
                except Exception:  # whatever it is, it is this sequence's
                    log.exception(_BROKE_OFF)
                    self._break_off(turn.sequence)

    def _fail_row(self, flight: InFlightBatch, turn: Row[BlsSequence], together: bool, error: ServingError) -> None:
        generation, batch = turn.sequence, flight.batch
        generation.isolated |= together
        if together and not (flight.given_up and batch.role == "draft"):
            again = generation.loop.begin(self._length(generation)) if turn.ahead else turn.call
            self._ask(generation, again)
        elif batch.role == "draft":
            self._without_draft(generation, error, for_good=len(batch.turns) == 1)
        else:
            generation.job.fail(error)
            self._let_go(generation)

    def _without_draft(self, generation: BlsSequence, error: ServingError, for_good: bool) -> None:
        generation.count_draft_failure()
        if for_good:
            generation.draft_length = 0
            self._policy.leave(generation.acceptance)
            log.warning("a sequence goes on with the target alone: %s", error)
        self._ask(generation, generation.loop.begin(0))


def _drafted(flight: InFlightBatch, outputs: list[tuple[int, Output]]) -> int:
    """Draft tokens of each row of a call of the target, as it was made: none is 0."""
    served = outputs[0][1].served if outputs else None
    return served.draft_length if served else len(flight.batch.turns[0].call.draft_ids)
