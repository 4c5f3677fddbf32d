"""The fitted replica: acceptance, step times, the curve of goodput by load."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.metrics.capacity.acceptance import Drafts, PositionalAcceptance
from tandem.metrics.capacity.lengths import Lengths, lengths
from tandem.metrics.capacity.model import EXTRAPOLATE, Curve, ReplicaModel, steps_of
from tandem.metrics.capacity.step_time import StepTime
from unit.metrics.capacity.truth import Truth, figures, spec, tau

ADAPTIVE = Lengths(0, 6, adaptive=True)


@pytest.mark.parametrize(
    ("drafts", "expected", "reason"),
    [
        (Drafts(1e5, 2e5, 1.2e5, (8e4, 4e4)), (0.8, 0.5, 0.5), "a position never drafted is as the one before it"),
        (Drafts(1e5, 3e5, 0.0, (9e4, 4.5e4, 4.5e4)), (0.9, 0.5, 1.0), "each position by itself"),
        (Drafts(1e5, 2.5e5, 0.0, (8e4, 4e4, 1e4)), (0.8, 0.5, 0.5), "half of the rounds drafted three tokens"),
        (Drafts(1e5, 3e5, 2.439e5, ()), (0.9, 0.9, 0.9), "only the sum is told: all positions alike"),
        (Drafts(1e5, 3e5, 0.0, (0.0, 0.0, 0.0)), (0.0, 0.0, 0.0), "nothing accepted"),
        (Drafts(0.0, 0.0, 0.0), (0.7, 0.7, 0.7), "no rounds: the first guess"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_acceptance_by_position(drafts: Drafts, expected: tuple[float, ...], reason: str) -> None:
    acceptance = PositionalAcceptance(3)
    acceptance.observe(drafts)
    assert acceptance.positions == pytest.approx(expected, abs=0.02), reason


def test_a_round_that_drafts_without_end_takes_no_time() -> None:
    """A pod's nonsense would hold up all services: this test would not end."""
    acceptance = PositionalAcceptance(3)
    acceptance.observe(Drafts(1.0, 1e15, 0.5))
    acceptance.observe(Drafts(1e-320, 2.0**53, 1.0))
    assert all(0 <= p <= 1 for p in acceptance.positions)


def test_tau_is_the_sum_of_the_products() -> None:
    acceptance = PositionalAcceptance(3)
    acceptance.observe(Drafts(1e6, 3e6, 0.0, (8e5, 4e5, 1e5)))
    assert [acceptance.expected(k) for k in range(4)] == pytest.approx([1, 1.8, 2.2, 2.3], abs=1e-3)


def test_a_collapse_is_seen_in_one_window() -> None:
    acceptance = PositionalAcceptance(4)
    for p in (0.8, 0.8, 0.2):
        acceptance.observe(Drafts(2000.0, 8000.0, 0.0, tuple(2000 * p**i for i in range(1, 5))))
    assert acceptance.expected(4) == pytest.approx(tau(0.2, 4), rel=0.05)


def test_step_times_of_loads_and_lengths_seen_are_found() -> None:
    truth, fitted = Truth(), StepTime(1 / 6)
    rng = np.random.default_rng(1)
    for _ in range(200):
        rows, k = rng.uniform(1, 32), rng.integers(0, 7)
        fitted.observe(rows, k, truth.seconds(rows, k) * rng.normal(1, 0.03))
        fitted.pass_time(15)
    for rows, k in [(1, 0), (4, 4), (16, 2), (32, 6), (32, 0)]:
        assert fitted.predict(rows, k).seconds == pytest.approx(truth.seconds(rows, k), rel=0.05)


def test_coefficients_are_never_negative() -> None:
    fitted = StepTime(1 / 6)
    for rows, seconds in [(16, 0.08), (8, 0.08), (1, 0.09), (1, 0.095)] * 20:  # slower when emptier
        fitted.observe(rows, 4, seconds)
    assert min(fitted.coefficients) >= 0
    assert fitted.predict(8, 4).seconds == pytest.approx(0.087, rel=0.1)


@pytest.mark.parametrize("slower", [2, 5, 100])
def test_a_stalled_pod_is_no_slow_model(slower: float) -> None:
    """Of what is far off most is noise; but what is a few times off, too, must not count as it is."""
    fitted = StepTime(1 / 6)
    for i in range(40):
        fitted.observe(8 + i % 8, 4, Truth().seconds(8 + i % 8, 4))
        fitted.pass_time(15)
    fitted.observe(12, 4, slower * Truth().seconds(12, 4))
    assert fitted.predict(12, 4).seconds < 1.2 * Truth().seconds(12, 4)


def test_windows_that_overlap_weigh_less() -> None:
    doubts = []
    for weight in (1.0, 0.25):
        fitted = StepTime(1 / 6)
        for i in range(8):
            fitted.observe(8 + 2 * i, 4, Truth().seconds(8 + 2 * i, 4), weight)
        doubts.append(fitted.predict(16, 4).doubt)
    assert doubts[1] == pytest.approx(2 * doubts[0], rel=0.2)


