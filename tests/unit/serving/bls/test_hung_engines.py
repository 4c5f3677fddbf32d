"""Engines whose answers are lost, in virtual time: how long who waits, and how many calls try the draft engine."""

import math
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from support.serving.bls import NO_TENSORS, Answer, NoText
from support.serving.steady import Steady
from tandem_serving import metrics as m
from tandem_serving.bls.batches import Batch
from tandem_serving.bls.calls import Call, NewTokens, Output, Part, ServerRound
from tandem_serving.bls.chunks import BlsChunk
from tandem_serving.bls.circuit_breaker import CircuitBreaker
from tandem_serving.bls.in_flight import DRAFT_LATE, FIRST_LATE, PATIENT, TARGET_LATE, InFlightBatch
from tandem_serving.bls.limits import RoundLimits
from tandem_serving.bls.loop import LoopParams, SequenceLoop
from tandem_serving.bls.rounds import Rounds
from tandem_serving.bls.sequence import BlsSequence, MakeChunks
from tandem_serving.errors import EngineError
from tandem_serving.requests.active import ActiveRequest

K, WATCH, STEP = 4, 0.1, 0.05
SLACK = WATCH + 4 * STEP
MANY = Steady.ALTERNATE
FAILED = EngineError("an engine call failed")


def chain(last: int, length: int) -> int:
    """A model: the token after so many."""
    return 1 + (last * 31 + length * 7) % 96


def answer(call: Call) -> Output:
    """An engine's, which sees the end of a text only: there are thousands of calls."""
    ids, last, length = list[int](), int(call.ids[-1]), len(call.ids)
    while len(ids) < call.output_len:
        ids.append(chain(ids[-1] if ids else last, length + len(ids)))
        if len(ids) <= len(call.draft_ids) and call.draft_ids[len(ids) - 1] != ids[-1]:
            break
    return Output(ids)


