"""Demand from the figures of a window."""

from dataclasses import replace

import pytest

from tandem.metrics.capacity.demand import DRAIN, Demand, History, Past, measure
from tandem.metrics.telemetry.figures import PodFigures, Replicas
from unit.metrics.capacity.truth import Truth, figures

POD = Truth().pod(10, 4)
RATE = (POD.generation_tokens or 0) / 60
HALF = Truth().pod(10, 4, seconds=15)


@pytest.mark.parametrize(
    ("pods", "unknown", "past", "expected", "reason"),
    [
        ([POD, POD], 0, Past(), Demand(2 * RATE, 20, 0), "the sum of the pods"),
        ([POD, POD], 2, Past(), Demand(4 * RATE, 40, 0), "unknown pods are as busy as the mean"),
        ([POD, POD], 2, Past(newcomers=2), Demand(2 * RATE, 20, 0), "those that are new are not unknown"),
        ([POD, HALF], 0, Past(), Demand(1.25 * RATE, 12.5, 0), "a pod of 15 s counts for a quarter of the window"),
        (
            [Truth().pod(10, 4, waiting=6)],
            0,
            Past(tokens_each=600),
            Demand(RATE, 10, 6, 6 * 600 / DRAIN),
            "a queue that stays is to be worked off",
        ),
        (
            [Truth().pod(10, 4, waiting=6)],
            0,
            Past(growth=0.1, tokens_each=600),
            Demand(RATE + 0.1 * 600, 10, 6, 6 * 600 / DRAIN),
            "a queue that grows is demand that no replica serves",
        ),
        (
            [POD],
            0,
            Past(growth=-0.1, tokens_each=600),
            Demand(RATE - 0.1 * 600, 10, 0),
            "what is worked off is no demand",
        ),
        (
            [replace(POD, refused=3.0)],
            0,
            Past(tokens_each=600),
            Demand(RATE + 600 * 3 / 60, 10, 0),
            "what is refused is demand that no replica serves",
        ),
        (
            [replace(POD, refused=1e6)],
            0,
            Past(tokens_each=600),
            Demand(2 * RATE, 10, 0),
            "clients that come again and again are not so many",
        ),
        (
            [replace(POD, refused=3.0), POD],
            2,
            Past(tokens_each=600),
            Demand(4 * RATE + 2 * 600 * 3 / 60, 40, 0),
            "unknown pods refuse as many as the mean",
        ),
        ([Truth().pod(0, 0)], 0, Past(), Demand(0, 0, 0), "no traffic is known to be none"),
    ],
)
def test_measure(pods: list[PodFigures], unknown: int, past: Past, expected: Demand, reason: str) -> None:
    found = measure(figures(0.0, *pods, unknown=unknown), past)
    assert found is not None
    assert (found.arriving, found.running, found.waiting, found.owed) == pytest.approx(
        (expected.arriving, expected.running, expected.waiting, expected.owed), rel=1e-6
    ), reason


@pytest.mark.parametrize(
    "pods",
    [[], [PodFigures(0.0)], [PodFigures(60.0, generation_tokens=float("nan"))]],
    ids=["none told", "no time", "not a number"],
)
def test_nothing_usable_is_no_demand(pods: list[PodFigures]) -> None:
    assert measure(figures(0.0, *pods, unknown=3), Past()) is None


def test_newcomers_are_those_of_the_last_window() -> None:
    history = History()
    found = [
        history.past(figures(15.0 * i, POD), Replicas(ready)).newcomers
        for i, ready in enumerate([2, 2, 3, 3, 3, 3, 3, 3, 2, 2])
    ]
    assert found == [0, 0, 1, 1, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("pods", "growth", "reason"),
    [
        ([Truth().pod(10, 4, waiting=3)], 3 / 15, "three more wait than 15 s before"),
        ([Truth().pod(8, 4)], -2 / 15, "two fewer run"),
        ([POD, POD], 0.0, "another pod brings its own sequences: no growth"),
    ],
)
def test_growth(pods: list[PodFigures], growth: float, reason: str) -> None:
    history = History()
    history.past(figures(0.0, POD), Replicas(1))
    assert history.past(figures(15.0, *pods), Replicas(1)).growth == pytest.approx(growth), reason


def test_growth_is_as_before_while_pods_come() -> None:
    history = History()
    for i in range(3):
        before = history.past(figures(15.0 * i, Truth().pod(10 + 3 * i, 4)), Replicas(1)).growth
    assert before == pytest.approx(3 / 15)
    assert history.past(figures(45.0, POD, POD), Replicas(2)).growth == before


def test_the_length_of_answers_is_remembered() -> None:
    history = History()
    assert history.past(figures(0.0, Truth().pod(10, 4, output=300)), Replicas(1)).tokens_each == pytest.approx(300)
    for i in range(1, 400):
        past = history.past(figures(15.0 * i, Truth().pod(10, 4, output=900)), Replicas(1))
    assert past.tokens_each == pytest.approx(900, rel=0.05)
