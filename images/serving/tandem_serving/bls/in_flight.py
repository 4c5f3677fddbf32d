"""Engine calls in the air: who waits for them, which are late or almost done, and what they take. Not thread-safe."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

from tandem_serving.bls.calls import LONGEST_SPAN, TAKEN_IN, Role, ServerRound
from tandem_serving.bls.draft_length.draft_ahead import DraftAhead
from tandem_serving.bls.draft_length.policy import DraftLengthPolicy
from tandem_serving.bls.schedule import Batch, Row
from tandem_serving.bls.sequence import BlsSequence

# So many draft calls that were given up may still be under way: each keeps a thread of ours and one of Triton's.
MOST_LOST = 16
# Each wave whose answer is lost holds up all its rows until it is given up: with so many still under way, no more.
LOST_WAVES = 2
# A call is late when it takes so many times what such calls take, but these seconds at least: a stalled machine or a
# long prompt beside is no lost answer.
LATE = 20.0
DRAFT_LATE, TARGET_LATE, PROMPT_LATE = 5.0, 10.0, 30.0
# Seconds after which a call that goes on is stopped again, twice as many each time: the stop may have overtaken it.
STOP_AGAIN, SELDOM = 0.1, 10.0
# Share of the calls in the air that draft as many tokens, at least, where each sequence makes its own and one of them
# teaches something: some always begin or end.
ALIKE = 0.75
# Tokens of a call of the target alone that tells what a step takes, beside what it waits: as many as its stream lets
# it have, within these.
SHORTEST, LONG_ENOUGH = 4, 8


@dataclass(eq=False)
class InFlightBatch:
    """An engine call that began at `started`, should end at `due`, where that is known, and is given up at `late`
    (monotonic seconds). Given up, it is stopped again at `stop_at`, then after `pause` seconds.

    `left`: turns without an answer, by row. `off`: the target ran alone when it began, for all; `together`: all began
    such calls in the same moment; `beside`: it began
    beside calls of the target's that pass, see there: it tells how long those go on, not what a round takes; `apart`:
    there was no round that it could join, so that the target makes a step for it; `mixed`: many calls beside it draft
    another number of tokens, which counts where the engine merges calls. `running`: sequences that had places when it
    began. `served`: what the server told of it.
    """

    batch: Batch[BlsSequence]
    started: float
    left: dict[int, Row[BlsSequence]]
    running: int = 0
    off: bool = False
    together: bool = False
    beside: bool = False
    apart: bool = False
    mixed: bool = False
    due: float | None = None
    late: float = math.inf
    given_up: bool = False
    stop_at: float = 0.0
    pause: float = STOP_AGAIN
    served: ServerRound | None = None

    @property
    def length(self) -> int:
        """Draft tokens."""
        turn = self.batch.turns[0]
        return turn.call.output_len - turn.ahead if self.batch.role == "draft" else len(turn.call.draft_ids)

    def awaited(self) -> list[Row[BlsSequence]]:
        """Turns without an answer that somebody waits for."""
        return [turn for turn in self.left.values() if not turn.ahead or turn.sequence.loop.awaits(turn.call)]


class InFlightBatches:
    """What calls take is told to `policy` and `foresight`. `waves`: sequences share calls, or else make their own;
    `draft_timeout`: seconds of a draft call at most."""

    def __init__(
        self, policy: DraftLengthPolicy, foresight: DraftAhead, waves: bool = True, draft_timeout: float = math.inf
    ) -> None:
        self._policy = policy
        self._draft_timeout = draft_timeout
        self._waves = waves
        self._foresight = foresight
        self._flights: dict[InFlightBatch, None] = {}
        self._landed: dict[Role, float] = {"draft": 0.0, "target": 0.0}
        self._lost: dict[InFlightBatch, None] = {}

    @property
    def draft_returns(self) -> bool:
        """Whether few enough draft calls that were given up are still under way."""
        return sum(flight.batch.role == "draft" for flight in self._lost) < MOST_LOST

    def shares(self, role: Role) -> bool:
        """Whether sequences may share calls: few enough of those that were given up are still under way."""
        return sum(flight.batch.role == role and len(flight.batch.turns) > 1 for flight in self._lost) < LOST_WAVES

    def begin(self, batch: Batch[BlsSequence], started: float, running: int) -> InFlightBatch:
        """An engine call begins while `running` sequences have places."""
        flight = InFlightBatch(batch, started, dict(enumerate(batch.turns)), running, off=self._policy.alone)
        flight.together = self._policy.together
        flight.beside = any(map(_passes, self._flying()))
        flight.apart = batch.via == "join" and not self._in_rounds()
        length = max(turn.call.output_len for turn in batch.turns)
        seconds = self._foresight.expected(length, batch.role)
        if batch.role == "draft" and batch.via == "engine" and seconds is not None:
            flight.due = started + seconds
        flight.late = started + self._patience(batch, seconds)
        if batch.via == "round":
            flight.late += self._verification(length)
        self._flights[flight] = None
        flight.mixed = self._mixed(flight)
        return flight

    def end(self, flight: InFlightBatch, running: int, now: float) -> None:
        """It is over; `running` sequences have places."""
        flight.mixed |= self._mixed(flight)
        del self._flights[flight]
        if flight.given_up:
            del self._lost[flight]
        else:
            self._time(flight, running, now)

    def give_up(self, flight: InFlightBatch) -> None:
        """Nobody waits for it any longer; its thread does."""
        flight.given_up = True
        self._lost[flight] = None

    def useless(self) -> list[InFlightBatch]:
        """Those whose requests are all over."""
        return [
            flight
            for flight in self._flights
            if not flight.given_up and not any(turn.sequence.alive for turn in flight.left.values())
        ]

    def late(self, now: float) -> list[InFlightBatch]:
        """Drafts that take too long, and verifications of several sequences: one lost answer holds up all of them."""
        return [flight for flight in self._flights if not flight.given_up and now > flight.late]

    def _patience(self, batch: Batch[BlsSequence], seconds: float | None) -> float:
        """How long a call may take; `seconds`: what such calls without a prompt take, if that is known."""
        prompt = any(turn.call.first for turn in batch.turns)
        if batch.role == "draft":
            known = math.inf if prompt or seconds is None else max(DRAFT_LATE, LATE * seconds)
            return min(self._draft_timeout, known)
        if len(batch.turns) == 1:  # nobody else waits, and its request has a timeout
            return math.inf
        return max(PROMPT_LATE if prompt or seconds is None else TARGET_LATE, LATE * (seconds or 0.0))

    def _verification(self, length: int) -> float:
        """How long a round may take beyond its draft, which takes far less: a verification has as long as by itself.

        As long as a draft at most: one that never ends is to leave time for the target alone."""
        expected = self._foresight.expected(length + 1, "target")
        known = TARGET_LATE if expected is None else max(TARGET_LATE - DRAFT_LATE, LATE * expected)
        return min(known, self._draft_timeout)

    def unstopped(self, now: float) -> list[InFlightBatch]:
        """Those that were given up and go on, where it is time to stop them again."""
        flights = [flight for flight in self._lost if now >= flight.stop_at]
        for flight in flights:
            flight.stop_at, flight.pause = now + flight.pause, min(2 * flight.pause, SELDOM)
        return flights

    def worth_waiting(self, key: Hashable, now: float) -> float:
        """Until when a verification of sequences of this key waits for drafts that are almost done; 0: none is."""
        patience = self._foresight.patience
        dues = [
            flight.due
            for flight in self._flights
            if flight.due and flight.due - patience <= now < flight.due + patience
            if not flight.given_up and _is_of(flight, key)
        ]
        return max(dues, default=-patience) + patience

    def _flying(self) -> list[InFlightBatch]:
        """Those that somebody waits for."""
        return [flight for flight in self._flights if not flight.given_up]

    def _in_rounds(self) -> bool:
        """Whether the server makes a round."""
        return any(flight.batch.via == "round" for flight in self._flying())

    def _mixed(self, flight: InFlightBatch) -> bool:
        if self._waves:
            return False
        lengths = [other.length for other in self._flying()]
        return lengths.count(flight.length) < ALIKE * len(lengths)

    def _time(self, flight: InFlightBatch, running: int, now: float) -> None:
        """Tell what a call took that is like others of its kind."""
        batch, first = flight.batch, flight.batch.turns[0].call
        # A wave that was in the engine's queue began when the one before it was over.
        queued = batch.queued and flight.started < self._landed[batch.role]
        seconds = now - (self._landed[batch.role] if queued else flight.started)
        if batch.wave:
            self._landed[batch.role] = now
        if flight.left or (batch.wave and flight.beside):
            return
        prompt = sum(len(turn.call.ids) for turn in batch.turns if turn.call.first)
        if batch.via == "round":
            self._time_round(flight, prompt)
        if batch.via != "engine":  # what joins a verification waits for it
            return
        if not prompt and (batch.role == "draft" or batch.wave):
            self._foresight.timed(batch.role, max(turn.call.output_len for turn in batch.turns), seconds)
        told = batch.wave or not (self._waves or flight.mixed)
        if batch.role == "draft":
            if told:  # rows that end early leave the others fewer rows a step
                lengths = [turn.call.output_len for turn in batch.turns]
                rows = sum(lengths) / max(lengths) if batch.wave else running
                self._policy.timed("draft", rows, max(lengths), seconds, prompt, queued)
        elif told and (batch.wave or first.draft_ids):
            rows = len(batch.turns) if batch.wave else running
            self._policy.timed("target", rows, len(first.draft_ids), seconds, prompt, queued)
        # Where waves of drafts end meanwhile, or the server verifies some, the target is not by itself any more.
        elif self._landed["draft"] <= flight.started and not self._in_rounds() and _tells_steps(batch):
            rows, steps = (flight.running + running) / 2, first.output_len + TAKEN_IN
            self._policy.timed_alone(rows, steps, seconds, flight.together)

    def _time_round(self, flight: InFlightBatch, prompt: int) -> None:
        """The same of a round that the server made: it went the way of one call, and nothing was in its way."""
        lengths = [turn.call.output_len for turn in flight.batch.turns]
        served, longest = flight.served, max(lengths)
        if served and served.draft_seconds:
            if not prompt:
                self._foresight.timed("draft", longest, served.draft_seconds)
            self._policy.timed("draft", sum(lengths) / longest, longest, served.draft_seconds, prompt)
        if served and served.members == 1:  # new prompts join others
            k = served.draft_length  # a draft made ahead may have been shorter than asked
            self._foresight.timed("target", k + 1, served.target_seconds)
            self._policy.timed("target", len(lengths), k, served.target_seconds)


def _tells_steps(batch: Batch[BlsSequence]) -> bool:
    """Whether this is a call of the target alone, long enough to tell what a step takes."""
    turn = batch.turns[0]
    enough = max(SHORTEST, min(turn.sequence.loop.longest_span, LONG_ENOUGH))
    return not turn.call.draft_ids and enough <= turn.call.output_len <= LONGEST_SPAN


def _passes(flight: InFlightBatch) -> bool:
    """Whether this is a short call of the target's, by itself, of a sequence that will be in the waves soon.

    A wave that comes meanwhile waits for its step; so does the next one, and the engine then takes both together.
    """
    batch = flight.batch
    call = batch.turns[0].call
    first = call.first and call.output_len == 1
    return flight.apart or (batch.role == "target" and not batch.wave and (flight.off or first))


def _is_of(flight: InFlightBatch, key: Hashable) -> bool:
    """Whether the flight brings drafts for a verification of sequences of this key; who is isolated has his own."""
    turns = [turn for turn in flight.awaited() if turn.key == key]
    return any(turn.sequence.alive and not turn.sequence.isolated for turn in turns)