class Site:
    """Sequences whose calls take a step each, but those that are `lost`: they end when they are stopped, or `never`.
    The draft engine answers nothing before it is `warm`.

    `gains`: the times at which each sequence gained tokens; `drafts`: calls of the draft engine, with their times.
    """

    def __init__(
        self,
        sequences: int = 4,
        whole: int = 0,
        streams: bool = False,
        never: bool = False,
        reproducible: bool = False,
    ) -> None:
        self.now, self.never, self.warm, self.reproducible = 100.0, never, 0.0, reproducible
        self.stopped = set[InFlightBatch]()
        self.lost: Callable[[InFlightBatch], bool] = lambda call: False
        limits = RoundLimits(64, 64, 64, draft_timeout=10.0, whole_rounds=whole)
        policy = Steady(K, separate_devices=True)
        self.rounds = Rounds(policy, limits, m.Metrics(), lambda each: None, clock=lambda: self.now)
        self.calls: dict[InFlightBatch, float] = {}  # with when they are answered
        self.drafts: list[tuple[float, InFlightBatch]] = []
        self.gains: dict[BlsSequence, list[float]] = {}
        self.tokens: dict[BlsSequence, list[int]] = {}
        self.sequences = [self.sequence(i, streams) for i in range(sequences)]
        self.rounds.admit(self.sequences)
        self.send(self.rounds.start())

    def sequence(self, number: int, streams: bool) -> BlsSequence:
        active: ActiveRequest[BlsChunk] = ActiveRequest(1, "", Answer(), deadline=math.inf)
        loop = SequenceLoop(LoopParams(np.arange(5 + number, dtype=np.int32), 40_000, streams=streams))
        writer: Any = NoText()
        made = BlsSequence(active, loop, writer, NO_TENSORS, m.Metrics(), K, reproducible=self.reproducible)
        self.gains[made], self.tokens[made] = [], loop._ids[: 5 + number].tolist()

        def take(step: NewTokens, probe: bool = False) -> MakeChunks:
            self.gains[made].append(self.now)
            self.tokens[made] += step.ids
            return lambda: None

        made.take = take  # type: ignore[method-assign]
        return made

    def send(self, batches: Iterable[Batch[BlsSequence]]) -> None:
        for batch in batches:
            asked = [(len(row.call.ids), len(self.tokens[row.sequence])) for row in batch.rows]
            assert all(ids == tokens for ids, tokens in asked), "each call is about all that was delivered"
            in_flight = self.rounds.sent(batch, self.now)
            if batch.role == "draft":
                self.drafts.append((self.now, in_flight))
            warm = self.warm if batch.role == "draft" else 0.0
            self.calls[in_flight] = math.inf if self.lost(in_flight) else max(warm, self.now) + STEP

    def run(self, seconds: float, look: Callable[[], object] = lambda: None) -> None:
        end, watched = self.now + seconds, self.now
        while self.now < end:
            self.now += STEP
            if self.now - watched >= WATCH:
                watched = self.now
                self.rounds.late(self.now)
            self.stopped.update(self.rounds.stops)
            stopped = set() if self.never else self.stopped
            over = [call for call, at in self.calls.items() if at <= self.now or call in stopped]
            for in_flight in over:
                self.advance(in_flight)
            for request, error in self.rounds.failed:
                request.fail(error)
            self.rounds.outgoing, self.rounds.failed, self.rounds.stops = [], [], []
            self.send(self.rounds.start())
            look()

    def advance(self, in_flight: InFlightBatch) -> None:
        """A call is answered, or stopped and over; or a part of a stream comes."""
        batch = in_flight.batch
        if batch.via == "stream" and not in_flight.given_up:
            row = batch.rows[0]
            tokens = self.tokens[row.sequence]
            token = chain(tokens[-1], len(tokens))
            self.rounds.streamed([Part(row.stream, row.sequence.loop.streamed, [token])])
            self.calls[in_flight] = math.inf if self.lost(in_flight) else self.now + STEP
            return
        answered = self.calls.pop(in_flight) <= self.now
        if answered and not in_flight.given_up:
            self.send(self.rounds.release(batch))
        if answered:
            self.rounds.answered(in_flight, self.outputs(batch), self.now)
        self.rounds.call_ended(in_flight, FAILED, self.now)

    def outputs(self, batch: Batch[BlsSequence]) -> list[tuple[int, Output]]:
        found = [answer(row.call) for row in batch.rows]
        if batch.via == "round":
            told = ServerRound(STEP / 2, STEP / 2, 0, 1, K)
            calls = [row.call._replace(role="target", output_len=K + 1) for row in batch.rows]
            asked = zip(calls, (draft.ids for draft in found), strict=True)
            found = [
                answer(call._replace(draft_ids=tuple(ids)))._replace(drafted=ids, server_round=told)
                for call, ids in asked
            ]
        return list(enumerate(found))

    def longest(self, since: float) -> list[float]:
        """The longest that each sequence waited for tokens since then, the longest first."""
        all_of = ([since, *(at for at in gains if at > since), self.now] for gains in self.gains.values())
        times = [
            each if gains[0] <= since else each[1:] for each, gains in zip(all_of, self.gains.values(), strict=True)
        ]
        return sorted((max(then - before for before, then in pairwise(each)) for each in times), reverse=True)

    def check(self) -> None:
        """Each token came once, in order."""
        for sequence, tokens in self.tokens.items():
            ids = tokens[: sequence.loop._start]
            while len(ids) < len(tokens):
                ids.append(chain(ids[-1], len(ids)))
            assert tokens == ids


SITES: list[tuple[dict[str, Any], str]] = [
    ({}, "waves"),
    ({"streams": True}, "waves, and streams of the target"),
    ({"whole": K}, "rounds in the server"),
    ({"sequences": MANY}, "micro-batches"),
    ({"sequences": MANY, "whole": K, "streams": True}, "micro-batches of rounds in the server"),
]
sites = pytest.mark.parametrize(("how", "what"), SITES, ids=[what for _, what in SITES])


