"""Which engine calls show how long such calls take, and when one is late."""

import math
from typing import Any

import numpy as np
import pytest

from tandem_serving.bls.batches import Batch, Row, Via
from tandem_serving.bls.call_times import AGAIN, LATE
from tandem_serving.bls.calls import Call, Role, ServerRound
from tandem_serving.bls.in_flight import (
    DRAFT_LATE,
    FIRST_LATE,
    PATIENT,
    TARGET_LATE,
    InFlightBatch,
    InFlightBatches,
)
from tandem_serving.engine.health import LONGEST_LOOK, PROMPT_TOKENS

K, START, DRAFT_TIMEOUT = 4, 100.0, 30.0
TOKEN = 1 / PROMPT_TOKENS


class Calls:
    """Engine calls of sequences that do not matter here."""

    def __init__(self, draft_timeout: float = DRAFT_TIMEOUT) -> None:
        self.in_flight, self.now = InFlightBatches(draft_timeout), START

    def begin(
        self,
        role: Role,
        rows: int,
        shared: bool = True,
        via: Via = "engine",
        first: bool = False,
        ids: int = 0,
        again: bool = False,
    ) -> InFlightBatch:
        length = K if role == "draft" else K + 1
        drafted = (1,) * K if role == "target" and via != "stream" else ()
        call = Call(role, np.zeros(ids, np.int32), length, drafted, first=first)
        sequence: Any = object()
        row = Row(sequence, call, "key", stream=via == "stream", again=again)
        return self.in_flight.begin(Batch(role, [row] * rows, shared, via=via), self.now)

    def end(self, in_flight: InFlightBatch, seconds: float = 0.01, answered: bool = True) -> None:
        self.now += seconds
        if answered:
            self.in_flight.came(in_flight, self.now)
            in_flight.left.clear()
        self.in_flight.end(in_flight, self.now)

    def late(self, at: float) -> list[InFlightBatch]:
        """Those that are late so many seconds from now, where nothing stands still meanwhile."""
        end = self.now + at
        while self.now + LONGEST_LOOK < end:
            self.now += LONGEST_LOOK
            self.in_flight.late(self.now)
        self.now = end
        return self.in_flight.late(self.now)


def cost(role: Role, rows: int) -> float:
    """Of a call's steps."""
    return K * (1 + rows * TOKEN) if role == "draft" else 1 + rows * (K + 1) * TOKEN


ENDED = [
    # role, shared, via, with a new prompt, answered, whether it shows what a step takes, why
    ("draft", True, "engine", False, True, True, "a draft for several sequences"),
    ("draft", False, "engine", False, True, True, "or for one"),
    ("target", True, "engine", False, True, True, "a verification"),
    ("target", False, "engine", False, True, True, "of one sequence"),
    ("target", True, "engine", True, True, False, "a prompt takes longer"),
    ("draft", True, "engine", True, True, False, "likewise"),
    ("target", True, "engine", False, False, False, "it failed"),
    ("target", True, "join", False, True, False, "it waits for the verification that it joins"),
    ("target", False, "stream", False, True, False, "its parts do"),
]


@pytest.mark.parametrize(
    ("role", "shared", "via", "first", "answered", "shows", "reason"), ENDED, ids=[reason for *_, reason in ENDED]
)
def test_calls_that_show_what_a_step_takes(
    role: Role, shared: bool, via: Via, first: bool, answered: bool, shows: bool, reason: str
) -> None:
    calls, rows = Calls(), 3 if shared else 1
    calls.end(calls.begin(role, rows), cost(role, rows) * 0.01)
    assert calls.in_flight.step(role) == pytest.approx(0.01)
    calls.end(calls.begin(role, rows, shared, via, first), cost(role, rows) * 0.02, answered)
    found = calls.in_flight.step(role)
    assert found == pytest.approx(0.012 if shows else 0.01), reason


@pytest.mark.parametrize("via", ["engine", "join"])
def test_a_prompt_shows_it_as_long_as_nothing_else_does(via: Via) -> None:
    calls = Calls()
    calls.end(calls.begin("target", 1, via=via, first=True, ids=9 * PROMPT_TOKENS), 0.1 * (cost("target", 1) + 9))
    assert calls.in_flight.step("target") == pytest.approx(0.1)


ROUNDS = [
    # what the server reports, seconds of a step of the draft and of the target that are known then, why
    (ServerRound(0.009, 0.012, 1, 1, K), (0.009, 0.012), "both calls, and nothing between them"),
    (ServerRound(0.009, 0.030, 1, 3, K), (0.009, None), "new prompts that joined make the verification longer"),
    (ServerRound(0.0, 0.012, 1, 1, K), (None, 0.012), "some of it was drafted ahead and some not"),
    (None, (None, None), "it failed"),
]


