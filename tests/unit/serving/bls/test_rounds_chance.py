"""Rounds by chance: engines that fail, hang or answer late, clients that leave, prompts of all kinds, in each order.

Whatever happens each request ends once, its text is the target's own, and nothing is left over. No threads, a clock
of the test's own.
"""

import heapq
import logging
import math
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Sequence_
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest

from support.serving.bls import Answer
from support.serving.mock_engine import END, MockEngine
from support.serving.steady import Steady
from tandem_serving import metrics as m
from tandem_serving.bls.batches import Batch
from tandem_serving.bls.calls import Output, Role, ServerRound, padded
from tandem_serving.bls.chunks import BlsChunk, BlsWriter
from tandem_serving.bls.draft_length.policy import AdaptiveDraftLength
from tandem_serving.bls.in_flight import InFlightBatch
from tandem_serving.bls.limits import RoundLimits
from tandem_serving.bls.loop import LoopParams, SequenceLoop
from tandem_serving.bls.request import BlsPrompt
from tandem_serving.bls.rounds import Rounds
from tandem_serving.bls.sequence import BlsSequence, EngineInputs, MakeChunks
from tandem_serving.bls.step_limits import UNLIMITED
from tandem_serving.bls.strategies import filled_steps
from tandem_serving.errors import EngineError, QueueTimeoutError
from tandem_serving.requests.active import ActiveRequest, send
from tandem_serving.requests.text import Detokenizer, StopText, TextStream

pytestmark = pytest.mark.nightly

K = 4
DRAFT_TOKEN, TARGET_STEP, DRAFT_TIMEOUT, WATCH, LONGEST = 0.002, 0.012, 0.5, 0.1, 60.0
REQUESTS = 40
FAILED = EngineError("an engine call failed")


def target(ids: list[int]) -> int:
    """Repeats itself now and then, and ends."""
    chosen = sum(ids[-4:]) * 31 + len(ids) * 7
    return END if len(ids) > 20 and chosen % 40 == 0 else ids[-1] if chosen % 3 == 0 else 1 + chosen % 96


def decode(ids: list[int]) -> str:
    return "".join(chr(0x100 + token) for token in ids)


def expected(prompt: list[int], most: int, stop: str) -> list[int]:
    ids = list(prompt)
    while len(ids) < len(prompt) + most and (token := target(ids)) != END:
        ids.append(token)
        if decode([token]) == stop:
            break
    return ids[len(prompt) :]