@sites
@pytest.mark.parametrize("never", [False, True], ids=["until it is stopped", "for ever"])
def test_a_draft_engine_that_hangs_is_tried_by_one_at_a_time(how: dict[str, Any], what: str, never: bool) -> None:
    site = Site(**how, never=never)
    site.run(3.0)
    assert any(len(call.batch.rows) > 1 for _, call in site.drafts), "they draft together"
    begun, first = site.now, len(site.drafts)
    site.lost = lambda call: call.batch.role == "draft"
    at_once = [0]

    def count() -> None:
        waiting = [call for _, call in site.drafts if call in site.calls and not call.given_up]
        if site.now > begun + 2 * DRAFT_LATE + SLACK:
            at_once.append(len(waiting))
            assert all(len(call.batch.rows) == 1 for call in waiting)

    site.run(1.0, count)
    site.rounds.admit([site.sequence(20 + i, "streams" in how) for i in range(3)])  # they wait to draft, too
    site.run(29.0, count)
    assert max(at_once) == 1
    tries = [at for at, _ in site.drafts[first:] if at > begun + 2 * DRAFT_LATE + SLACK]
    pauses = [then - before for before, then in pairwise(tries)]
    assert pauses == sorted(pauses), "longer each time"
    assert len(tries) <= math.log2(30.0 / CircuitBreaker.FIRST), "no more than there are pauses"
    waited = site.longest(begun)
    assert waited[0] <= 2 * DRAFT_LATE + SLACK, "for a round; who tries, for one more"
    site.check()


def test_a_new_prompt_waits_for_nobody_who_tries_the_draft_engine() -> None:
    site = Site()
    site.run(3.0)
    site.lost = lambda call: call.batch.role == "draft"

    def tried() -> bool:
        return any(len(call.batch.rows) == 1 and not call.given_up for _, call in site.drafts if call in site.calls)

    for _ in range(50):
        if not tried():
            site.run(2 * WATCH)
    assert tried()
    new, begun = site.sequence(50, streams=False), site.now
    site.rounds.admit([new])
    site.run(4 * STEP)
    assert site.gains[new], "it has its first token"
    assert tried()
    assert site.now < begun + DRAFT_LATE


@sites
def test_drafts_come_back_with_their_engine(how: dict[str, Any], what: str) -> None:
    site = Site(**how)
    site.lost = lambda call: call.batch.role == "draft"
    site.run(20.0)
    site.lost = lambda call: False
    site.run(CircuitBreaker.LONGEST + DRAFT_LATE)
    before = len(site.drafts)
    site.run(1.0)
    drafted = {row.sequence for _, call in site.drafts[before:] for row in call.batch.rows}
    assert len(drafted) == len(site.sequences) - 1, "all, but the one that was alone in the draft that hung"
    site.check()


def drafted_in(site: Site, seconds: float) -> set[BlsSequence]:
    """The sequences that draft meanwhile."""
    before = len(site.drafts)
    site.run(seconds)
    return {row.sequence for _, call in site.drafts[before:] for row in call.batch.rows}


@sites
def test_a_new_draft_engine_is_asked_by_one_and_then_by_all(how: dict[str, Any], what: str) -> None:
    site, begun = Site(**how), 100.0
    assert drafted_in(site, 1.0) == set(site.sequences)
    assert len(site.drafts[0][1].batch.rows) == 1
    assert site.drafts[1][0] >= site.drafts[0][0] + STEP, "it was answered before"
    assert site.longest(begun)[0] <= SLACK
    assert not any(sequence._undrafted for sequence in site.sequences), "nothing failed"
    site.check()


def test_texts_that_must_not_change_draft_from_the_start() -> None:
    site = Site(reproducible=True)
    assert drafted_in(site, 2 * STEP) == set(site.sequences)


@sites
@pytest.mark.parametrize("never", [False, True], ids=["until it is stopped", "for ever"])
def test_one_waits_for_a_draft_engine_that_hangs_from_the_start(how: dict[str, Any], what: str, never: bool) -> None:
    site, begun = Site(**how, never=never), 100.0
    site.lost = lambda call: call.batch.role == "draft"
    site.run(1.0)
    site.rounds.admit([site.sequence(20 + i, "streams" in how) for i in range(3)])
    site.run(FIRST_LATE)
    assert len(site.drafts) == 1
    waited = site.longest(begun)
    assert DRAFT_LATE <= waited[0] <= DRAFT_LATE + SLACK
    assert waited[1] <= SLACK, "all others go on"
    site.check()


