"""Which engine calls the policy learns costs from."""

import math
from typing import Any

import numpy as np
import pytest

from support.serving.steady import Steady
from tandem_serving.bls.calls import LONGEST_SPAN, TAKEN_IN, Call, Role, ServerRound
from tandem_serving.bls.draft_length.draft_ahead import DraftAhead
from tandem_serving.bls.in_flight import LATE, TARGET_LATE, InFlightBatch, InFlightBatches
from tandem_serving.bls.schedule import Batch, Row, Via

K, ERA, DRAFT_TIMEOUT = 4, 100.0, 30.0


class Policy(Steady):
    """Notes what it is told; the test says whether the target runs alone."""

    def __init__(self) -> None:
        super().__init__(K, separate_devices=True)
        self.alone = self.together = False
        self.told: list[tuple[Role, float]] = []
        self.queued: list[bool] = []
        self.lengths: list[int] = []
        self.alone_told: list[float] = []
        self.alone_rows: list[float] = []
        self.together_told: list[bool] = []

    def timed(
        self, role: Role, rows: float, length: int, seconds: float, prompt: int = 0, queued: bool = False
    ) -> None:
        self.told.append((role, rows))
        self.queued.append(queued)
        self.lengths.append(length)

    def timed_alone(self, rows: float, steps: float, seconds: float, together: bool) -> None:
        self.alone_told.append(steps)
        self.alone_rows.append(rows)
        self.together_told.append(together)


class Sky:
    """Flights of sequences that do not matter here."""

    def __init__(self, batched: bool = True, draft_timeout: float = DRAFT_TIMEOUT) -> None:
        self.policy, self.foresight = Policy(), DraftAhead(possible=True)
        self.in_flight, self.now = InFlightBatches(self.policy, self.foresight, batched, draft_timeout), ERA

    def begin(
        self, role: Role, rows: int, k: int = K, shared: bool = True, queued: bool = False, via: Via = "engine"
    ) -> InFlightBatch:
        length = k if role == "draft" else k + 1
        call = Call(role, np.arange(5, dtype=np.int32), length, (1,) * k if role == "target" else ())
        sequence: Any = object()
        batch = Batch(role, [Row(sequence, call, "key")] * rows, shared, queued, via=via)
        return self.in_flight.begin(batch, self.now, running=8)

    def alone(self, length: int = LONGEST_SPAN, via: Via = "engine") -> InFlightBatch:
        """The target alone begins a call of several tokens for a sequence."""
        in_flight = self.begin("target", 1, shared=False, via=via)
        call = in_flight.batch.rows[0].call._replace(draft_ids=(), output_len=length)
        in_flight.batch.rows[0] = in_flight.batch.rows[0]._replace(call=call)
        return in_flight

    def prompt(self) -> InFlightBatch:
        """A new prompt's first token, by itself while waves are in the engine's queue."""
        in_flight = self.alone()
        call = in_flight.batch.rows[0].call._replace(output_len=1, first=True)
        in_flight.batch.rows[0] = in_flight.batch.rows[0]._replace(call=call)
        return in_flight

    def end(self, in_flight: InFlightBatch, running: int = 8) -> None:
        self.now += 0.01
        in_flight.left.clear()
        self.in_flight.end(in_flight, running, self.now)

    def end_round(self, in_flight: InFlightBatch) -> None:
        in_flight.server_round = ServerRound(0.009, 0.012, 1, 1, K)
        self.end(in_flight)


@pytest.mark.parametrize(
    ("off", "told", "reason"),
    [
        (False, [("draft", 3), ("target", 3)], "sequences that are better off alone stay: rounds go on beside them"),
        (True, [], "speculation came back: soon those that still run alone take part, and nothing is as now"),
    ],
)
def test_rounds_beside_calls_of_the_target_alone(off: bool, told: list[tuple[Role, float]], reason: str) -> None:
    sky = Sky()
    sky.policy.alone = off
    alone = sky.alone()
    sky.policy.alone = False
    for role in ("draft", "target"):
        sky.end(sky.begin(role, 3))
    assert sky.policy.told == told, reason
    assert (sky.foresight.expected(K) is None) == off
    last = sky.begin("target", 3)
    sky.end(alone)
    sky.end(last)
    assert sky.policy.told == told + [("target", 3)] * (not off), "most of it was beside the call"
    sky.end(sky.begin("target", 4))
    assert sky.policy.told[-1] == ("target", 4), "now they are all together"


