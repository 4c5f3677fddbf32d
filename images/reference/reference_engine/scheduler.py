"""Continuous batching: sequences join and leave between any two passes of the model.

A step cancels, admits, packs one pass (decoding and verifying sequences first, then pieces of prompts, in
order of arrival, `max_num_tokens` in all), runs it, and lets each sequence take its tokens.

A backend that can take a pass's tokens from the last one by itself gets that pass before the last one's tokens are
taken here, and so never waits for the scheduler. A sequence that ends by end_id or a stop word then has a row in a
pass more, for nothing; an arrival waits for a pass more, which is why pieces of long prompts do not go ahead.
"""

import time
from collections import deque
from collections.abc import Sequence as Listed
from dataclasses import dataclass
from typing import Any

from reference_engine.backend import Backend, Segment
from reference_engine.choice import Pick
from reference_engine.kv_cache import blocks
from reference_engine.request import Finish, Limits, Request, Sink, check
from reference_engine.sequence import Sequence
from reference_engine.slots import Slots
from reference_engine.statistics import Statistics


@dataclass(frozen=True)
class Capacity:
    """`max_num_tokens` rows a pass, `slots` sequences at a time, `max_seq_len` tokens each."""

    max_num_tokens: int
    slots: int
    max_seq_len: int


@dataclass(frozen=True)
class _Flight:
    """A pass that the backend has; `feeds`: the next one may be given before its tokens are taken."""

    batch: list[tuple[Sequence, Segment]]
    picks: Listed[Pick]
    feeds: bool


class Scheduler:
    """Not thread-safe: one thread submits, cancels and steps."""

    def __init__(self, model: Backend[Any], capacity: Capacity, vocab_size: int) -> None:
        # A verification is never cut: all its tokens, and the one before them, are in one pass.
        self.limits = Limits(capacity.max_seq_len, capacity.max_num_tokens - 1, vocab_size)
        self._model = model
        self._capacity = capacity
        self._slots = Slots(capacity.slots, capacity.max_seq_len)
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._flight: _Flight | None = None
        self._iterations = 0

    @property
    def statistics(self) -> Statistics:
        """Its state: a sequence holds the blocks of its prompt and output. May be read from another thread."""
        running = list(self._running)
        return Statistics(
            running=len(running),
            waiting=len(self._waiting),
            slots=self._capacity.slots,
            used=sum(blocks(sequence.length) for sequence in running),
            blocks=self._capacity.slots * blocks(self._capacity.max_seq_len),
            iterations=self._iterations,
        )

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self._running or self._waiting)

    def submit(self, request: Request, sink: Sink) -> Sequence:
        """Queue a request; `sink` gets its outputs during steps. Raises RequestError."""
        check(request, self.limits)
        return self.queue(request, sink)

    def queue(self, request: Request, sink: Sink) -> Sequence:
        """As `submit`, for a request that `check` has passed."""
        sequence = Sequence(request, sink)
        self._waiting.append(sequence)
        return sequence

    def fail_all(self, error: str) -> None:
        """End every sequence with an error."""
        for sequence in [*self._running, *self._waiting]:
            sequence.finish = Finish.ERROR
            sequence.flush(error)
            self._free(sequence)
        self._running.clear()
        self._waiting.clear()
        self._flight = None

    def begin(self) -> None:
        """Give the first pass, for `step` to go on from there; not where the backend would compute meanwhile."""
        if self._flight is None and self._model.feeds(()):
            self._admit()
            self._flight = self._give()

    def step(self) -> None:
        """One iteration."""
        self._drop_cancelled()
        self._admit()
        flight = self._flight or self._give()
        if flight is not None:
            self._flight = self._give(ahead=True) if flight.feeds else None
            self._distribute(flight)
            self._running = [sequence for sequence in self._running if not sequence.finish]

    def _give(self, ahead: bool = False) -> _Flight | None:
        """Give the backend the next pass. None: nothing is due, or, `ahead` of tokens, a prompt is cut."""
        batch = self._pack()
        if not batch or (ahead and not all(segment.logits for _, segment in batch)):
            return None
        logits = self._model.forward([segment for _, segment in batch])
        choices = [sequence.choice() for sequence, segment in batch if segment.logits]
        picks = self._model.choose(logits, choices)
        row = 0
        for sequence, segment in batch:
            sequence.given(segment, row)
            row += segment.logits
        self._iterations += 1
        return _Flight(batch, picks, self._model.feeds(choices))

    def _drop_cancelled(self) -> None:
        for sequence in [*self._running, *self._waiting]:
            if sequence.cancelled:
                sequence.finish = Finish.CANCELLED
                self._end(sequence)
        self._running = [each for each in self._running if not each.finish]
        self._waiting = deque(each for each in self._waiting if not each.finish)

    def _admit(self) -> None:
        while self._waiting:
            sequence = self._waiting[0]
            lease = self._slots.acquire(sequence.request.input_ids, sequence.prompt_len - 1)
            if lease is None:
                return
            if lease.source != lease.slot:
                self._model.copy_kv(lease.source, lease.slot, lease.reused)
            sequence.slot = lease.slot
            sequence.computed = sequence.reused = lease.reused
            sequence.first_scheduled_ns = time.monotonic_ns()
            self._running.append(self._waiting.popleft())

    def _pack(self) -> list[tuple[Sequence, Segment]]:
        """The next pass: short pieces first, so that a long prompt holds nobody up."""
        batch = []
        room = self._capacity.max_num_tokens
        due = [(each, each.pending, each.wanted_logits) for each in self._running if not each.ending]
        for sequence, pending, wanted in sorted(due, key=lambda each: each[1] > each[2]):
            count = pending if pending <= room else min(room, pending - wanted)
            if count > 0:
                batch.append((sequence, sequence.segment(count)))
                room -= count
        return batch

    def _distribute(self, flight: _Flight) -> None:
        picks = iter(flight.picks)
        for sequence, segment in flight.batch:
            if not segment.logits:
                continue
            pick = next(picks)
            if sequence.finish:  # since the pass was given: cancelled, or at the token before
                continue
            sequence.take(pick)
            if sequence.finish:
                self._end(sequence)
                continue
            sequence.flush()
            if sequence.generated == 1:  # others may copy the prompt from now on
                self._slots.record(sequence.slot, sequence.tokens[: sequence.computed])

    def _end(self, sequence: Sequence) -> None:
        """Free first: the client's next request finds the slot."""
        self._free(sequence)
        sequence.flush()

    def _free(self, sequence: Sequence) -> None:
        if sequence.slot >= 0:
            self._slots.record(sequence.slot, sequence.tokens[: sequence.computed])
            self._slots.release(sequence.slot)
            sequence.slot = -1
