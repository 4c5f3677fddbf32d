"""The rounds of few sequences, call by call: no threads, a clock of the test's own."""

from typing import Any

import numpy as np
import pytest

from support.serving.bls import NO_TENSORS, Answer, NoText
from support.serving.mock_engine import MockEngine, Model, counting
from support.serving.steady import Steady
from tandem_serving import metrics as m
from tandem_serving.bls.batches import Batch, Row
from tandem_serving.bls.calls import Output, ServerRound
from tandem_serving.bls.chunks import BlsChunk
from tandem_serving.bls.in_flight import MOST_LOST, InFlightBatch
from tandem_serving.bls.limits import RoundLimits
from tandem_serving.bls.loop import LoopParams, SequenceLoop
from tandem_serving.bls.rounds import Rounds
from tandem_serving.bls.sequence import BlsSequence, State
from tandem_serving.errors import EngineError
from tandem_serving.requests.active import ActiveRequest

K = 2
VERIFICATION = 0.012
ERROR = EngineError("draft engine: broken")


def right(ids: list[int]) -> int:
    return counting(ids)


def wrong(ids: list[int]) -> int:
    return counting(ids) + 1


class Table:
    """Rounds of sequences by name, each with a draft model, whose engine calls the test ends when it likes. The draft
    engine has answered before."""

    max_rows = 8

    def __init__(self, **drafts: Model) -> None:
        self.now = 100.0
        self.policy = Steady(K, separate_devices=True)
        limits = RoundLimits(running=8, waiting=0, max_rows=self.max_rows, draft_timeout=1.0)
        self.rounds = Rounds(self.policy, limits, m.Metrics(), lambda sequence: None, clock=lambda: self.now)
        self.rounds._breaker.worked()
        self.names: dict[BlsSequence, str] = {}
        self.drafts = drafts
        self.in_flight: dict[str, InFlightBatch] = {}
        self.rounds.admit([self.sequence(name, i) for i, name in enumerate(drafts)])
        self.start()

    def sequence(self, name: str, number: int) -> BlsSequence:
        active: ActiveRequest[BlsChunk] = ActiveRequest(1, name, Answer(), deadline=self.now + 60)
        loop = SequenceLoop(LoopParams(np.arange(5 + number, dtype=np.int32), 40))
        writer: Any = NoText()
        made = BlsSequence(active, loop, writer, NO_TENSORS, m.Metrics(), draft_length=K)
        self.names[made] = name
        return made

    def name(self, batch: Batch[BlsSequence]) -> str:
        return f"{batch.role} {''.join(sorted(self.names[row.sequence] for row in batch.rows))}"

    def start(self) -> list[str]:
        """Start what can; the engine calls in flight."""
        for batch in self.rounds.start():
            name = self.name(batch)
            assert name not in self.in_flight, "no sequence has two calls of a kind"
            self.in_flight[name] = self.rounds.sent(batch, self.now)
        return sorted(self.in_flight)

    def end(self, name: str, after: float = 0.0, fails: bool = False) -> list[str]:
        """An engine call ends, some seconds from now; the calls in flight then."""
        self.now += after
        in_flight = self.in_flight.pop(name)
        if not fails:
            self.rounds.answered(in_flight, self.outputs(in_flight), self.now)
        self.rounds.call_ended(in_flight, ERROR, self.now)
        return self.start()

    def outputs(self, in_flight: InFlightBatch) -> list[tuple[int, Output]]:
        def model(row: Row[BlsSequence]) -> Model:
            return self.drafts[self.names[row.sequence]]

        target = in_flight.batch.role == "target"
        return [
            (index, MockEngine(counting if target else model(row), end_ids=()).run(row.call))
            for index, row in enumerate(in_flight.batch.rows)
        ]


def test_a_sequence_that_has_ended_never_runs_again() -> None:
    table = Table(a=right)
    [sequence] = table.names
    assert sequence.state is State.RUNNING
    for _ in range(2):  # its delivery and its client may both end it
        table.rounds.end([sequence])
        assert (sequence.state, table.rounds.load()) == (State.ENDED, (0, 0))
    with pytest.raises(ValueError, match="a sequence that is ended cannot become running"):
        sequence.become(State.RUNNING)