def test_a_trial_while_the_target_runs_alone_does_not_silence_others() -> None:
    sky = Sky()
    sky.policy.alone = True
    trial = sky.begin("target", 3)
    sky.policy.alone = False
    sky.end(sky.begin("draft", 5))
    sky.end(trial)
    assert sky.policy.told == [("draft", 5), ("target", 3)]


def test_verifications_that_wait_for_a_new_prompts_step_teach_nothing() -> None:
    """Nor those that the engine then takes together with them, which come when that is over."""
    sky = Sky()
    prompt = sky.prompt()
    batched = [sky.begin("target", 3), sky.begin("target", 4)]
    for in_flight in (prompt, *batched):
        sky.end(in_flight)
    assert sky.policy.told == []
    sky.end(sky.begin("target", 5))
    assert sky.policy.told == [("target", 5)], "it began when all that was over"


@pytest.mark.parametrize(
    ("queued", "waits", "told", "reason"),
    [
        (True, True, [False, True], "the second one has its turn when the first is over"),
        (True, False, [False, False], "two cohorts, but the engine had nothing to do"),
        (False, True, [False, False], "no cohort of two: nobody knows that the engine went on with it at once"),
    ],
)
def test_a_call_in_the_queue_is_told_from_one_that_the_engine_waited_for(
    queued: bool, waits: bool, told: list[bool], reason: str
) -> None:
    sky = Sky()
    first = sky.begin("target", 3, queued=queued)
    if waits:
        second = sky.begin("target", 3, queued=queued)
        sky.end(first)
    else:
        sky.end(first)
        second = sky.begin("target", 3, queued=queued)
    sky.end(second)
    assert sky.policy.queued == told, reason


def test_a_prompt_s_call_that_never_returns_does_not_silence_others() -> None:
    sky = Sky()
    sky.in_flight.give_up(sky.prompt())
    sky.end(sky.begin("target", 3))
    assert sky.policy.told == [("target", 3)]


@pytest.mark.parametrize(
    ("others", "told", "reason"),
    [
        ([K, K, K], [("target", 8)], "one of eight that run, all of which draft as many tokens"),
        ([K, K, K - 1], [("target", 8)], "one of four in the air is about to end"),
        ([K, K - 1, K - 1], [], "they change to another length: its steps are as long as theirs"),
        ([K, 0, 0], [], "half of them try the target alone"),
    ],
)
def test_merged_calls_teach_what_the_length_costs_that_all_have(
    others: list[int], told: list[tuple[Role, float]], reason: str
) -> None:
    sky = Sky(batched=False)
    for k in others:
        sky.begin("target", 1, k, shared=False)
    sky.end(sky.begin("target", 1, shared=False))
    assert sky.policy.told == told, reason


def test_calls_by_themselves_teach_nothing_where_others_share_theirs() -> None:
    sky = Sky()
    for role in ("draft", "target"):
        sky.end(sky.begin(role, 1, shared=False))
    assert sky.policy.told == []


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize(
    ("length", "tells", "reason"),
    [
        (16, True, "as long as can be"),
        (8, True, "the last call of a trial"),
        (4, False, "all begin together, and it is over before that is"),
        (100, False, "a whole text in one call: rows came and went meanwhile"),
    ],
)
def test_long_calls_tell_what_the_target_takes_by_itself(
    length: int, tells: bool, reason: str, batched: bool
) -> None:
    sky = Sky(batched)
    sky.end(sky.alone(length))
    assert sky.policy.alone_told == [length + TAKEN_IN] * tells, reason


def test_parts_of_a_stream_tell_what_a_step_takes_but_not_the_first() -> None:
    sky = Sky()
    stream = sky.alone(1000, via="stream")
    for tokens in (1, 3, 4, 1, 8, 2):
        sky.now += 0.01
        sky.in_flight.streamed(stream, tokens, 5, sky.now)
    assert (sky.policy.alone_told, sky.policy.alone_rows) == ([8, 8], [5, 5])
    sky.end(stream)
    assert sky.policy.alone_told == [8, 8], "its end says nothing: rows came and went meanwhile"


def test_whether_calls_began_together_is_known_when_they_begin() -> None:
    """A trial of the target alone is over before its last calls are."""
    sky = Sky()
    sky.policy.together = True
    call = sky.alone()
    sky.policy.together = False
    sky.end(call)
    sky.end(sky.alone())
    assert sky.policy.together_told == [True, False]


def test_beside_others_that_draft_the_target_is_not_by_itself() -> None:
    sky = Sky()
    early, late = sky.alone(), sky.alone()
    draft = sky.begin("draft", 3)
    sky.end(early)
    assert len(sky.policy.alone_told) == 1, "the draft has only begun"
    sky.end(draft)
    sky.end(late)
    assert len(sky.policy.alone_told) == 1
    sky.end(sky.alone())
    assert len(sky.policy.alone_told) == 2, "it began when that was over"


