"""The adaptive length over engines that merge calls as they come, as TensorRT-LLM does: what it makes of each load.

Simulated: a step of an engine takes all calls in flight, and none that comes meanwhile. No threads, no clock.
"""

import heapq
import random
from collections.abc import Callable
from itertools import count
from statistics import mean
from typing import Any

import numpy as np
import pytest

from support.serving.bls import NO_TENSORS, Answer, NoText
from support.serving.steady import Steady
from tandem_serving import metrics as m
from tandem_serving.bls.batches import Batch
from tandem_serving.bls.calls import Call, Output, Role
from tandem_serving.bls.chunks import BlsChunk
from tandem_serving.bls.draft_length.policy import AdaptiveDraftLength
from tandem_serving.bls.in_flight import InFlightBatch
from tandem_serving.bls.limits import RoundLimits
from tandem_serving.bls.loop import LoopParams, SequenceLoop
from tandem_serving.bls.rounds import Rounds
from tandem_serving.bls.sequence import BlsSequence, State
from tandem_serving.errors import EngineError
from tandem_serving.requests.active import ActiveRequest

pytestmark = pytest.mark.nightly

MAX_K, WAY = 8, 0.0008
# Share of the best fixed length's speed: 0.89 to 1.14 with other seeds; 0.3 to 0.81 where a length of 4 stays though
# it is not the best.
NEARLY = 0.9
# The same where a round's time jumps with its length, as steps meet by chance: the longest length is not found.
UNEVEN = 0.88
FAILED = EngineError("not here")


def steps(call: Call) -> int:
    return 1 if call.draft_ids else call.output_len


class Engine:
    """`base` seconds a step, `token` more for each token that it takes: of the target 1 + its draft tokens."""

    def __init__(self, world: "World", base: float, token: float) -> None:
        self._world, self._base, self._token = world, base, token
        self._left: dict[InFlightBatch, int] = {}
        self._stepping = False

    def take(self, in_flight: InFlightBatch) -> None:
        self._left[in_flight] = max(steps(row.call) for row in in_flight.batch.rows)
        if not self._stepping:
            self._step()

    def _step(self) -> None:
        self._stepping = bool(self._left)
        if self._stepping:
            taken = list(self._left)
            tokens = sum(len(row.call.draft_ids) + 1 for in_flight in taken for row in in_flight.batch.rows)
            self._world.after(self._base + self._token * tokens, lambda: self._stepped(taken))

    def _stepped(self, taken: list[InFlightBatch]) -> None:
        for in_flight in taken:
            self._left[in_flight] -= 1
            if not self._left[in_flight]:
                del self._left[in_flight]
                self._world.after(WAY / 2, lambda in_flight=in_flight: self._world.answered(in_flight))  # type: ignore[misc]
        self._step()


