"""What calls take, as far as it is known, and how long to wait for one."""

from typing import Any

import numpy as np
import pytest

from tandem_serving.bls import call_times
from tandem_serving.bls.batches import Row
from tandem_serving.bls.call_times import AGAIN, LATE, CallTimes
from tandem_serving.bls.calls import Call
from tandem_serving.engine.health import PROMPT_TOKENS


def test_what_a_step_takes_is_known_by_the_calls_and_follows_what_is_seen() -> None:
    times = CallTimes()
    times.timed(4, 0.008)
    assert times.step == pytest.approx(0.002)
    times.timed(8, 0.026)
    assert times.step == pytest.approx(0.00225)


def test_a_machine_that_stalls_is_no_slow_engine() -> None:
    times = CallTimes()
    times.timed(1, 0.012)
    times.timed(1, 1.0)
    assert times.step == pytest.approx(0.0144)


def test_a_call_is_late_by_its_work_and_by_what_its_engine_may_have_to_read_again() -> None:
    times = CallTimes()
    assert times.late(5) is None, "nothing is known"
    times.timed(1, 0.01)
    assert times.late(5) == pytest.approx(0.01 * LATE * 5)
    assert times.late(5, 32 * PROMPT_TOKENS) == pytest.approx(0.01 * (LATE * 5 + AGAIN * 32))


def row(ids: int, output_len: int, drafted: int = 0, first: bool = False, stream: int = 0) -> Row[Any]:
    call = Call("target", np.zeros(ids, np.int32), output_len, (7,) * drafted, first=first)
    return Row(None, call, None, stream=stream)


TOKEN = 1 / PROMPT_TOKENS
WORK = [
    # rows, cost of their steps, of their prompts, tokens that the engine knows, what they are
    ([row(500, 5, drafted=4)], 1 + 5 * TOKEN, 0, 500, "a verification"),
    ([row(500, 16)], 16 * (1 + TOKEN), 0, 500, "the target alone"),
    ([row(500, 1000, stream=1)], 1 + TOKEN, 0, 500, "a stream, until its next part"),
    ([row(500, 5, drafted=4), row(10, 1)], 1 + 6 * TOKEN, 0, 510, "rows together"),
    ([row(640, 1, first=True), row(128, 1, first=True)], 1 + 2 * TOKEN, 12, 0, "prompts by their lengths"),
]


@pytest.mark.parametrize(("rows", "steps", "prompts", "known", "what"), WORK, ids=[what for *_, what in WORK])
def test_what_a_call_costs(rows: list[Row[Any]], steps: float, prompts: float, known: int, what: str) -> None:
    assert call_times.steps(rows) == pytest.approx(steps), what
    assert (call_times.prompts(rows), call_times.known_tokens(rows)) == (prompts, known), what
