"""A server that is told to stop: when it counts as idle."""

from itertools import chain, repeat

import pytest

from tandem_serving.drain import POLL_SECONDS, requests_left, wait_idle

ROWS = [
    ("two looks find nothing", [0, 0], True, 1),
    ("one look may come before the gauges", [0, 1, 0, 0], True, 3),
    ("requests end", [3, 2, 1, 0, 0], True, 4),
    ("a request that never ends is cut when its time is over", [1], False, 15),
]


@pytest.mark.parametrize(("reason", "looks", "idle", "polls"), ROWS, ids=[row[0] for row in ROWS])
def test_when_it_is_idle(reason: str, looks: list[float], idle: bool, polls: int) -> None:
    now, seen = [0.0], chain(looks, repeat(looks[-1]))

    def sleep(seconds: float) -> None:
        now[0] += seconds

    assert wait_idle(lambda: next(seen), 10, sleep, lambda: now[0]) is idle, reason
    assert now[0] == pytest.approx(polls * POLL_SECONDS)


def test_a_server_that_does_not_answer_has_no_requests() -> None:
    assert requests_left(1) == 0
