"""Speculation against none: by the model, and by probes."""

import pytest

from tandem.metrics.capacity.lengths import Lengths, lengths
from tandem.metrics.capacity.model import ReplicaModel
from tandem.metrics.capacity.worth import LEAST_PROBES, Judge, ProbeSpeed, of_model
from tandem.metrics.report import Worth
from tandem.metrics.telemetry.figures import PodFigures
from unit.metrics.capacity.truth import Truth, figures, spec, tau

ADAPTIVE = Lengths(0, 6, adaptive=True)
FIXED = lengths(spec(6, adaptive=False))


def fitted(*lengths_seen: int, acceptance: float = 0.8) -> ReplicaModel:
    model = ReplicaModel(6, 1 / 6)
    for i in range(120):
        pod = Truth().pod(1 + (i * 7) % 32, lengths_seen[i % len(lengths_seen)], acceptance)
        model.observe(figures(15.0 * i, pod), ADAPTIVE)
    return model


def true_speedup(rows: float, k: int, acceptance: float) -> float:
    return tau(acceptance, k) * Truth().seconds(rows, 0) / Truth().seconds(rows, k)


@pytest.mark.parametrize(
    ("rows", "k", "acceptance", "beneficial"), [(4, 4, 0.8, True), (16, 3, 0.7, True), (32, 6, 0.2, False)]
)
def test_the_model_knows_what_the_target_alone_would_do(
    rows: float, k: int, acceptance: float, beneficial: bool
) -> None:
    window = figures(1800.0, Truth().pod(rows, k, acceptance))
    worth = of_model(fitted(0, 2, 4, 6, acceptance=acceptance), window, ADAPTIVE)
    assert worth.speedup == pytest.approx(true_speedup(rows, k, acceptance), rel=0.05)
    assert worth.low is not None
    assert worth.high is not None
    assert worth.low < true_speedup(rows, k, acceptance) < worth.high
    assert worth.beneficial is beneficial
    assert worth.message.endswith(f" made a step, by the model from {worth.samples} rounds")


@pytest.mark.parametrize(
    ("model", "lengths_allowed", "pods", "message", "reason"),
    [
        (fitted(4), FIXED, [Truth().pod(16, 4)], "what a step without a draft takes was not seen", "one length"),
        (fitted(0, 4), ADAPTIVE, [Truth().pod(16, 0)], "the target runs alone at this load", "switched off"),
        (fitted(0, 4), ADAPTIVE, [], "too little traffic to judge", "no traffic"),
        (
            fitted(0, 4),
            ADAPTIVE,
            [Truth().pod(0.2, 4)],
            "fewer than 200 draft-and-verify rounds",
            "hardly any traffic",
        ),
        (fitted(0), lengths(spec(kind="None")), [Truth().pod(16, 0)], "serves the target alone", "no speculation"),
    ],
)
def test_too_little_is_said_to_be_so(
    model: ReplicaModel, lengths_allowed: Lengths, pods: list[PodFigures], message: str, reason: str
) -> None:
    worth = of_model(model, figures(1800.0, *pods), lengths_allowed)
    assert (worth.speedup, worth.beneficial) == (None, None), reason
    assert message in worth.message


def test_another_revision_is_judged_anew() -> None:
    judge, at = Judge(ADAPTIVE, 1 / 6), 0.0

    def judged(windows: int, *serving: str) -> Worth:
        nonlocal at
        for i in range(windows):
            at += 15.0
            worth = judge.update(figures(at, Truth().pod(8, (0, 4)[i % 4 != 2])), serving)
        return worth

    assert judged(120, "a").speedup
    assert judged(1).speedup, "no pod is Ready for a moment"
    assert "pods of several revisions" in judged(1, "a", "b").message
    assert judged(2, "b").speedup is None
    assert judged(120, "b").speedup


def test_a_fixed_length_is_judged_by_probes() -> None:
    judge = Judge(FIXED, 1 / 6)
    for i in range(40):
        worth = judge.update(figures(60.0 * i, Truth().pod(8, 6, probes=2)), ("a",))
    assert (worth.source, worth.beneficial) == ("Probe", True)
    assert worth.speedup == pytest.approx(true_speedup(8, 6, 0.8), rel=1e-6)


def probed(windows: int, each: int, acceptance: float = 0.8) -> Worth | None:
    probes = ProbeSpeed()
    for i in range(windows):
        probes.observe(figures(60.0 * i, Truth().pod(8, 4, acceptance, probes=each)))
    return probes.worth()


def test_probes_measure() -> None:
    worth = probed(40, 2)
    assert worth is not None
    assert worth.source == "Probe"
    assert worth.speedup == pytest.approx(true_speedup(8, 4, 0.8), rel=1e-6)
    assert worth.samples == pytest.approx(80, rel=0.4)  # those of half an hour ago count half
    assert worth.beneficial is True


def test_more_probes_are_surer() -> None:
    few, many = probed(40, 2), probed(40, 20)
    assert few is not None
    assert many is not None
    assert (many.high or 0) - (many.low or 0) < 0.5 * ((few.high or 0) - (few.low or 0))


def test_few_probes_say_nothing() -> None:
    assert probed(2, LEAST_PROBES // 3) is None
    assert probed(40, 0) is None


def test_overlapping_windows_count_once() -> None:
    probes = ProbeSpeed()
    for i in range(160):
        probes.observe(figures(15.0 * i, Truth().pod(8, 4, probes=2)))
    worth, apart = probes.worth(), probed(40, 2)
    assert worth is not None
    assert apart is not None
    assert worth.samples == pytest.approx(apart.samples, rel=0.1)


@pytest.mark.parametrize(
    ("low", "high", "beneficial"),
    [(1.1, 1.3, True), (0.8, 0.95, False), (0.9, 1.1, None), (None, None, None)],
)
def test_beneficial_is_beyond_doubt(low: float | None, high: float | None, beneficial: bool | None) -> None:
    assert Worth(low=low, high=high).beneficial is beneficial
