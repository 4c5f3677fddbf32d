"""Batches in flight: which sequences wait for them, which are late, and what they take. Not
thread-safe.

Each call has a time after which it is *late*, by what steps of its engine take (`call_times`), and by the prompts
that were asked for before it. A stream's begins anew with each part. As long as the draft engine's steps are not
known, a draft is late when the target would have made its tokens. Such a call goes on for a while, though no sequence
waits for it any longer: the engine may warm up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tandem_serving.bls import call_times
from tandem_serving.bls.batches import Batch, Row
from tandem_serving.bls.call_times import CallTimes
from tandem_serving.bls.calls import Output, Role, ServerRound
from tandem_serving.bls.sequence import BlsSequence
from tandem_serving.engine.health import LONGEST_LOOK, PROMPT_TOKENS

# So many draft calls that were given up may still be under way: each keeps a thread of ours and one of Triton's.
MOST_LOST = 16
# Each shared batch whose answer is lost holds up all its rows until it is given up: with so many still under way, no
# more.
MOST_LOST_SHARED = 2
# Seconds that a call has at least. A draft given up in vain costs little: the target goes on without.
DRAFT_LATE, TARGET_LATE = 2.0, 5.0
# Seconds of a call before it is known what such calls take: of the target until it is late, of the draft until it is
# stopped.
FIRST_LATE = 30.0
# What the next part of a stream costs, in steps.
PART = 1 + 1 / PROMPT_TOKENS
# A call that was late is asked for again, and has so many times as long.
PATIENT = 4.0
# Seconds after which a call that goes on is stopped again, twice as many each time: the stop may have overtaken it.
STOP_AGAIN, SELDOM = 0.1, 10.0


@dataclass(eq=False)
class InFlightBatch:
    """An engine call that began at `started`, and is late at `late` (monotonic seconds). Given up, it is stopped
    at `stop_at`, and again after `pause` seconds.

    `left`: rows without an answer, by row. `heard`: when it began, or its latest part came. `ahead`: its new prompts,
    in steps, as long as nothing came of it. `again`: it was asked for before, and nothing came of it yet.
    `server_round`: what the server reported of it.
    """

    batch: Batch[BlsSequence]
    started: float
    left: dict[int, Row[BlsSequence]]
    heard: float
    late: float = math.inf
    ahead: float = 0.0
    again: bool = False
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


@dataclass
class _Engine:
    """What is known of an engine: when it `heard` from it, when the latest call began that it `answered`, and new
    prompts that it has, in steps."""

    times: CallTimes = field(default_factory=CallTimes)
    heard: float = -math.inf
    answered: float = -math.inf
    ahead: float = 0.0


class InFlightBatches:
    """`draft_timeout`: seconds of a draft call at most."""

    def __init__(self, draft_timeout: float = math.inf) -> None:
        self._draft_timeout = draft_timeout
        self._engines: dict[Role, _Engine] = {"draft": _Engine(), "target": _Engine()}
        self._in_flight: dict[InFlightBatch, None] = {}
        self._lost: dict[InFlightBatch, None] = {}
        self._looked: float | None = None

    @property
    def lost(self) -> int:
        """Calls that were given up and are still under way: each keeps a thread."""
        return len(self._lost)

    @property
    def lost_drafts(self) -> int:
        """Those of the draft engine."""
        return sum(in_flight.batch.role == "draft" for in_flight in self._lost)

    def shares(self, role: Role) -> bool:
        """Whether sequences may share calls: few enough of those that were given up are still under way."""
        return (
            sum(in_flight.batch.role == role and len(in_flight.batch.rows) > 1 for in_flight in self._lost)
            < MOST_LOST_SHARED
        )

    def step(self, role: Role) -> float | None:
        """Seconds of an engine's step; None: not known."""
        return self._engines[role].times.step

    def begin(self, batch: Batch[BlsSequence], started: float) -> InFlightBatch:
        """An engine call begins."""
        in_flight = InFlightBatch(batch, started, dict(enumerate(batch.rows)), started, again=batch.rows[0].again)
        engine = self._engines[batch.role]
        in_flight.ahead = call_times.prompts(batch.rows)
        engine.ahead += in_flight.ahead
        in_flight.late = started + self._patience(in_flight)
        self._in_flight[in_flight] = None
        return in_flight

    def came(self, in_flight: InFlightBatch, now: float) -> None:
        """An answer of it came, or a part."""
        engine = self._engines[in_flight.batch.role]
        engine.heard, engine.answered = now, max(engine.answered, in_flight.started)
        in_flight.heard, in_flight.again = now, False
        self._prompts_done(in_flight)

    def part_came(self, in_flight: InFlightBatch, now: float, tokens: int) -> None:
        """A part of a stream came, of so many tokens."""
        engine, began = self._engines["target"], in_flight.heard
        if began > in_flight.started and engine.heard < now:  # those of the others come in the same moment
            engine.times.timed(PART * tokens, now - began)
        self.came(in_flight, now)
        late = engine.times.late(PART + engine.ahead)
        in_flight.late = now + (FIRST_LATE if late is None else max(TARGET_LATE, late))

    def end(self, in_flight: InFlightBatch, now: float) -> None:
        """It is over."""
        del self._in_flight[in_flight]
        self._prompts_done(in_flight)
        if in_flight.given_up:
            del self._lost[in_flight]
        elif not in_flight.left:
            self._time(in_flight, now)

    def give_up(self, in_flight: InFlightBatch) -> None:
        """Nobody waits for it any longer; its thread does."""
        in_flight.given_up = True
        self._prompts_done(in_flight)
        self._lost[in_flight] = None

    def useless(self) -> list[InFlightBatch]:
        """Those whose requests are all over."""
        return [
            in_flight
            for in_flight in self._in_flight
            if not in_flight.given_up and not any(row.sequence.alive for row in in_flight.left.values())
        ]

    def late(self, now: float) -> list[InFlightBatch]:
        """Calls that take too long; to be called several times a second.

        Of one that was late before, where its answer is lost, not the engine busy: others were answered that were
        asked for later, or none at all was."""
        still = 0.0 if self._looked is None else max(0.0, now - self._looked - LONGEST_LOOK)
        self._looked = now
        late = []
        warms_up = self.step("draft") is None
        for in_flight in self._in_flight:
            in_flight.late += still  # a process that stood still has seen nothing meanwhile
            if not in_flight.given_up and now > in_flight.late and not (in_flight.again and self._is_busy(in_flight)):
                late.append(in_flight)
                if in_flight.batch.role == "draft" and warms_up:
                    in_flight.stop_at = in_flight.started + FIRST_LATE
        return late

    def unstopped(self, now: float) -> list[InFlightBatch]:
        """Those that were given up and go on, where it is time to stop them again."""
        due = [in_flight for in_flight in self._lost if now >= in_flight.stop_at]
        for in_flight in due:
            in_flight.stop_at, in_flight.pause = now + in_flight.pause, min(2 * in_flight.pause, SELDOM)
        return due

    def _is_busy(self, in_flight: InFlightBatch) -> bool:
        """Whether its engine answers, but nothing that was asked for later."""
        engine = self._engines[in_flight.batch.role]
        return engine.answered <= in_flight.started < engine.heard

    def _patience(self, in_flight: InFlightBatch) -> float:
        """How long a call may take, or a stream until its first part."""
        batch = in_flight.batch
        if batch.role == "draft":
            draft = self._patience_of_draft(batch.rows)
            both = draft + (self._patience_of_verification(batch.rows) if batch.via == "round" else 0.0)
            return max(min(DRAFT_LATE, self._draft_timeout), both)
        engine = self._engines["target"]
        work = call_times.steps(batch.rows) + engine.ahead
        late = engine.times.late(work, call_times.known_tokens(batch.rows))
        return (FIRST_LATE if late is None else max(TARGET_LATE, late)) * (PATIENT if in_flight.again else 1.0)

    def _patience_of_draft(self, rows: Sequence[Row[BlsSequence]]) -> float:
        engine = self._engines["draft"]
        work = call_times.steps(rows) + engine.ahead
        late = engine.times.late(work, call_times.known_tokens(rows))
        if late is None:
            late = self._engines["target"].times.takes(work)
        return self._draft_timeout if late is None else min(self._draft_timeout, late)

    def _patience_of_verification(self, rows: Sequence[Row[BlsSequence]]) -> float:
        """After a draft, as long as a draft at most: where one never ends, there is to be time left to go on
        without drafts."""
        engine = self._engines["target"]
        work = call_times.verification(rows) + engine.ahead
        late = engine.times.late(work, call_times.known_tokens(rows))
        return min(self._draft_timeout, FIRST_LATE if late is None else late)

    def _prompts_done(self, in_flight: InFlightBatch) -> None:
        self._engines[in_flight.batch.role].ahead -= in_flight.ahead
        in_flight.ahead = 0.0

    def _time(self, in_flight: InFlightBatch, now: float) -> None:
        """Report what a call without new prompts took; what joins a verification waits for it. Both are taken as long
        as nothing is known."""
        batch = in_flight.batch
        prompt = any(row.call.first for row in batch.rows)
        if batch.via == "round" and in_flight.server_round:
            self._time_round(in_flight.server_round, batch, prompt)
        elif batch.via in ("engine", "join") and (
            self.step(batch.role) is None or (batch.via == "engine" and not prompt)
        ):
            work = call_times.steps(batch.rows) + call_times.prompts(batch.rows)
            self._engines[batch.role].times.timed(work, now - in_flight.started)

    def _time_round(self, server_round: ServerRound, batch: Batch[BlsSequence], prompt: bool) -> None:
        if server_round.draft_seconds and not prompt:
            self._engines["draft"].times.timed(call_times.steps(batch.rows), server_round.draft_seconds)
        if server_round.members == 1:  # no new prompts joined it
            work = call_times.verification(batch.rows)
            self._engines["target"].times.timed(work, server_round.target_seconds)
