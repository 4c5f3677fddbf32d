"""Runs sequences: engine calls on threads, answers into loops, the schedule in between.

Whoever completes an engine call settles it under the lock (answers into the loops, next calls to the
schedule), and goes on with the first batch that can start; no hand-over between threads lies between a
verification and the next draft. Text and sending happen on delivery threads, while the engines work.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from tandem_serving import metrics as m
from tandem_serving.breaker import Breaker
from tandem_serving.delivery import Delivery, Make
from tandem_serving.errors import FAILED, EngineError, QueueFullError, ServingError
from tandem_serving.generation import Generation
from tandem_serving.loop import LONGEST_SPAN, Call, Output, Role
from tandem_serving.policy import Policy
from tandem_serving.schedule import Batch, Schedule, Turn

log = logging.getLogger("tandem.runner")


class Answers(Protocol):
    """One engine call in flight."""

    def __iter__(self) -> Iterator[list[tuple[int, Output]]]:
        """Outputs with their rows, as they come; raises EngineError."""
        ...

    def stop(self) -> None:
        """Ask the engine to end the call; returns at once."""
        ...


class Engine(Protocol):
    """The target or the draft engine."""

    def call(self, turns: Sequence[Turn[Generation]]) -> Answers:
        """An engine call with a row for each turn; it starts when it is read."""
        ...


@dataclass(frozen=True)
class Limits:
    """`running` sequences at once, `waiting` more in line; `rows` of an engine call; seconds of a draft call;
    whether a single sequence drafts ahead while the target verifies."""

    running: int
    waiting: int
    rows: int
    draft_timeout: float
    ahead: bool = False


@dataclass
class _Flight:
    answers: Answers
    started: float
    left: dict[int, Turn[Generation]] = field(default_factory=dict)
    given_up: bool = False


class Runner:
    """Thread-safe. `metrics` gets what is not of one request."""

    def __init__(self, engines: Mapping[Role, Engine], policy: Policy, limits: Limits, metrics: m.Metrics) -> None:
        self._engines = engines
        self._policy = policy
        self._limits = limits
        self._metrics = metrics
        self._lock = threading.Lock()
        self._schedule: Schedule[Generation] = Schedule(limits.rows, policy.slots)
        self._running: dict[Generation, None] = {}
        self._waiting: deque[Generation] = deque()
        self._flights: dict[Batch[Generation], _Flight] = {}
        self._breaker = Breaker()
        self._landed: dict[Role, float] = {"draft": 0.0, "target": 0.0}
        self._delivery = Delivery()
        self._outgoing: list[tuple[Generation, Make]] = []
        # A call that never returns keeps its thread: leave some for the others.
        self._threads = ThreadPoolExecutor(3 * limits.running, thread_name_prefix="engine")

    def add(self, generations: list[Generation]) -> None:
        """Run sequences when there is room, all or none. Raises QueueFullError."""
        with self._lock:
            self._forget_dead()
            admitted = len(self._running) + len(self._waiting)
            limit = self._limits.running + self._limits.waiting
            if admitted + len(generations) > limit:
                raise QueueFullError(
                    f"{admitted} sequences are running or waiting and the limit is {limit}: "
                    f"no room for {len(generations)} more; send the request again later or to another replica"
                )
            self._waiting += generations
            self._fill()
            ready = self._start()
        self._submit(ready)

    def settle_ended(self) -> None:
        """Let go of sequences whose requests are over: places become free, engine calls are stopped."""
        with self._lock:
            self._forget_dead()
            useless = [
                batch
                for batch, flight in self._flights.items()
                if not flight.given_up and not any(turn.sequence.alive for turn in flight.left.values())
            ]
            stops = [self._give_up(batch).answers for batch in useless]
            ready = self._start()
        for answers in stops:
            answers.stop()
        self._submit(ready)

    def watch(self, now: float) -> None:
        """Give up drafts that are late: their sequences go on with the target alone."""
        with self._lock:
            late = [
                batch
                for batch, flight in self._flights.items()
                if batch.role == "draft" and not flight.given_up and now - flight.started > self._limits.draft_timeout
            ]
            stops = [self._give_up(batch).answers for batch in late]
            error = EngineError(f"draft engine: no answer within {self._limits.draft_timeout:g} s")
            for batch in late:
                self._fail_rows(batch, self._flights[batch], error)
            ready = self._start()
        for answers in stops:
            answers.stop()
        self._submit(ready)

    def load(self) -> tuple[int, int]:
        """Sequences (running, waiting) now."""
        with self._lock:
            return len(self._running), len(self._waiting)

    def close(self) -> None:
        """End the threads. The sequences' requests are over already."""
        self.settle_ended()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._delivery.close()

    # --- under the lock ---------------------------------------------------------------------------
    def _give_up(self, batch: Batch[Generation]) -> _Flight:
        """Wait for an engine call no longer: its lane is free, what it still says is not heard."""
        flight = self._flights[batch]
        flight.given_up = True
        self._schedule.finish(batch)
        return flight

    def _forget_dead(self) -> None:
        for generation in [g for g in self._running if g.job.over]:
            self._leave(generation)
        if any(g.job.over for g in self._waiting):
            self._waiting = deque(g for g in self._waiting if not g.job.over)
        self._fill()

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self._limits.running:
            generation = self._waiting.popleft()
            self._running[generation] = None
            self._schedule.enter(generation.key)
            if generation.draft_length:
                self._policy.enter(generation.acceptance)
            # A prompt's first token should not wait for a draft of others; with nobody else there is none.
            busy = len(self._running) > 1 and not generation.reproducible
            self._begin(generation, first=busy)

    def _leave(self, generation: Generation) -> None:
        """A sequence is over and delivered, or nobody waits for it: its place is free."""
        self._retire(generation)
        self._running.pop(generation, None)

    def _retire(self, generation: Generation) -> None:
        """A sequence makes no more calls."""
        if generation in self._running and not generation.retired:
            generation.retired = True
            self._schedule.leave(generation.key)
            self._policy.leave(generation.acceptance)

    def _begin(self, generation: Generation, first: bool = False) -> None:
        """A sequence's next round."""
        k = 0
        if generation.draft_length and not first and self._breaker.closed(time.monotonic()):
            k = generation.draft_length
            if not generation.reproducible:
                k = min(k, self._policy.length(generation.acceptance))
        if not generation.loop.waits(k):
            self._ask(generation, generation.loop.begin(k))

    def _ask(self, generation: Generation, call: Call) -> None:
        # One token of the target fits into a verification of others; several are a call of their own.
        alone = call.role == "target" and not call.draft_ids
        own = generation.isolated or (alone and (call.output_len > 1 or not generation.draft_length))
        self._schedule.ask(Turn(generation, call, generation.key, own))
        # With more sequences the draft engine has other work, or they would have to wait for each other.
        lone = self._limits.ahead and len(self._running) == 1 and not generation.reproducible
        if call.draft_ids and lone and (foresight := generation.loop.ahead()):
            self._schedule.ask(Turn(generation, foresight, generation.key, own=True, ahead=True))

    def _start(self) -> list[Batch[Generation]]:
        batches = self._schedule.start(lambda generation: generation.alive)
        return [part for batch in batches for part in self._fit(batch)]

    def _fit(self, batch: Batch[Generation]) -> list[Batch[Generation]]:
        """One verification needs equal draft lengths: pad the shorter ones, leave out what can't be."""
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
                together.append(Turn(turn.sequence, call, turn.key))
        batch.turns = together
        return [batch, *(Batch(batch.role, [turn], wave=False) for turn in apart)]

    def _answer(self, turn: Turn[Generation], output: Output, seconds: float) -> None:
        generation = turn.sequence
        if not generation.alive:
            return
        if turn.ahead:
            if call := generation.loop.guessed(turn.call, output):
                self._ask(generation, call)
            return
        if turn.call.role == "draft":
            self._breaker.worked()
            self._ask(generation, generation.loop.drafted(output))
            return
        step = generation.loop.verified(output, seconds)
        if step.drafted:
            generation.acceptance.observe(step.drafted, step.accepted)
        self._outgoing.append((generation, generation.take(step)))
        if generation.over:
            self._retire(generation)
            # It keeps its place until its text is sent: clients that cannot be served as fast as the engines
            # work then hold up new sequences, not memory.
            self._outgoing.append((generation, lambda: lambda: self._depart(generation)))
        else:
            self._begin(generation)

    def _fail_rows(self, batch: Batch[Generation], flight: _Flight, error: ServingError) -> None:
        """Rows without an answer. What failed together with others is tried again by itself."""
        rows = [turn for turn in flight.left.values() if not turn.ahead or turn.sequence.loop.awaits(turn.call)]
        flight.left = {}
        if rows and batch.role == "draft":
            self._breaker.failed(time.monotonic())
        if len(rows) > 1:
            log.warning("a call for %d sequences failed, each goes by itself now: %s", len(rows), error)
        for turn in rows:
            generation = turn.sequence
            if not generation.alive:
                continue
            generation.isolated |= len(batch.turns) > 1
            if len(batch.turns) > 1 and not flight.given_up:
                self._ask(generation, turn.call)
            elif batch.role == "draft":
                self._without_draft(generation, error, for_good=len(batch.turns) == 1)
            else:
                generation.job.fail(error)
                self._leave(generation)

    def _without_draft(self, generation: Generation, error: ServingError, for_good: bool) -> None:
        if for_good:
            generation.draft_length = 0
            self._policy.leave(generation.acceptance)
            self._metrics.add(m.DRAFT_FAILURES, 1)
            log.warning("a sequence goes on with the target alone: %s", error)
        self._ask(generation, generation.loop.begin(0))

    # --- on the delivery and engine threads -------------------------------------------------------
    def _depart(self, generation: Generation) -> None:
        with self._lock:
            self._leave(generation)
            self._fill()
            ready = self._start()
        self._submit(ready)

    def _submit(self, batches: Iterable[Batch[Generation]]) -> None:
        for batch in batches:
            self._threads.submit(self._drive, batch)

    def _drive(self, batch: Batch[Generation]) -> None:
        """Run an engine call, then whatever can start when it is settled."""
        self._delivery.hurry(True)
        following: Batch[Generation] | None = batch
        try:
            while following is not None:
                following = self._run(following)
        finally:
            self._delivery.hurry(False)

    def _run(self, batch: Batch[Generation]) -> Batch[Generation] | None:
        """Run an engine call and settle it; a batch that can start now. In a hurry but for the call itself."""
        error: ServingError = EngineError(f"{batch.role} engine: the call ended without an answer")
        flight = _Flight(_NO_CALL, time.monotonic(), dict(enumerate(batch.turns)))
        try:
            flight.answers = self._engines[batch.role].call(batch.turns)
            with self._lock:
                self._flights[batch] = flight
            for outputs in self._waiting_for(flight.answers):
                self._take(batch, flight, outputs)
        except ServingError as raised:
            error = raised
        except Exception:  # whatever it is, the sequences of this call must end, and the others go on
            log.exception("an engine call broke off")
            error = EngineError(FAILED)
        return self._settle(batch, flight, error)

    def _waiting_for(self, answers: Answers) -> Iterator[list[tuple[int, Output]]]:
        """The answers; deliveries go on while we wait for them."""
        responses = iter(answers)
        while True:
            self._delivery.hurry(False)
            try:
                outputs = next(responses, None)
            finally:
                self._delivery.hurry(True)
            if outputs is None:
                return
            yield outputs

    def _release(self, batch: Batch[Generation]) -> None:
        """All is answered: let the engine go on with others before this batch is settled."""
        if batch.wave:
            with self._lock:
                self._schedule.release(batch)
                ready = self._start() if batch.released else []
            self._submit(ready)

    def _take(self, batch: Batch[Generation], flight: _Flight, outputs: list[tuple[int, Output]]) -> None:
        if len(outputs) == len(flight.left):
            self._release(batch)
        seconds = time.monotonic() - flight.started
        with self._lock:
            if batch.role == "target":
                self._policy.turns(len(outputs))
            for row, output in outputs:
                if row in flight.left:
                    self._answer(flight.left[row], output, seconds)
                    del flight.left[row]
            outgoing, self._outgoing = self._outgoing, []
            outgoing.sort(key=lambda item: item[0].heard_of)  # first tokens first; each sequence's own stay in order
            # Under the lock: without it, another thread could run a sequence's next round and put that step first.
            self._delivery.put_wave(outgoing)

    def _settle(self, batch: Batch[Generation], flight: _Flight, error: ServingError) -> Batch[Generation] | None:
        with self._lock:
            self._flights.pop(batch, None)
            if not flight.given_up:
                self._schedule.finish(batch)
                self._time(batch, flight)
                self._fail_rows(batch, flight, error)
            self._fill()
            ready = self._start()
        self._submit(ready[1:])
        self._delivery.put(self, self._think)
        return ready[0] if ready else None

    def _think(self) -> None:
        with self._lock:
            self._policy.think()

    def _time(self, batch: Batch[Generation], flight: _Flight) -> None:
        """Tell the policy what a call took that is like others of its kind."""
        now, first = time.monotonic(), batch.turns[0].call
        # A wave that was in the engine's queue began when the one before it was over.
        seconds = now - max(flight.started, self._landed[batch.role] if batch.wave else 0.0)
        if batch.wave:
            self._landed[batch.role] = now
        if flight.left:
            return
        prompt = sum(len(turn.call.ids) for turn in batch.turns if turn.call.first)
        if batch.role == "draft":
            if batch.wave:  # rows that end early leave the others fewer rows a step
                lengths = [turn.call.output_len for turn in batch.turns]
                self._policy.timed("draft", sum(lengths) / max(lengths), max(lengths), seconds, prompt)
        elif first.draft_ids:
            if batch.wave:
                self._policy.timed("target", len(batch.turns), len(first.draft_ids), seconds, prompt)
        elif batch.wave:
            self._policy.timed("target", len(batch.turns), 0, seconds, prompt)
        elif batch.turns[0].sequence.loop.longest_span <= first.output_len <= LONGEST_SPAN:
            # Half a step goes by, on average, until the engine takes a call in.
            self._policy.timed_alone(len(self._running), first.output_len + 0.5, seconds)


class _NoCall:
    def __iter__(self) -> Iterator[list[tuple[int, Output]]]:
        return iter(())

    def stop(self) -> None:
        """There is nothing to stop."""


_NO_CALL = _NoCall()
