"""Steps that do not take all sequences: which calls the target gets, and when. Texts have 100 tokens."""

from collections.abc import Iterable

import numpy as np
import pytest

from tandem_serving.bls.batches import Batch, Row
from tandem_serving.bls.calls import Call, Role
from tandem_serving.bls.schedule import Schedule
from tandem_serving.bls.step_limits import StepLimits, tokens_of


def call(role: Role, length: int = 100, k: int = 4, first: bool = False) -> Call:
    ids = np.zeros(length, np.int32)
    return Call(role, ids, k if role == "draft" else k + 1, (1,) * k if role == "target" else (), first=first)


# calls, tokens of their batch, why
TOKENS = [
    ([call("target")] * 3, 312, "104 each"),
    ([call("draft")] * 3, 312, "with those that are still to be drafted"),
    ([call("target", k=0), call("target", k=0), call("target", 101)], 313, "shorter drafts are filled up"),
    ([], 0, "none"),
]


@pytest.mark.parametrize(("calls", "tokens", "why"), TOKENS)
def test_tokens_of_a_batch(calls: list[Call], tokens: int, why: str) -> None:
    assert tokens_of(calls) == tokens, why


def test_a_step_takes_its_first_call_in_any_case_and_no_more_rows_than_a_call() -> None:
    assert StepLimits(64, target_tokens=50).room("target").take([call("target")] * 3) == 1
    assert StepLimits(2, target_tokens=5000).room("target").take([call("target")] * 3) == 2
    assert StepLimits(64, target_tokens=312).room("target", generating=1).take([call("target")] * 3) == 2


class Engines:
    """A schedule of `members` sequences whose engines take `fit` texts into a step."""

    def __init__(self, members: int, fit: int, rows: int = 64, micro_batches: int = 1) -> None:
        tokens = 104 * fit + 16  # room for those that generate
        limits = StepLimits(rows, tokens, tokens)
        self.schedule: Schedule[str] = Schedule(limits, lambda _: micro_batches)
        for _ in range(members):
            self.schedule.enter("k")

    def ask(self, drafts: str = "", targets: str = "", key: str = "k", first: bool = False) -> None:
        for role, names in (("draft", drafts), ("target", targets)):
            for name in names:
                self.schedule.ask(Row(name, call(role, first=first), key))  # type: ignore[arg-type]

    def start(self) -> list[Batch[str]]:
        return self.schedule.start(lambda _: True)


def names(batches: Iterable[Batch[str]]) -> list[tuple[str, str]]:
    return [(batch.role, "".join(row.sequence for row in batch.rows)) for batch in batches]


def test_drafts_start_at_once_in_batches_that_fit() -> None:
    made = Engines(8, fit=3)
    made.ask("abcde")
    assert names(made.start()) == [("draft", "abc"), ("draft", "de")]
    made.ask("fgh")
    assert names(made.start()) == [("draft", "fgh")], "whatever is in flight"


def test_the_target_has_a_step_in_flight_and_a_full_one_behind_it() -> None:
    made = Engines(8, fit=3)
    made.ask(targets="abcdefgh")
    first, second = made.start()
    assert names([first, second]) == [("target", "abc"), ("target", "def")]
    assert made.start() == [], "no more than two"
    made.schedule.finish(first)
    assert made.start() == [], "gh would be a step of two behind another"
    made.ask(targets="a")
    assert names(made.start()) == [("target", "gha")], "who waits longest comes first"


def test_a_step_that_is_answered_makes_way_before_it_is_settled() -> None:
    made = Engines(8, fit=3)
    made.ask(targets="abcdefgh")
    first, _ = made.start()
    made.ask(targets="i")
    made.schedule.release(first)
    assert names(made.start()) == [("target", "ghi")]
    made.schedule.finish(first)
    assert made.start() == [], "freed once"


def test_new_prompts_come_first() -> None:
    made = Engines(8, fit=3)
    made.ask(targets="abcdef")
    made.ask(targets="n", first=True)
    assert names(made.start()) == [("target", "nab"), ("target", "cde")]


def test_sequences_that_share_no_call_share_a_step() -> None:
    made = Engines(4, fit=3)
    for _ in range(4):
        made.schedule.enter("other")
    made.ask(targets="abcd")
    made.ask(targets="wxyz", key="other")
    first, *second = made.start()
    assert names([first, *second]) == [("target", "abc"), ("target", "wxy")], "in turn"
    made.schedule.finish(first)
    assert made.start() == [], "two are left, which do not fill a step"
    made.schedule.finish(second[0])
    assert names(made.start()) == [("target", "d"), ("target", "z")]


def test_a_step_of_two_calls_is_over_with_both() -> None:
    made = Engines(5, fit=2)
    made.schedule.enter("other")
    made.ask(targets="a")
    made.ask(targets="x", key="other")
    made.ask("bc")
    drafts = made.start()
    assert names(drafts) == [("draft", "bc"), ("target", "a"), ("target", "x")]
    made.ask(targets="bc")
    (behind,) = made.start()
    made.ask(targets="de")
    made.schedule.finish(drafts[1])
    assert made.start() == [], "x is in flight"
    made.schedule.finish(drafts[2])
    assert names(made.start()) == [("target", "de")]
    assert names([behind]) == [("target", "bc")]


PLANNED: list[tuple[str, int, int, list[str], str]] = [
    # who asks for a draft, besides the one who asks the target; rows of a call, micro-batches, what starts, why
    ("ab", 64, 1, ["ab"], "all fit"),
    ("abc", 64, 1, ["abc", "x"], "they do not: what waits starts"),
    ("abcde", 64, 2, ["abc", "x"], "half of them fit"),
    ("abcdef", 64, 2, ["abc", "def", "x"], "half of them do not"),
    ("abcde", 3, 1, ["abc", "de"], "no batch has more rows"),
]


@pytest.mark.parametrize(("drafts", "rows", "batches", "started", "why"), PLANNED)
def test_steps_are_planned_where_batches_do_not_fit(
    drafts: str, rows: int, batches: int, started: list[str], why: str
) -> None:
    made = Engines(len(drafts) + 1, 3, rows, batches)
    made.ask(drafts, targets="x")
    assert [name for _, name in names(made.start())] == started, why
