"""Trends of demand and capacity."""

import pytest

from tandem.metrics.capacity.demand import Demand
from tandem.metrics.capacity.outlook import STEEPEST, Outlook, Trend, lead


def test_a_trend_follows_a_line_and_forgets_a_step() -> None:
    rising, step = Trend(60, 300), Trend(60, 300)
    for i in range(200):
        rising.observe(15.0 * i, 10 + 0.01 * 15 * i)
        step.observe(15.0 * i, 10 if i < 20 else 20)
    assert rising.ahead(240) == pytest.approx(10 + 0.01 * (199 * 15 + 240), rel=0.01)
    assert step.ahead(240) == pytest.approx(20, rel=0.02)


@pytest.mark.parametrize(
    ("start", "seconds", "reason"),
    [
        (None, 240.0, "not seen yet"),
        (150.0, 150.0, "as seen"),
        (5.0, 60.0, "a window's time passes before load is seen"),
        (7200.0, 900.0, "a trend does not hold for hours"),
    ],
)
def test_how_far_is_looked_ahead(start: float | None, seconds: float, reason: str) -> None:
    assert lead(start) == seconds, reason


def seen(*tokens: float, sequences: float = 100.0, start: float | None = None) -> tuple[float, float]:
    """Demand now and then, after these windows of 15 s."""
    outlook = Outlook()
    for i, each in enumerate(tokens):
        now, then = outlook.demand(15.0 * i, Demand(each, sequences, 0), start)
    return now.tokens, then.tokens


@pytest.mark.parametrize(
    ("tokens", "now", "reason"),
    [
        ([1000.0] * 40, 1000, "steady"),
        ([1000.0] * 40 + [1100.0], 1012, "100 sequences vary by 10%: hardly more"),
        ([1000.0] * 40 + [900.0], 988, "nor hardly less"),
        ([1000.0] * 40 + [1100.0] * 40, 1100, "but what stays is believed"),
        ([1000.0] * 40 + [2000.0], 2000, "a burst is no chance"),
        ([1000.0] * 40 + [500.0], 500, "nor is its end"),
    ],
)
def test_chance_is_averaged_and_a_burst_is_not(tokens: list[float], now: float, reason: str) -> None:
    assert seen(*tokens)[0] == pytest.approx(now, rel=0.005), reason


@pytest.mark.parametrize(
    ("waiting", "drains", "reason"),
    [
        ([200, 180], True, "20 fewer in 15 s: gone in 135 s"),
        ([200, 190], False, "10 fewer in 15 s: gone in 285 s, and a replica serves in 240 s"),
        ([200, 200], False, "stays"),
        ([180, 200], False, "grows"),
        ([20, 0], False, "nothing waits any more: no queue drains"),
        ([200], False, "not known yet"),
    ],
)
def test_queues_that_drain(waiting: list[float], drains: bool, reason: str) -> None:
    outlook = Outlook()
    assert [outlook.drains(15.0 * i, each, None) for i, each in enumerate(waiting)][-1] is drains, reason


def test_a_rise_goes_on_for_as_long_as_a_replica_takes_to_start() -> None:
    rising = [1000 + 0.5 * 15 * i for i in range(80)]
    now, then = seen(*rising, start=100.0)
    assert now == pytest.approx(rising[-1], rel=0.05)
    assert then == pytest.approx(rising[-1] + 0.5 * 100, rel=0.01)
    assert seen(*rising, start=300.0)[1] == pytest.approx(rising[-1] + 0.5 * 300, rel=0.01)


def test_a_steep_rise_is_not_believed_to_go_on_for_ever() -> None:
    now, then = seen(*[1000 + 5 * 15 * i for i in range(80)], start=900.0)
    assert then == pytest.approx(STEEPEST * now)


def test_a_fall_is_not_foreseen() -> None:
    now, then = seen(*[3000 - 0.5 * 15 * i for i in range(80)])
    assert then == now


@pytest.mark.parametrize(
    ("capacities", "worst", "expected", "reason"),
    [
        ([900.0] * 20, 500, 900, "steady"),
        ([900.0] * 20 + [890.0 - 10 * i for i in range(8)], 500, 700, "falls by 10 in 15 s: 160 more in 240 s"),
        (
            [900.0] * 20 + [890.0 - 10 * i for i in range(8)],
            800,
            800,
            "but not below that of drafts that are all wrong",
        ),
        ([700.0 + 10 * i for i in range(20)], 500, 890, "a rise is not foreseen"),
    ],
)
def test_capacity_ahead(capacities: list[float], worst: float, expected: float, reason: str) -> None:
    outlook = Outlook()
    for i, each in enumerate(capacities):
        ahead = outlook.capacity(15.0 * i, each, worst, None)
    assert ahead == pytest.approx(expected, rel=0.04), reason