class SingleCalls(Table):
    """Engines that take no batches."""

    max_rows = 1


def test_an_engine_that_takes_no_batches_gets_each_call_on_its_own() -> None:
    table = SingleCalls(a=right, b=right, c=right)
    assert table.end("target a") == ["draft a", "target b", "target c"]
    assert table.end("target b") == ["draft a", "draft b", "target c"], "no call waits for another"
    assert table.end("draft a") == ["draft b", "target a", "target c"]


def test_an_answer_cut_short_by_our_own_stop_is_no_end_of_text() -> None:
    """A call that is given up is stopped: its rows come back with what they have, as at the end of a text."""
    table = Table(a=right, b=right)
    [name] = table.start()
    stopped = table.in_flight.pop(name)
    table.now = stopped.late + 1
    table.rounds.late(table.now)
    assert table.rounds.stops == [stopped]
    table.rounds.answered(stopped, [(0, Output([])), (1, Output([]))], table.now)
    table.rounds.call_ended(stopped, ERROR, table.now)
    assert all(sequence.alive for sequence in table.names)
    assert table.start() == ["target a", "target b"], "each by itself"


def test_a_draft_engine_whose_calls_never_return_is_asked_no_more() -> None:
    """Each call keeps a thread, and the target needs some."""
    table, lost = Table(a=right), []

    def after_its_prompt() -> list[str]:
        return table.end("target a")

    def another() -> list[str]:
        for sequence in table.names:
            sequence.request.over = True
        table.rounds.end_dead()
        table.in_flight.clear()
        table.rounds.admit([table.sequence("a", 0)])
        table.start()
        return after_its_prompt()

    seen = after_its_prompt()
    for _ in range(MOST_LOST):
        lost.append(table.in_flight["draft a"])
        seen = another()
        assert lost[-1].given_up
    assert seen == ["target a"]
    table.rounds.call_ended(lost[0], ERROR, table.now)
    assert another() == ["draft a"]


def test_without_a_device_of_its_own_all_draft_and_all_are_verified() -> None:
    table = Table(a=right, b=wrong)
    seen = [table.end(next(iter(table.in_flight))) for _ in range(6)]
    assert seen == [["draft ab"], ["target ab"]] * 3


@pytest.mark.parametrize(
    ("off", "in_flight", "reason"),
    [
        (False, ["target ab"], "its first token fits into the next verification"),
        (True, ["target ab", "target c"], "there is none: the engine takes it into the step of those that run"),
    ],
)
def test_a_new_prompt_waits_for_others_only_while_they_speculate(
    off: bool, in_flight: list[str], reason: str
) -> None:
    table = Table(a=right, b=right)
    assert list(table.in_flight) == ["target ab"], "nor does one that comes alone wait for a draft"
    table.policy.turned_off = off
    table.rounds.admit([table.sequence("c", 2)])
    assert table.start() == in_flight, reason


MADE = [
    # what the server reports of a verification, its rounds (without a draft: tokens), the draft tokens in it, why
    (None, 2, K, "both engines were called, one after the other"),
    (ServerRound(0.0, VERIFICATION, 1, 1, 1), 2, 1, "drafted ahead, when one was asked for"),
    (ServerRound(0.0, 0.0, 1, 2), 4, 0, "a new prompt's, which joined a verification"),
]


@pytest.mark.parametrize(("server_round", "rounds", "length", "reason"), MADE, ids=[reason for *_, reason in MADE])
def test_the_policy_is_told_of_the_draft_as_it_was_made(
    monkeypatch: pytest.MonkeyPatch, server_round: ServerRound | None, rounds: int, length: int, reason: str
) -> None:
    table, told = Table(a=right, b=wrong), list[tuple[int, int]]()
    table.end("target ab")
    assert table.end("draft ab") == ["target ab"]
    monkeypatch.setattr(table.policy, "rounds_ended", lambda rows, length: told.append((rows, length)))
    in_flight = table.in_flight["target ab"]
    outputs = [(row, output._replace(server_round=server_round)) for row, output in table.outputs(in_flight)]
    table.rounds.answered(in_flight, outputs, table.now)
    assert told == [(rounds, length)], reason