@pytest.mark.parametrize(("server_round", "known", "reason"), ROUNDS, ids=[reason for *_, reason in ROUNDS])
def test_what_a_round_in_the_server_shows(
    server_round: ServerRound | None, known: tuple[float | None, float | None], reason: str
) -> None:
    calls = Calls()
    in_flight = calls.begin("draft", 8, via="round")
    in_flight.server_round = server_round
    calls.end(in_flight)
    draft, target = known
    assert calls.in_flight.step("draft") == (draft and pytest.approx(draft / cost("draft", 8))), reason
    assert calls.in_flight.step("target") == (target and pytest.approx(target / cost("target", 8))), reason


PROMPT: dict[str, Any] = {"first": True, "ids": 100 * PROMPT_TOKENS}
KNOWN: dict[str, Any] = {"ids": 100 * PROMPT_TOKENS}
BOUNDS: list[tuple[Role, int, dict[str, Any], float | None, float, str]] = [
    # role, rows, call, seconds of a step, seconds after which it is late, why
    ("draft", 3, {}, None, DRAFT_TIMEOUT, "the first may have to be compiled"),
    ("draft", 3, {}, 0.001, DRAFT_LATE, "a stalled machine is no lost answer"),
    ("draft", 3, {}, 0.1, LATE * 0.1 * cost("draft", 3), "it is slow"),
    ("draft", 3, {}, 9.0, DRAFT_TIMEOUT, "the target alone is faster"),
    ("draft", 1, PROMPT, 0.01, LATE * 0.01 * (cost("draft", 1) + 100), "a long prompt"),
    ("target", 3, {}, None, FIRST_LATE, "the first may have to be compiled"),
    ("target", 1, {}, 0.001, TARGET_LATE, "a single row, too"),
    ("target", 1, {}, 1.0, LATE * cost("target", 1), "it is slow"),
    ("target", 1, {"via": "join"}, 1.0, LATE * cost("target", 1), "it joins a verification"),
    ("target", 1, {"via": "stream"}, 1.0, LATE * (1 + TOKEN), "until the first part"),
    ("target", 1, {"again": True}, 1.0, PATIENT * LATE * cost("target", 1), "it was late before"),
    ("target", 1, PROMPT, 0.01, LATE * 0.01 * (cost("target", 1) + 100), "a long prompt"),
    ("target", 1, KNOWN, 0.1, 0.1 * (LATE * cost("target", 1) + 100 * AGAIN), "which may have left the cache"),
]


@pytest.mark.parametrize(("role", "rows", "how", "step", "late", "why"), BOUNDS, ids=[b[-1] for b in BOUNDS])
def test_each_call_is_late_after_many_times_what_it_should_take(
    role: Role, rows: int, how: dict[str, Any], step: float | None, late: float, why: str
) -> None:
    calls = Calls()
    if step:
        calls.end(calls.begin(role, 3), step * cost(role, 3))
    in_flight = calls.begin(role, rows, **how)
    assert in_flight.late - calls.now == pytest.approx(late), why
    assert calls.late(late - 0.01) == []
    assert calls.late(0.02) == [in_flight]


def test_prompts_that_came_before_have_their_time_first() -> None:
    calls = Calls()
    calls.end(calls.begin("target", 1), cost("target", 1) * 0.01)
    burst = [calls.begin("target", 1, **PROMPT) for _ in range(4)]
    behind = calls.begin("target", 1)
    own = LATE * 0.01 * cost("target", 1)
    assert behind.late - calls.now == pytest.approx(own + 4 * 100 * LATE * 0.01)
    calls.end(burst.pop())
    calls.in_flight.give_up(burst.pop())
    calls.in_flight.part_came(burst[-1], calls.now, 1)
    assert calls.begin("target", 1).late - calls.now == pytest.approx(own + 100 * LATE * 0.01), "of the one left"


def test_a_stream_is_late_by_its_next_part() -> None:
    calls = Calls()
    in_flight = calls.begin("target", 1, via="stream")
    calls.now += FIRST_LATE - 1
    calls.in_flight.part_came(in_flight, calls.now, 1)
    assert in_flight.late - calls.now == pytest.approx(FIRST_LATE), "what came first waited for others"
    calls.now += 2.0
    calls.in_flight.part_came(in_flight, calls.now, 4)
    assert calls.in_flight.step("target") == pytest.approx(0.5 / (1 + TOKEN))
    assert in_flight.late - calls.now == pytest.approx(LATE * 0.5)
    calls.begin("target", 1, **PROMPT)
    calls.now += 2.0
    calls.in_flight.part_came(in_flight, calls.now, 4)
    assert in_flight.late - calls.now == pytest.approx(LATE * 0.5 * (1 + 100 / (1 + TOKEN))), "a prompt may go first"