def test_what_a_fixed_length_cannot_show_stays_uncertain() -> None:
    truth, fixed, varied = Truth(), StepTime(1 / 6), StepTime(1 / 6)
    for i in range(200):
        rows = 8 + i % 16
        fixed.observe(rows, 4, truth.seconds(rows, 4))
        varied.observe(rows, 4 if i % 2 else 0, truth.seconds(rows, 4 if i % 2 else 0))
    assert fixed.ratio_doubt(16, 4, 0) > 0.15
    assert varied.ratio_doubt(16, 4, 0) < 0.05


def test_a_change_of_speed_holds_for_other_loads_too() -> None:
    fitted = StepTime(1 / 6)
    for factor in (1.0, 2.0):
        truth = Truth(*(factor * c for c in (0.006, 0.00015, 0.036, 0.00015)))
        for i in range(60):
            rows = 8 + i % 16 if factor == 1.0 else 12
            fitted.observe(rows, 4, truth.seconds(rows, 4))
            fitted.pass_time(15)
    assert fitted.predict(24, 4).seconds == pytest.approx(Truth().seconds(24, 4) * 2, rel=0.1)


@pytest.mark.parametrize(
    "garbage", [(-1, 4, 0.1), (4, 4, float("nan")), (4, 4, float("inf")), (4, 4, 0.0), (0, 0, 1)]
)
def test_garbage_teaches_nothing(garbage: tuple[float, float, float]) -> None:
    fitted = StepTime(1 / 6)
    fitted.observe(*garbage)
    assert not fitted.known


@pytest.mark.parametrize(
    ("k", "told", "reason"),
    [
        (4, True, "drafts told"),
        (0, True, "the target alone"),
        (6, False, "TensorRT-LLM 1.2's PyTorch flow tells no drafted tokens: the specification's length"),
    ],
)
def test_steps_are_found_in_a_pods_figures(k: int, told: bool, reason: str) -> None:
    pod = Truth().pod(12, k, told=told)
    steps = steps_of(pod, Lengths(0, 6, adaptive=False, steps=lengths(spec(adaptive=False)).steps))
    assert steps is not None
    found = (steps.rows, steps.k, steps.seconds, steps.tokens)
    assert found == pytest.approx((12, k, Truth().seconds(12, k), tau(0.8, k)), rel=1e-6), reason


def _fitted(truth: Truth, acceptance: float = 0.8, most: int = 32) -> ReplicaModel:
    model = ReplicaModel(6, 1 / 6)
    for i in range(120):
        rows, k = 1 + (i * 7) % most, i % 7
        model.observe(figures(15.0 * i, truth.pod(rows, k, acceptance)), ADAPTIVE)
    model.observe(figures(1815.0, truth.pod(most, 6, acceptance)), ADAPTIVE)
    return model


@pytest.mark.parametrize("acceptance", [0.2, 0.6, 0.8, 0.95])
def test_the_curve_takes_the_best_length_at_each_load(acceptance: float) -> None:
    curve = _fitted(Truth(), acceptance).curve(32, ADAPTIVE)
    for rows in (1, 8, 32):
        best = min(Truth().itl(rows, k, acceptance) for k in range(7))
        assert curve.itl[rows - 1] == pytest.approx(best, rel=0.05)
        assert curve.goodput[rows - 1] == pytest.approx(rows / best, rel=0.05)


def test_loads_far_beyond_those_seen_are_not_judged() -> None:
    curve = _fitted(Truth(), most=6).curve(32, ADAPTIVE)
    assert len(curve.itl) == pytest.approx(6 * EXTRAPOLATE, abs=1)


def test_a_schedule_is_followed() -> None:
    steps = lengths(
        spec(
            4,
            mode="LLMAPI",
            draftLenSchedule=[{"maxBatchSize": 4, "draftLen": 4}, {"maxBatchSize": 8, "draftLen": 2}],
        )
    )
    assert [steps.at(rows) for rows in (1, 4, 4.5, 8, 9)] == [(4,), (4,), (2,), (2,), (0,)]


@pytest.mark.parametrize(
    ("changes", "expected", "reason"),
    [
        ({}, (0, 1, 2, 3, 4), "the BLS chooses"),
        ({"adaptive": False}, (4,), "always maxDraftLen"),
        ({"kind": "None"}, (0,), "the target alone"),
        ({"mode": "LLMAPI", "kind": "MTP"}, (4,), "the LLM API does not choose"),
        ({"mode": "LLMAPI", "kind": "MTP", "maxConcurrency": 8}, (0,), "above maxConcurrency"),
        ({"kind": "Medusa", "medusa": {"choices": [[0]]}}, (4,), "heads in the engine: nobody chooses"),
    ],
)
def test_who_chooses_the_length(changes: dict[str, object], expected: tuple[int, ...], reason: str) -> None:
    assert lengths(spec(4, **changes)).at(12) == expected, reason  # type: ignore[arg-type]


@settings(max_examples=50)
@given(st.floats(0.01, 0.5), st.lists(st.floats(0.0, 0.3), min_size=1, max_size=40))
def test_goodput_never_falls_with_more_sequences(first: float, more: list[float]) -> None:
    itl = first + np.cumsum([0.0, *more])
    curve = Curve(np.zeros(len(itl), dtype=np.int64), itl)
    made = [curve.goodput_at(rows) for rows in np.arange(0, len(itl) + 1, 0.5)]
    assert made == sorted(made)
    assert made[0] == 0
    assert made[2] == pytest.approx(1 / first)
    assert made[-1] == pytest.approx(max((i + 1) / each for i, each in enumerate(itl)))