class Play:
    """`REQUESTS` requests, played to their ends. `places`, `rows`, `beside`: of the service; `right`: how often a
    token of the draft is; `faults`: share of the calls that fail, and of the drafts that hang or come late;
    `whole`: the server makes whole rounds; `tokens`: of a step of the target, or of the draft, which takes more."""

    def __init__(
        self,
        seed: int,
        places: int,
        rows: int,
        beside: bool,
        right: float,
        faults: float,
        whole: bool,
        tokens: int = UNLIMITED,
    ) -> None:
        self.rng = random.Random(seed)
        self.now, self.right, self.faults, self.rows = 100.0, right, faults, rows
        policies: list[AdaptiveDraftLength] = [
            Steady(K, beside),
            AdaptiveDraftLength(0, K, beside, rows > 1, clock=lambda: self.now),
        ]
        self.policy = policies[seed % 4 == 3]
        patience = 0.03 if seed % 2 else math.inf
        step = tokens, 2 * tokens
        limits = RoundLimits(places, REQUESTS * 8, rows, DRAFT_TIMEOUT, patience, K if whole else 0, *step)
        self.steps = 0
        self.rounds = Rounds(self.policy, limits, m.Metrics(), self.delivered, clock=lambda: self.now)
        self.asked: dict[BlsSequence, list[int]] = {}  # with what it is to say
        self.events: list[tuple[float, int, Callable[[], object]]] = []
        self.numbers = count()
        self.in_flight: dict[InFlightBatch, bool] = {}  # whether it hangs
        self.failed: set[int] = set()
        self.orders: set[str] = set()
        self.joining: list[InFlightBatch] = []  # calls that wait for the verification of a round
        self.groups = count(1)
        self.joined = 0

    def at(self, time: float, event: Callable[[], object]) -> None:
        heapq.heappush(self.events, (time, next(self.numbers), event))

    def run(self) -> None:
        for _ in range(REQUESTS):
            self.at(self.now + self.rng.random() * 0.4, self.request)
        self.at(self.now, self.watch)
        while self.events:
            time, _, event = heapq.heappop(self.events)
            self.now = max(self.now, time)
            event()
            self.check_calls()

    # --- requests ---------------------------------------------------------------------------------
    def request(self) -> None:
        rng, answer = self.rng, Answer()
        prompts, logits = rng.choice([1, 1, 1, 2, 8]), rng.random() < 0.2
        active: ActiveRequest[BlsChunk] = ActiveRequest(
            prompts, "", answer, deadline=self.now + LONGEST, arrived=self.now
        )
        sequences = [self.sequence(active, i, logits) for i in range(prompts)]
        self.rounds.admit(sequences)
        if rng.random() < 0.2:
            self.at(self.now + rng.random() * 0.3, lambda: setattr(answer, "gone", True))
        self.start()

    def sequence(self, active: ActiveRequest[BlsChunk], index: int, logits: bool) -> BlsSequence:
        rng = self.rng
        ids = [rng.randrange(1, 97) for _ in range(rng.randrange(1, 9))]
        most, stop = rng.choice([1, 2, 3, 17, 40]), decode([rng.randrange(1, 97)]) if rng.random() < 0.3 else ""
        prompt = BlsPrompt(index, "", np.array(ids, np.int32), most, K, 0, None, frozenset({END}), (stop,), False, {})
        writer = BlsWriter(prompt, TextStream(Detokenizer(decode, ids), StopText((stop,))), stream=rng.random() < 0.7)
        limits: dict[str, Any] = {
            "target_limit": len(ids) + most + rng.choice([0, K]),
            "draft_limit": len(ids) + rng.choice([10, 99]),
        }
        loop = SequenceLoop(LoopParams(prompt.ids, most, frozenset({END}), use_draft_logits=logits, **limits))
        engine_inputs: dict[Role, EngineInputs] = {
            "target": EngineInputs({}),
            "draft": EngineInputs({}, ("logits",) * logits),
        }
        k = rng.choice([0, 1, K, K, K])
        alike = rng.random() < 0.1
        made = BlsSequence(
            active,
            loop,
            writer,
            engine_inputs,
            m.Metrics(),
            draft_length=k,
            reproducible=alike,
        )
        self.asked[made] = expected(ids, most, stop)
        return made

    def delivered(self, sequence: BlsSequence) -> None:
        self.rounds.end([sequence])
        self.start()

    # --- what the runner and its watchdog do -------------------------------------------------------
    def start(self) -> None:
        for request, error in self.rounds.failed:
            request.fail(error)
        self.rounds.failed.clear()
        self.stop()
        for batch in self.rounds.start():
            self.take_off(batch)

    def watch(self) -> None:
        active_requests = {
            id(sequence.request): sequence.request for sequence in self.asked if not sequence.request.over
        }.values()
        if sum(active.abandoned() for active in active_requests):
            self.rounds.end_dead()
        assert all(self.now < active.deadline for active in active_requests), "somebody waits for ever"
        for active, error in self.rounds.time_out(self.now):
            active.fail(error)
        self.rounds.late(self.now)
        self.start()
        if self.events or self.in_flight:
            self.at(self.now + WATCH, self.watch)

    def stop(self) -> None:
        stops, self.rounds.stops = self.rounds.stops, []
        for in_flight in stops:  # a stop may come too late for what does not hang
            fails = in_flight.batch.via == "round" or self.in_flight.get(in_flight, True)
            self.at(self.now + 0.01, partial(self.land, in_flight, fails=fails))

    # --- engines ----------------------------------------------------------------------------------
    def take_off(self, batch: Batch[BlsSequence]) -> None:
        calls, chance = [row.call for row in batch.rows], self.rng.random()
        assert len({row.sequence for row in batch.rows}) == len(calls) <= self.rows
        assert batch.via != "join" or not any(call.draft_ids for call in calls)
        if batch.via == "engine":
            assert len({(call.role, len(call.draft_ids), call.draft_logits is None) for call in calls}) == 1
        self.orders.add(self.order())
        longest = max(call.output_len for call in calls)
        seconds = DRAFT_TOKEN * longest if batch.role == "draft" else TARGET_STEP
        in_flight = self.rounds.sent(batch, self.now)
        fails, late = chance < self.faults, self.faults < chance < 2 * self.faults
        self.in_flight[in_flight] = hangs = 2 * self.faults < chance < 3 * self.faults and batch.role == "draft"
        if batch.via == "join" and any(other.batch.via == "round" for other in self.in_flight):
            self.joining.append(in_flight)
        elif not hangs:
            seconds *= self.rng.uniform(0.1, 1.2) if fails else self.rng.uniform(0.8, 1.3) + 60 * late
            whole = batch.via == "round" and not fails
            self.at(
                self.now + seconds, partial(self.verify, in_flight) if whole else partial(self.land, in_flight, fails)
            )

    def order(self) -> str:
        return "micro-batches" if self.policy.micro_batches(len(self.rounds._queue.running)) > 1 else "none"

    def verify(self, in_flight: InFlightBatch) -> None:
        """The server has a round's drafts verified, with the calls that wait for that."""
        if in_flight not in self.in_flight:
            return
        group, self.joining = [in_flight, *self.joining], []
        self.joined += len(group) - 1
        drafts = [self.output(row.sequence, row.call).ids for row in in_flight.batch.rows]
        server_round = ServerRound(0.009, TARGET_STEP, next(self.groups), len(group))
        end = self.now + TARGET_STEP
        for member in group:  # their answers come together, but in any order
            self.at(end + self.rng.random() * 0.001, partial(self.land, member, False, server_round, drafts))

    def land(
        self,
        in_flight: InFlightBatch,
        fails: bool,
        server_round: ServerRound | None = None,
        drafts: Sequence_[list[int]] = (),
    ) -> None:
        if (in_flight in self.joining and fails) or self.in_flight.pop(in_flight, None) is None:
            return  # the server lets nobody go who waits for a verification
        batch = in_flight.batch
        if batch.via == "round":
            self.at(self.now + K * DRAFT_TOKEN, self.let_go)
        if not fails:
            self.answer(in_flight, server_round, drafts)
        elif batch.role == "target" and len(batch.rows) == 1:
            self.failed.add(id(batch.rows[0].sequence.request))
        self.rounds.call_ended(in_flight, FAILED, self.now)
        self.start()

    def let_go(self) -> None:
        """What was drafted ahead is there, and nobody asked for it."""
        if not any(other.batch.via == "round" for other in self.in_flight):
            waiting, self.joining = self.joining, []
            for joined in waiting:
                self.at(self.now + TARGET_STEP, partial(self.land, joined, False))

    def answer(
        self, in_flight: InFlightBatch, server_round: ServerRound | None, drafts: Sequence_[list[int]]
    ) -> None:
        calls = [row.call for row in in_flight.batch.rows]
        if in_flight.batch.via == "round":
            asked = zip(calls, drafts, strict=True)
            calls = [
                call._replace(role="target", output_len=len(ids) + 1, draft_ids=tuple(ids)) for call, ids in asked
            ]
        longest = max(map(len, drafts), default=0)
        given = [
            self.output(t.sequence, padded(c, longest)) for t, c in zip(in_flight.batch.rows, calls, strict=True)
        ]
        if in_flight.batch.via != "engine":
            told = server_round or ServerRound(0.0, 0.0, 0, 1)
            given = [output._replace(server_round=told) for output in given]
        if in_flight.batch.via == "round":
            given = [output._replace(drafted=ids) for output, ids in zip(given, drafts, strict=True)]
        outputs = list(enumerate(given))
        if in_flight.batch.shared and len(outputs) == len(in_flight.left):
            for batch in self.rounds.release(in_flight.batch):
                self.take_off(batch)
        self.rounds.answered(in_flight, outputs, self.now)
        outgoing, self.rounds.outgoing = self.rounds.outgoing, []
        for _, make in outgoing:
            self.at(self.now + 0.001, partial(self.deliver, make))

    def deliver(self, make: MakeChunks) -> None:
        for made in make() or ():
            send(made)

    def output(self, sequence: BlsSequence, call: Any) -> Output:
        if call.role == "target":
            return MockEngine(target).run(call)
        output = MockEngine(self.draft, end_ids=()).run(call)
        logits = sequence.engine_inputs["draft"].outputs
        return output._replace(logits=np.zeros((len(output.ids), 1), np.float32)) if logits else output

    def draft(self, ids: list[int]) -> int:
        right = zlib.crc32(repr(ids[-5:]).encode()) % 1000 < 1000 * self.right
        return target(ids) if right else 1 + ids[-1] % 96

    # --- what must hold ---------------------------------------------------------------------------
    def check_calls(self) -> None:
        """Each sequence that runs waits for one call, which is queued or in flight."""
        schedule = self.rounds._schedule
        steps = filled_steps.in_flight(schedule._groups)
        assert len(steps) <= 2
        self.steps = max([self.steps, *steps])
        awaited = [f for f in self.rounds._in_flight._in_flight if not f.given_up]
        rows = [row for in_flight in awaited for row in in_flight.left.values()]
        for cohort in schedule._groups.values():
            rows += [row for waiting in cohort.waiting.values() for row in waiting]
            assert not any(batch.released for batches in cohort.in_flight.values() for batch in batches)
        calls = Counter(row.sequence for row in rows)
        alive = [sequence for sequence in self.rounds._queue.running if sequence.alive]
        assert all(calls[sequence] == 1 for sequence in alive), "a call was lost, or made twice"

    def check_end(self) -> Iterator[str]:
        """All requests are over, each as it should be; how they ended."""
        assert self.rounds.load() == (0, 0)
        assert not self.rounds._schedule._groups
        assert not self.rounds._in_flight._in_flight
        for sequence, ids in self.asked.items():
            answer: Any = sequence.request.responder
            chunks = answer.of(sequence.writer._output.batch_index)
            if answer.over.is_set() and not answer.error:
                assert [token for chunk in chunks for token in chunk.ids] == ids
                yield "answered"
            elif not answer.error:
                assert answer.gone
                yield "left"
            else:
                assert isinstance(answer.error, QueueTimeoutError) or id(sequence.request) in self.failed
                yield type(answer.error).__name__


