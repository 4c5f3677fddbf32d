"""Batches in flight: which sequences wait for them, which are late, and what they take. Not
thread-safe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tandem_serving.bls.batches import Batch, Row
from tandem_serving.bls.call_times import CallTimes
from tandem_serving.bls.calls import Output, Role, ServerRound
from tandem_serving.bls.sequence import BlsSequence

# So many draft calls that were given up may still be under way: each keeps a thread of ours and one of Triton's.
MOST_LOST = 16
# Each shared batch whose answer is lost holds up all its rows until it is given up: with so many still under way, no
# more.
MOST_LOST_SHARED = 2
# A call is late when it takes so many times what such calls take, but these seconds at least: a stalled machine or a
# long prompt in the engine is no lost answer.
LATE = 20.0
DRAFT_LATE, TARGET_LATE, PROMPT_LATE = 5.0, 10.0, 30.0
# Seconds after which a call that goes on is stopped again, twice as many each time: the stop may have overtaken it.
STOP_AGAIN, SELDOM = 0.1, 10.0


@dataclass(eq=False)
class InFlightBatch:
    """An engine call that began at `started`, and is given up at `late` (monotonic seconds). Given up, it is stopped
    again at `stop_at`, then after `pause` seconds.

    `left`: rows without an answer, by row. `server_round`: what the server reported of it.
    """

    batch: Batch[BlsSequence]
    started: float
    left: dict[int, Row[BlsSequence]]
    late: float = math.inf
    given_up: bool = False
    stop_at: float = 0.0
    pause: float = STOP_AGAIN
    server_round: ServerRound | None = None

    def drafted(self, outputs: Sequence[tuple[int, Output]]) -> int:
        """Draft tokens of each row of a call of the target, as it was made: none is 0."""
        server_round = outputs[0][1].server_round if outputs else None
        return server_round.draft_length if server_round else len(self.batch.rows[0].call.draft_ids)

    def new_tokens(self, outputs: Sequence[tuple[int, Output]]) -> int:
        """Tokens by the target alone; of a stream, whose answer has all of them, those that came in no part."""
        tokens = sum(len(output.ids) for _, output in outputs)
        if self.batch.via != "stream":
            return tokens
        return tokens - self.batch.rows[0].sequence.loop.streamed if self.left else 0


class InFlightBatches:
    """`draft_timeout`: seconds of a draft call at most."""

    def __init__(self, draft_timeout: float = math.inf) -> None:
        self.times = CallTimes()
        self._draft_timeout = draft_timeout
        self._in_flight: dict[InFlightBatch, None] = {}
        self._lost: dict[InFlightBatch, None] = {}

    @property
    def lost(self) -> int:
        """Calls that were given up and are still under way: each keeps a thread."""
        return len(self._lost)

    @property
    def draft_returns(self) -> bool:
        """Whether few enough draft calls that were given up are still under way."""
        return sum(in_flight.batch.role == "draft" for in_flight in self._lost) < MOST_LOST

    def shares(self, role: Role) -> bool:
        """Whether sequences may share calls: few enough of those that were given up are still under way."""
        return (
            sum(in_flight.batch.role == role and len(in_flight.batch.rows) > 1 for in_flight in self._lost)
            < MOST_LOST_SHARED
        )

    def begin(self, batch: Batch[BlsSequence], started: float) -> InFlightBatch:
        """An engine call begins."""
        in_flight = InFlightBatch(batch, started, dict(enumerate(batch.rows)))
        length = max(row.call.output_len for row in batch.rows)
        seconds = self.times.expected(batch.role, length)
        in_flight.late = started + self._patience(batch, seconds)
        if batch.via == "round":
            in_flight.late += self._verification(length)
        self._in_flight[in_flight] = None
        return in_flight

    def end(self, in_flight: InFlightBatch, now: float) -> None:
        """It is over."""
        del self._in_flight[in_flight]
        if in_flight.given_up:
            del self._lost[in_flight]
        elif not in_flight.left:
            self._time(in_flight, now)

    def give_up(self, in_flight: InFlightBatch) -> None:
        """Nobody waits for it any longer; its thread does."""
        in_flight.given_up = True
        self._lost[in_flight] = None

    def useless(self) -> list[InFlightBatch]:
        """Those whose requests are all over."""
        return [
            in_flight
            for in_flight in self._in_flight
            if not in_flight.given_up and not any(row.sequence.alive for row in in_flight.left.values())
        ]

    def late(self, now: float) -> list[InFlightBatch]:
        """Drafts that take too long, and verifications of several sequences: one lost answer holds up all of them."""
        return [in_flight for in_flight in self._in_flight if not in_flight.given_up and now > in_flight.late]

    def _patience(self, batch: Batch[BlsSequence], seconds: float | None) -> float:
        """How long a call may take; `seconds`: what such calls without a prompt take, if that is known."""
        prompt = any(row.call.first for row in batch.rows)
        if batch.role == "draft":
            known = math.inf if prompt or seconds is None else max(DRAFT_LATE, LATE * seconds)
            return min(self._draft_timeout, known)
        if len(batch.rows) == 1:  # no other sequence waits, and its request has a timeout
            return math.inf
        return max(PROMPT_LATE if prompt or seconds is None else TARGET_LATE, LATE * (seconds or 0.0))

    def _verification(self, length: int) -> float:
        """How long a round may take beyond its draft, which takes far less: a verification has as long as by itself.

        As long as a draft at most: one that never ends is to leave time for the target alone."""
        expected = self.times.expected("target", length + 1)
        known = TARGET_LATE if expected is None else max(TARGET_LATE - DRAFT_LATE, LATE * expected)
        return min(known, self._draft_timeout)

    def unstopped(self, now: float) -> list[InFlightBatch]:
        """Those that were given up and go on, where it is time to stop them again."""
        due = [in_flight for in_flight in self._lost if now >= in_flight.stop_at]
        for in_flight in due:
            in_flight.stop_at, in_flight.pause = now + in_flight.pause, min(2 * in_flight.pause, SELDOM)
        return due

    def _time(self, in_flight: InFlightBatch, now: float) -> None:
        """Report what a call without new prompts took; what joins a verification waits for it."""
        batch = in_flight.batch
        longest = max(row.call.output_len for row in batch.rows)
        prompt = any(row.call.first for row in batch.rows)
        if batch.via == "round" and in_flight.server_round:
            server_round = in_flight.server_round
            if server_round.draft_seconds and not prompt:
                self.times.timed("draft", longest, server_round.draft_seconds)
            if server_round.members == 1:  # no new prompts joined it; a draft made ahead may be shorter than asked
                self.times.timed("target", server_round.draft_length + 1, server_round.target_seconds)
        elif batch.via == "engine" and not prompt and (batch.role == "draft" or batch.shared):
            self.times.timed(batch.role, longest, now - in_flight.started)
