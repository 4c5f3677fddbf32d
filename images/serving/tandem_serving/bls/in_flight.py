"""Batches in flight: which sequences wait for them, which are late or almost done, and what they take. Not
thread-safe."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tandem_serving.bls.calls import LONGEST_SPAN, TAKEN_IN, Output, Role, ServerRound
from tandem_serving.bls.draft_length.draft_ahead import DraftAhead
from tandem_serving.bls.draft_length.policy import DraftLengthPolicy
from tandem_serving.bls.schedule import Batch, Row
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
# Share of the calls in flight that draft as many tokens, at least, where each sequence makes its own and one of them
# teaches something: some always begin or end.
ALIKE = 0.75
# Tokens of the target alone, of one sequence, that show what a step takes.
LONG_ENOUGH = 8


@dataclass(eq=False)
class InFlightBatch:
    """An engine call that began at `started`, should end at `due`, where that is known, and is given up at `late`
    (monotonic seconds). Given up, it is stopped again at `stop_at`, then after `pause` seconds.

    `left`: rows without an answer, by row. `off`: the target ran alone when it began, for all; `together`: all began
    such calls in the same moment; `passing`: it began along with calls of the target's that pass (`_passes`): it
    shows how long those go on, not what a round takes; `apart`: there was no round that it could join, so that the
    target makes a step for it; `mixed`: many calls in flight draft another number of tokens, which counts where the
    engine merges calls. `running`: sequences that ran when it began. `server_round`: what the server reported of it.
    Of a stream, the `tokens` that came since `since`.
    """

    batch: Batch[BlsSequence]
    started: float
    left: dict[int, Row[BlsSequence]]
    running: int = 0
    off: bool = False
    together: bool = False
    passing: bool = False
    apart: bool = False
    mixed: bool = False
    due: float | None = None
    late: float = math.inf
    given_up: bool = False
    stop_at: float = 0.0
    pause: float = STOP_AGAIN
    server_round: ServerRound | None = None
    tokens: int = 0
    since: float = 0.0

    @property
    def length(self) -> int:
        """Draft tokens."""
        row = self.batch.rows[0]
        return row.call.output_len - row.ahead if self.batch.role == "draft" else len(row.call.draft_ids)

    def gained(self, outputs: Sequence[tuple[int, Output]]) -> int:
        """Rows of a call of the target; of a stream, the tokens that came in none of its parts."""
        if self.batch.via != "stream":
            return len(outputs)
        streamed = self.batch.rows[0].sequence.loop.streamed
        return sum(len(output.ids) for _, output in outputs) - streamed if self.left else 0

    def drafted(self, outputs: Sequence[tuple[int, Output]]) -> int:
        """Draft tokens of each row of a call of the target, as it was made: none is 0."""
        server_round = outputs[0][1].server_round if outputs else None
        return server_round.draft_length if server_round else len(self.batch.rows[0].call.draft_ids)

    def awaited(self) -> list[Row[BlsSequence]]:
        """Turns without an answer that somebody waits for."""
        return [row for row in self.left.values() if not row.ahead or row.sequence.loop.awaits(row.call)]


class InFlightBatches:
    """What calls take is reported to `policy` and `draft_ahead`. `batched`: sequences share calls, or else make their
    own; `draft_timeout`: seconds of a draft call at most."""

    def __init__(
        self,
        policy: DraftLengthPolicy,
        draft_ahead: DraftAhead,
        batched: bool = True,
        draft_timeout: float = math.inf,
    ) -> None:
        self._policy = policy
        self._draft_timeout = draft_timeout
        self._batched = batched
        self._draft_ahead = draft_ahead
        self._in_flight: dict[InFlightBatch, None] = {}
        self._last_end: dict[Role, float] = {"draft": 0.0, "target": 0.0}
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

    def begin(self, batch: Batch[BlsSequence], started: float, running: int) -> InFlightBatch:
        """An engine call begins while `running` sequences run."""
        in_flight = InFlightBatch(batch, started, dict(enumerate(batch.rows)), running, off=self._policy.alone)
        in_flight.together = self._policy.together
        in_flight.passing = any(map(_passes, self._not_given_up()))
        in_flight.apart = batch.via == "join" and not self._in_rounds()
        length = max(row.call.output_len for row in batch.rows)
        seconds = self._draft_ahead.expected(length, batch.role)
        if batch.role == "draft" and batch.via == "engine" and seconds is not None:
            in_flight.due = started + seconds
        in_flight.late = started + self._patience(batch, seconds)
        if batch.via == "round":
            in_flight.late += self._verification(length)
        self._in_flight[in_flight] = None
        in_flight.mixed = self._mixed(in_flight)
        return in_flight

    def end(self, in_flight: InFlightBatch, running: int, now: float) -> None:
        """It is over; `running` sequences run."""
        in_flight.mixed |= self._mixed(in_flight)
        del self._in_flight[in_flight]
        if in_flight.given_up:
            del self._lost[in_flight]
        else:
            self._time(in_flight, running, now)

    def streamed(self, in_flight: InFlightBatch, tokens: int, running: int, now: float) -> None:
        """A stream brought tokens; the first ones say nothing of a step, since they came after the prompt."""
        in_flight.tokens += tokens
        if in_flight.since and in_flight.tokens < LONG_ENOUGH:
            return
        if in_flight.since:
            self._policy.timed_alone(running, in_flight.tokens, now - in_flight.since, in_flight.together)
        in_flight.tokens, in_flight.since = 0, now

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
        expected = self._draft_ahead.expected(length + 1, "target")
        known = TARGET_LATE if expected is None else max(TARGET_LATE - DRAFT_LATE, LATE * expected)
        return min(known, self._draft_timeout)

    def unstopped(self, now: float) -> list[InFlightBatch]:
        """Those that were given up and go on, where it is time to stop them again."""
        due = [in_flight for in_flight in self._lost if now >= in_flight.stop_at]
        for in_flight in due:
            in_flight.stop_at, in_flight.pause = now + in_flight.pause, min(2 * in_flight.pause, SELDOM)
        return due

    def worth_waiting(self, key: Hashable, now: float) -> float:
        """Until when a verification of sequences of this key waits for drafts that are almost done; 0: none is."""
        patience = self._draft_ahead.patience
        dues = [
            in_flight.due
            for in_flight in self._in_flight
            if in_flight.due and in_flight.due - patience <= now < in_flight.due + patience
            if not in_flight.given_up and _is_of(in_flight, key)
        ]
        return max(dues, default=-patience) + patience

    def _not_given_up(self) -> list[InFlightBatch]:
        """Those that somebody waits for."""
        return [in_flight for in_flight in self._in_flight if not in_flight.given_up]

    def _in_rounds(self) -> bool:
        """Whether the server makes a round."""
        return any(in_flight.batch.via == "round" for in_flight in self._not_given_up())

    def _mixed(self, in_flight: InFlightBatch) -> bool:
        if self._batched:
            return False
        lengths = [other.length for other in self._not_given_up()]
        return lengths.count(in_flight.length) < ALIKE * len(lengths)

    def _time(self, in_flight: InFlightBatch, running: int, now: float) -> None:
        """Tell what a call took that is like others of its kind."""
        batch, first = in_flight.batch, in_flight.batch.rows[0].call
        # A batch that was in the engine's queue began when the one before it was over.
        queued = batch.queued and in_flight.started < self._last_end[batch.role]
        seconds = now - (self._last_end[batch.role] if queued else in_flight.started)
        if batch.shared:
            self._last_end[batch.role] = now
        if in_flight.left or (batch.shared and in_flight.passing):
            return
        prompt = sum(len(row.call.ids) for row in batch.rows if row.call.first)
        if batch.via == "round":
            self._time_round(in_flight, prompt)
        if batch.via != "engine":  # what joins a verification waits for it
            return
        if not prompt and (batch.role == "draft" or batch.shared):
            self._draft_ahead.timed(batch.role, max(row.call.output_len for row in batch.rows), seconds)
        counts = batch.shared or not (self._batched or in_flight.mixed)
        if batch.role == "draft":
            if counts:  # rows that end early leave the others fewer rows a step
                lengths = [row.call.output_len for row in batch.rows]
                rows = sum(lengths) / max(lengths) if batch.shared else running
                self._policy.timed("draft", rows, max(lengths), seconds, prompt, queued)
        elif counts and (batch.shared or first.draft_ids):
            rows = len(batch.rows) if batch.shared else running
            self._policy.timed("target", rows, len(first.draft_ids), seconds, prompt, queued)
        # Where shared batches of drafts end meanwhile, or the server verifies some, the target is not by itself any
        # more.
        elif self._last_end["draft"] <= in_flight.started and not self._in_rounds() and _shows_steps(batch):
            rows, steps = (in_flight.running + running) / 2, first.output_len + TAKEN_IN
            self._policy.timed_alone(rows, steps, seconds, in_flight.together)

    def _time_round(self, in_flight: InFlightBatch, prompt: int) -> None:
        """The same of a round that the server made: it went the way of one call, and nothing was in its way."""
        lengths = [row.call.output_len for row in in_flight.batch.rows]
        server_round, longest = in_flight.server_round, max(lengths)
        if server_round and server_round.draft_seconds:
            if not prompt:
                self._draft_ahead.timed("draft", longest, server_round.draft_seconds)
            self._policy.timed("draft", sum(lengths) / longest, longest, server_round.draft_seconds, prompt)
        if server_round and server_round.members == 1:  # new prompts join others
            k = server_round.draft_length  # a draft made ahead may have been shorter than asked
            self._draft_ahead.timed("target", k + 1, server_round.target_seconds)
            self._policy.timed("target", len(lengths), k, server_round.target_seconds)


def _shows_steps(batch: Batch[BlsSequence]) -> bool:
    """Whether this is a call of the target alone, long enough to tell what a step takes."""
    call = batch.rows[0].call
    return not call.draft_ids and LONG_ENOUGH <= call.output_len <= LONGEST_SPAN


def _passes(in_flight: InFlightBatch) -> bool:
    """Whether this is a short call of the target's, by itself, of a sequence that will be in the shared batches soon.

    A batch that comes meanwhile waits for its step; so does the next one, and the engine then takes both together.
    """
    batch = in_flight.batch
    call = batch.rows[0].call
    first = call.first and call.output_len == 1
    short = batch.role == "target" and not batch.shared and batch.via != "stream"
    return in_flight.apart or (short and (in_flight.off or first))


def _is_of(in_flight: InFlightBatch, key: Hashable) -> bool:
    """Whether this batch brings drafts for a verification of sequences of this key; isolated ones have their own."""
    rows = [row for row in in_flight.awaited() if row.key == key]
    return any(row.sequence.alive and not row.sequence.isolated for row in rows)
