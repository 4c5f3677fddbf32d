"""Which engine calls show how long such calls take, and when one is late."""

import math
from typing import Any

import numpy as np
import pytest

from tandem_serving.bls.batches import Batch, Row, Via
from tandem_serving.bls.calls import Call, Role, ServerRound
from tandem_serving.bls.in_flight import DRAFT_LATE, LATE, PROMPT_LATE, TARGET_LATE, InFlightBatch, InFlightBatches

K, START, DRAFT_TIMEOUT = 4, 100.0, 30.0


class Calls:
    """Engine calls of sequences that do not matter here."""

    def __init__(self, draft_timeout: float = DRAFT_TIMEOUT) -> None:
        self.in_flight, self.now = InFlightBatches(draft_timeout), START

    def begin(
        self, role: Role, rows: int, shared: bool = True, via: Via = "engine", first: bool = False
    ) -> InFlightBatch:
        length = K if role == "draft" else K + 1
        call = Call(role, np.arange(5, dtype=np.int32), length, (1,) * K if role == "target" else (), first=first)
        sequence: Any = object()
        return self.in_flight.begin(Batch(role, [Row(sequence, call, "key")] * rows, shared, via=via), self.now)

    def end(self, in_flight: InFlightBatch, seconds: float = 0.01, answered: bool = True) -> None:
        self.now += seconds
        if answered:
            in_flight.left.clear()
        self.in_flight.end(in_flight, self.now)

    def known(self) -> tuple[float | None, float | None]:
        """Seconds of a draft and of a verification."""
        times = self.in_flight.times
        return times.expected("draft", K), times.expected("target", K + 1)


ENDED = [
    # role, shared, via, with a new prompt, answered, whether its time is known, why
    ("draft", True, "engine", False, True, True, "a draft for several sequences"),
    ("draft", False, "engine", False, True, True, "or for one"),
    ("target", True, "engine", False, True, True, "a verification"),
    ("target", False, "engine", False, True, False, "of one sequence, by itself: perhaps the target alone"),
    ("target", True, "engine", True, True, False, "a prompt takes longer"),
    ("draft", True, "engine", True, True, False, "likewise"),
    ("target", True, "engine", False, False, False, "it failed"),
    ("target", True, "join", False, True, False, "it waits for the verification that it joins"),
    ("target", False, "stream", False, True, False, "the target alone"),
]


@pytest.mark.parametrize(
    ("role", "shared", "via", "first", "answered", "known", "reason"), ENDED, ids=[reason for *_, reason in ENDED]
)
def test_calls_whose_time_is_that_of_such_calls(
    role: Role, shared: bool, via: Via, first: bool, answered: bool, known: bool, reason: str
) -> None:
    calls = Calls()
    calls.end(calls.begin(role, 3 if shared else 1, shared, via, first), 0.02, answered)
    found = calls.known()[role == "target"]
    assert found == (pytest.approx(0.02) if known else None), reason


ROUNDS = [
    # what the server reports, seconds of a draft and of a verification that are known then, why
    (ServerRound(0.009, 0.012, 1, 1, K), (0.009, 0.012), "both calls, and nothing between them"),
    (ServerRound(0.009, 0.030, 1, 3, K), (0.009, None), "new prompts that joined make the verification longer"),
    (ServerRound(0.0, 0.012, 1, 1, K), (None, 0.012), "some of it was drafted ahead and some not"),
    (ServerRound(0.0, 0.012, 1, 1, 2), (None, None), "the draft was shorter than asked: of that length nothing"),
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
    assert calls.known() == known, reason


@pytest.mark.parametrize(
    ("role", "seconds", "late"),
    [
        ("draft", None, DRAFT_TIMEOUT),
        ("draft", 0.1, DRAFT_LATE),
        ("draft", 0.5, LATE * 0.5),
        ("target", None, PROMPT_LATE),
        ("target", 0.1, TARGET_LATE),
        ("target", 2.0, LATE * 2.0),
    ],
)
def test_a_call_is_late_after_many_times_what_such_calls_take(role: Role, seconds: float | None, late: float) -> None:
    calls = Calls()
    if seconds:
        calls.end(calls.begin(role, 3), seconds)
    assert calls.begin(role, 3).late - calls.now == pytest.approx(late)


def test_a_call_that_was_given_up_shows_nothing() -> None:
    calls = Calls()
    in_flight = calls.begin("target", 3)
    calls.in_flight.give_up(in_flight)
    assert calls.in_flight.lost == 1
    calls.end(in_flight, 40.0)
    assert (calls.in_flight.lost, calls.known()) == (0, (None, None))


def test_a_round_is_late_when_a_draft_is_and_then_a_verification() -> None:
    calls = Calls()
    in_flight = calls.begin("draft", 8, via="round")
    assert in_flight.late - START == pytest.approx(DRAFT_TIMEOUT + TARGET_LATE), "nothing is known of what they take"
    in_flight.server_round = ServerRound(0.4, 0.3, 1, 1, K)
    calls.end(in_flight)
    again = calls.begin("draft", 8, via="round")
    assert again.late - calls.now == pytest.approx(LATE * (0.4 + 0.3))


@pytest.mark.parametrize("timeout", [0.5, 3.0, DRAFT_TIMEOUT])
def test_a_round_whose_draft_hangs_is_late_while_there_is_time_for_the_target(timeout: float) -> None:
    """A draft may take a quarter of a request's time."""
    assert Calls(timeout).begin("draft", 8, via="round").late - START <= 2 * timeout


@pytest.mark.parametrize("via", ["engine", "join"])
def test_a_new_prompt_s_call_may_take_as_long_as_its_request(via: Via) -> None:
    """Stopped and asked again it would be prefilled twice: engines with much to do would get more."""
    assert Calls().begin("target", 1, shared=via == "join", via=via).late == math.inf