def test_time_in_which_this_process_stood_still_does_not_count() -> None:
    calls = Calls()
    in_flight = calls.begin("target", 1)
    calls.in_flight.late(calls.now)
    calls.now += 10 * FIRST_LATE
    assert calls.in_flight.late(calls.now) == []
    assert calls.late(FIRST_LATE - 2 * LONGEST_LOOK) == []
    assert calls.late(2 * LONGEST_LOOK) == [in_flight]


EVIDENCE = [
    # what the engine answers meanwhile, whether a call that was late before is late again, why
    ([], True, "nothing: it is asked by nobody else"),
    (["before"], False, "what was asked for before: it may be at work on ours"),
    (["after"], True, "what was asked for after it"),
    (["before", "after"], True, "both"),
    (
        ["part of a stream"],
        False,
        "of what was asked for before: it may hold the room of ours",
    ),
]


@pytest.mark.parametrize(("answers", "late", "why"), EVIDENCE, ids=[why for *_, why in EVIDENCE])
def test_a_call_is_late_twice_only_where_its_answer_is_lost(answers: list[str], late: bool, why: str) -> None:
    calls = Calls()
    others = {"before": calls.begin("target", 1), "part of a stream": calls.begin("target", 1, via="stream")}
    calls.now += 1
    in_flight = calls.begin("target", 1, again=True)
    calls.now += 1
    others["after"] = calls.begin("target", 1)
    for name in answers:
        if name == "part of a stream":
            calls.now += 1
            calls.in_flight.part_came(others[name], calls.now, 1)
        else:
            calls.end(others[name], 1.0)
    assert (in_flight in calls.late(PATIENT * FIRST_LATE)) is late, why


def test_a_call_that_was_given_up_shows_nothing() -> None:
    calls = Calls()
    in_flight = calls.begin("target", 3)
    calls.in_flight.give_up(in_flight)
    assert calls.in_flight.lost == 1
    calls.end(in_flight, 40.0, answered=False)
    assert (calls.in_flight.lost, calls.in_flight.step("target")) == (0, None)


def test_a_round_is_late_when_a_draft_is_and_then_a_verification() -> None:
    calls = Calls(math.inf)
    calls.end(calls.begin("target", 8), 0.3 * cost("target", 8))
    calls.end(calls.begin("draft", 8), 0.4 * cost("draft", 8))
    in_flight = calls.begin("draft", 8, via="round")
    assert in_flight.late - calls.now == pytest.approx(LATE * (0.4 * cost("draft", 8) + 0.3 * cost("target", 8)))


def test_a_first_round_is_late_when_a_first_draft_is_and_then_a_verification() -> None:
    calls = Calls()
    calls.end(calls.begin("target", 8), 0.3 * cost("target", 8))
    in_flight = calls.begin("draft", 8, via="round")
    assert in_flight.late - calls.now == pytest.approx(0.3 * (cost("draft", 8) + LATE * cost("target", 8)))


FIRST_DRAFTS = [
    # seconds of a step of the target, seconds after which a first draft is late, why
    (0.01, DRAFT_LATE, "a stalled machine is no lost answer"),
    (1.0, cost("draft", 1), "the target would have its tokens by then"),
    (60.0, DRAFT_TIMEOUT, "it has compiled code"),
    (None, DRAFT_TIMEOUT, "nothing is known"),
]


@pytest.mark.parametrize(("step", "late", "why"), FIRST_DRAFTS, ids=[why for *_, why in FIRST_DRAFTS])
def test_a_first_draft_is_soon_late_and_stopped_much_later(step: float | None, late: float, why: str) -> None:
    calls = Calls()
    if step:
        calls.end(calls.begin("target", 1), step * cost("target", 1))
    in_flight, begun = calls.begin("draft", 1), calls.now
    assert in_flight.late - begun == pytest.approx(late), why
    assert calls.late(late + 0.01) == [in_flight]
    calls.in_flight.give_up(in_flight)
    assert calls.in_flight.unstopped(begun + FIRST_LATE - 0.1) == []
    assert calls.in_flight.unstopped(begun + FIRST_LATE) == [in_flight]


def test_a_later_draft_is_stopped_when_it_is_given_up() -> None:
    calls = Calls()
    calls.end(calls.begin("draft", 1))
    in_flight = calls.begin("draft", 1)
    calls.in_flight.give_up(in_flight)
    assert calls.in_flight.unstopped(calls.now) == [in_flight]


@pytest.mark.parametrize("timeout", [0.5, 3.0, DRAFT_TIMEOUT])
def test_a_round_whose_draft_hangs_is_late_while_there_is_time_for_the_target(timeout: float) -> None:
    """A draft may take a quarter of a request's time."""
    assert Calls(timeout).begin("draft", 8, via="round").late - START <= 2 * timeout