@sites
def test_a_draft_engine_that_warms_up_is_used_as_soon_as_it_answers(how: dict[str, Any], what: str) -> None:
    """Its first answer, which comes late, is no part of a text."""
    site, begun = Site(**how), 100.0
    site.warm = begun + 20.0
    site.run(20.0)
    assert len(site.drafts) == 1
    site.run(4 * STEP)
    [first] = site.drafts[0][1].batch.rows
    assert drafted_in(site, 1.0) == set(site.sequences) - {first.sequence}
    waited = site.longest(begun)
    assert waited[0] <= DRAFT_LATE + SLACK
    assert waited[1] <= SLACK, "all others go on"
    site.check()


@pytest.mark.parametrize("ids", [[], [1]], ids=["without a token", "with one"])
def test_what_comes_of_a_draft_that_was_stopped_must_be_a_token(ids: list[int]) -> None:
    site = Site()
    site.lost = lambda call: call.batch.role == "draft"
    site.run(FIRST_LATE)
    [(_, first)] = site.drafts
    site.rounds.answered(first, [(0, Output(ids))], site.now)
    site.lost = lambda call: False
    assert bool(drafted_in(site, 1.0)) == bool(ids)


@sites
def test_one_lost_draft_answer_is_waited_for_once(how: dict[str, Any], what: str) -> None:
    site = Site(**how)
    site.run(3.0)
    begun, lost = site.now, list[InFlightBatch]()

    def once(call: InFlightBatch) -> bool:
        lost.extend([call] if call.batch.role == "draft" and not lost else [])
        return call in lost

    site.lost = once
    site.run(10.0)
    assert lost
    assert site.longest(begun)[0] <= 1.5 * DRAFT_LATE + SLACK
    before = len(site.drafts)
    site.run(1.0)
    assert {row.sequence for _, call in site.drafts[before:] for row in call.batch.rows} == set(site.sequences)
    site.check()


def is_stream(call: InFlightBatch) -> bool:
    return call.batch.via == "stream" and call.heard > call.started  # parts of it came


def is_verification(call: InFlightBatch) -> bool:
    return bool(call.batch.rows[0].call.draft_ids)


def is_round(call: InFlightBatch) -> bool:
    return call.batch.via == "round"


def is_prompt(call: InFlightBatch) -> bool:
    return call.batch.rows[0].call.first and call.batch.role == "target"


TARGETS = [
    *((how, is_prompt, f"a prompt, {what}") for how, what in SITES),
    *((how, is_round if "whole" in how else is_verification, f"a verification, {what}") for how, what in SITES),
    *((how, is_stream, f"a stream's part, {what}") for how, what in SITES if "streams" in how),
]


@pytest.mark.parametrize(("how", "lost", "what"), TARGETS, ids=[what for *_, what in TARGETS])
def test_a_lost_target_answer_is_asked_for_again(
    how: dict[str, Any], lost: Callable[[InFlightBatch], bool], what: str
) -> None:
    """Nothing is delivered twice, no token is lost, and no request ends."""
    site = Site(**how)
    if lost is not is_prompt:
        site.run(3.0)
    if lost is is_stream:
        for sequence in site.sequences:
            sequence.draft_length = 0
    begun, gone = site.now, list[InFlightBatch]()

    def once(call: InFlightBatch) -> bool:
        gone.extend([call] if not gone and lost(call) else [])
        return call in gone

    site.lost = once
    if lost is is_prompt:
        site.calls = {call: math.inf if once(call) else at for call, at in site.calls.items()}
    site.run(FIRST_LATE + 5.0)
    assert gone
    assert site.longest(begun)[0] <= (FIRST_LATE if lost is is_prompt else TARGET_LATE) + SLACK
    assert all(sequence.alive for sequence in site.sequences)
    site.check()


def test_a_call_of_the_target_that_is_lost_again_ends_its_request_alone() -> None:
    site = Site(8)
    site.run(3.0)
    poisoned, begun = site.sequences[0], site.now
    site.lost = lambda call: call.batch.role == "target" and any(r.sequence is poisoned for r in call.batch.rows)
    site.run(2 * TARGET_LATE + PATIENT * TARGET_LATE)
    answer: Any = poisoned.request.responder
    assert str(answer.error).endswith(", nor when it was asked before: send the request again, or to another replica")
    assert answer.error.code == "UNAVAILABLE"
    assert all(sequence.alive for sequence in site.sequences[1:])
    waits = site.longest(begun)[1:]
    assert max(waits) <= TARGET_LATE + SLACK
    site.check()