def test_beside_rounds_in_the_server_the_target_is_not_by_itself() -> None:
    """A round verifies at any time while it is under way, and is over long after that."""
    sky = Sky()
    alone = sky.alone()
    round_ = sky.begin("draft", 8, via="round")
    sky.end(alone)
    assert not sky.policy.alone_told, "speculation has come back meanwhile"
    sky.end_round(round_)
    sky.end(sky.alone())
    assert len(sky.policy.alone_told) == 1, "it is over"


@pytest.mark.parametrize(("left", "rows"), [(8, 8), (2, 5), (0, 4)])
def test_rows_that_leave_meanwhile_were_there_for_half_of_the_call(left: int, rows: float) -> None:
    sky = Sky()
    sky.end(sky.alone(), running=left)
    assert sky.policy.alone_rows == [rows]


def test_a_round_that_waits_for_a_step_which_joined_none_teaches_nothing() -> None:
    """A new prompt came between two rounds: the target makes a step for it, and the next verification waits."""
    sky = Sky()
    prompt = sky.begin("target", 1, via="join")
    beside = sky.begin("draft", 8, via="round")
    sky.end(prompt)
    sky.end_round(beside)
    assert not sky.policy.told
    joined = sky.begin("draft", 8, via="round")
    sky.begin("target", 1, via="join")
    other = sky.begin("draft", 8, via="round")
    sky.end_round(joined)
    sky.end_round(other)
    assert sky.policy.told == [("draft", 8), ("target", 8)] * 2, "what joins a verification takes no step of its own"


ROUNDS = [
    # what the server tells, what is learnt of it, reason
    (ServerRound(0.009, 0.012, 1, 1, K), [("draft", K), ("target", K)], "both calls, and nothing between them"),
    (ServerRound(0.009, 0.030, 1, 3, K), [("draft", K)], "new prompts that joined make the verification longer"),
    (ServerRound(0.0, 0.012, 1, 1, K), [("target", K)], "some of it was drafted ahead and some not"),
    (
        ServerRound(0.0, 0.012, 1, 1, 2),
        [("target", 2)],
        "the draft was shorter than asked, as hit_rate a round before",
    ),
    (None, [], "it failed"),
]


@pytest.mark.parametrize(("server_round", "told", "reason"), ROUNDS)
def test_what_a_round_in_the_server_teaches(
    server_round: ServerRound | None, told: list[tuple[Role, int]], reason: str
) -> None:
    sky = Sky()
    in_flight = sky.begin("draft", 8, via="round")
    in_flight.server_round = server_round
    sky.end(in_flight)
    assert list(zip([role for role, _ in sky.policy.told], sky.policy.lengths, strict=True)) == told, reason


def test_what_joins_a_round_teaches_nothing() -> None:
    """It waits for the verification, as long as that takes to come."""
    sky = Sky()
    in_flight = sky.begin("target", 1, via="join")
    in_flight.server_round = ServerRound(0.0, 0.0, 1, 2)
    sky.end(in_flight)
    assert not sky.policy.told and not sky.policy.alone_told


def test_a_round_is_late_when_a_draft_is_and_then_a_verification() -> None:
    sky = Sky()
    in_flight = sky.begin("draft", 8, via="round")
    assert in_flight.late - ERA == pytest.approx(DRAFT_TIMEOUT + TARGET_LATE), "nothing is known of what they take"
    in_flight.server_round = ServerRound(0.4, 0.3, 1, 1, K)
    sky.end(in_flight)
    again = sky.begin("draft", 8, via="round")
    assert again.late - sky.now == pytest.approx(LATE * (0.4 + 0.3))


@pytest.mark.parametrize("timeout", [0.5, 3.0, DRAFT_TIMEOUT])
def test_a_round_whose_draft_hangs_is_late_while_there_is_time_for_the_target(timeout: float) -> None:
    """A draft may take a quarter of a request's time."""
    sky = Sky(draft_timeout=timeout)
    assert sky.begin("draft", 8, via="round").late - ERA <= 2 * timeout


@pytest.mark.parametrize("via", ["engine", "join"])
def test_a_new_prompt_s_call_may_take_as_long_as_its_request(via: Via) -> None:
    """Stopped and asked again it would be prefilled twice: engines with much to do would get more."""
    assert Sky().begin("target", 1, shared=via == "join", via=via).late == math.inf