class World:
    """Requests in a closed loop: each that ends is followed by another, of one call of the target if it was `guided`.

    `rows`: sequences that an engine call takes; `acceptance` of a draft token; `token`: seconds of the target's steps
    for each token; `work`: seconds that the one processor takes to make a call.
    """

    def __init__(
        self,
        policy: Callable[["World"], AdaptiveDraftLength],
        rows: int,
        acceptance: float,
        token: float,
        work: float = 0.0,
        seed: int = 1,
    ) -> None:
        self.now, self.tokens, self._numbers = 100.0, 0, count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._work, self._idle_from = work, 0.0
        self._random, self._acceptance, self._guided = random.Random(seed), acceptance, set[BlsSequence]()
        self.policy = policy(self)
        limits = RoundLimits(64, 0, rows, draft_timeout=60.0)
        self._rounds = Rounds(self.policy, limits, m.Metrics(), lambda _: None, clock=lambda: self.now)
        self._engines: dict[Role, Engine] = {"draft": Engine(self, 0.002, 5e-5), "target": Engine(self, 0.012, token)}

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), event))

    def run(self, seconds: float) -> float:
        """Tokens a second meanwhile."""
        end, before = self.now + seconds, self.tokens
        while self._events[0][0] < end:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = end
        return (self.tokens - before) / seconds

    def begin(self, guided: bool = False) -> None:
        length = 400 if guided else self._random.randrange(100, 157)
        loop = SequenceLoop(LoopParams(np.zeros(20, np.int32), length, one_call=guided))
        active: ActiveRequest[BlsChunk] = ActiveRequest(1, "", Answer(), deadline=1e9)
        writer: Any = NoText()
        made = BlsSequence(active, loop, writer, NO_TENSORS, m.Metrics(), draft_length=MAX_K)
        self._guided |= {made} if guided else set()
        self._rounds.admit([made])
        self.start()

    def start(self) -> None:
        self._take_off(self._rounds.start())

    def _take_off(self, batches: list[Batch[BlsSequence]]) -> None:
        for batch in batches:
            in_flight = self._rounds.sent(batch, self.now)
            engine = self._engines[batch.role]
            self._idle_from = max(self.now, self._idle_from) + self._work
            delay = self._idle_from - self.now + WAY / 2
            self.after(delay, lambda in_flight=in_flight, engine=engine: engine.take(in_flight))  # type: ignore[misc]

    def answered(self, in_flight: InFlightBatch) -> None:
        rows = in_flight.batch.rows
        outputs = [(index, Output(self._answer(row.call))) for index, row in enumerate(rows)]
        self._take_off(self._rounds.release(in_flight.batch))
        self._rounds.answered(in_flight, outputs, self.now)
        self._rounds.outgoing.clear()
        self._rounds.call_ended(in_flight, FAILED, self.now)
        for sequence in [row.sequence for row in rows if row.sequence.state is State.FINISHED]:
            self._rounds.end([sequence])
            self.begin(sequence in self._guided)
        self.start()

    def _answer(self, call: Call) -> list[int]:
        """All say 0; a draft 1 where it is wrong."""
        if call.role == "draft":
            return [int(self._random.random() > self._acceptance) for _ in range(call.output_len)]
        right = [*call.draft_ids, 1].index(1) if call.draft_ids else call.output_len - 1
        self.tokens += right + 1
        return [0] * (right + 1)


def speed(
    streams: int,
    acceptance: float,
    token: float,
    fixed: int | None = None,
    rows: int = 1,
    guided: int = 0,
    work: float = 0.0,
    seed: int = 1,
) -> float:
    """Tokens a second once all is known."""

    def policy(world: World) -> AdaptiveDraftLength:
        if fixed is not None:
            return Steady(fixed, separate_devices=True)
        return AdaptiveDraftLength(0, MAX_K, separate_devices=True, batched=rows > 1, clock=lambda: world.now)

    world = World(policy, rows, acceptance, token, work, seed)
    for _ in range(guided):
        world.begin(guided=True)
    for _ in range(streams):
        world.begin()
    world.run(3)
    return world.run(4)


# acceptance, seconds of the target for each token, streams, why
LOADS = [
    (0.3, 5e-5, 1, "little is accepted: the target alone"),
    (0.3, 3e-4, 16, "and verifying is dear"),
    (0.9, 5e-5, 1, "nearly all is accepted: the longest, or nearly so"),
    (0.9, 5e-5, 16, "many make steps that wait for each other as it happens: 0.89"),
    (0.7, 3e-4, 16, "verifying is dear: short ones"),
]


@pytest.mark.parametrize(("acceptance", "token", "streams", "reason"), LOADS)
def test_the_length_suits_acceptance_costs_and_load(
    acceptance: float, token: float, streams: int, reason: str
) -> None:
    """On average: which calls fall into one step is chance."""

    def reached(seed: int) -> float:
        best = max(speed(streams, acceptance, token, fixed, seed=seed) for fixed in (0, 2, 4, MAX_K))
        return speed(streams, acceptance, token, seed=seed) / best

    assert mean(map(reached, range(3))) >= (UNEVEN if streams * acceptance > 12 else NEARLY), reason


def test_calls_that_wait_for_the_processor_count() -> None:
    """Else a length of 4 stays, which makes half as many tokens as the target alone."""
    alone = speed(48, 0.8, 5e-5, fixed=0, work=0.001)
    assert speed(48, 0.8, 5e-5, work=0.001) >= NEARLY * alone


def test_requests_of_one_long_call_do_not_keep_the_others_from_learning() -> None:
    """Guided ones, where engines take many rows a call: they run beside all waves."""
    alone = speed(24, 0.1, 4e-4, fixed=0, rows=64, guided=3)
    assert speed(24, 0.1, 4e-4, rows=64, guided=3) >= NEARLY * alone