PLAYS = [
    # order, places, rows, beside, right, reason
    ("none", 8, 64, False, 0.8, False, "engines that share a device"),
    ("none", 8, 64, False, 0.8, True, "rounds in the server"),
    ("none", 8, 3, False, 0.8, True, "rounds in the server, of few rows"),
    ("none", 1, 64, True, 0.8, True, "a sequence alone"),
    ("none", 4, 1, True, 0.98, False, "an engine that takes a sequence a call"),
    ("micro-batches", 12, 64, True, 0.8, True, "many sequences"),
    ("micro-batches", 12, 3, True, 0.8, False, "an engine of few rows"),
]


@pytest.mark.parametrize(("order", "places", "rows", "beside", "right", "whole", "reason"), PLAYS)
@pytest.mark.parametrize("faults", [0.0, 0.03])
def test_each_request_ends_once_and_as_it_should(
    order: str,
    places: int,
    rows: int,
    beside: bool,
    right: float,
    whole: bool,
    reason: str,
    faults: float,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)
    orders, ends, joined = set[str](), set[str](), 0
    for seed in range(4):
        play = Play(seed, places, rows, beside, right, faults, whole)
        play.run()
        ends.update(play.check_end())
        orders |= play.orders
        joined += play.joined
    assert order in orders, reason
    assert joined or not whole or "none" not in orders or places == 1, "nothing joined a round"
    assert ends >= {"answered", "left", "QueueTimeoutError"}
    assert ("EngineError" in ends) is (faults > 0)


@pytest.mark.parametrize("faults", [0.0, 0.03])
@pytest.mark.parametrize(
    ("beside", "whole", "rows", "tokens"), [(True, True, 64, 60), (False, True, 64, 60), (True, False, 3, 40)]
)
def test_so_it_is_where_steps_do_not_take_all_texts(
    beside: bool, whole: bool, rows: int, tokens: int, faults: float, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    ends, steps = set[str](), 0
    for seed in range(4):
        play = Play(seed, 12, rows, beside, 0.8, faults, whole, tokens)
        play.run()
        ends.update(play.check_end())
        steps += play.steps
    assert ends >= {"answered", "left", "QueueTimeoutError"}
    assert steps > 100, "steps were planned"
