"""Texts of which a step takes a few: the BLS's batches are no longer than that, on the real server."""

import pytest

from bench.bls.client import Load
from bench.bls.in_flight import Costs, Pair, StepLimits
from bench.bls.measure import Setup, serve
from bench.bls.prompts import Kind

pytestmark = pytest.mark.nightly

LIMITS = StepLimits(tokens=8192)
FIT = 8192 // 950  # prompts have 950 to 1,050 tokens


def test_no_call_waits_for_rows_that_its_step_does_not_take() -> None:
    """Every other client sends another optional tensor: those share no calls with the others."""
    pair = Pair(Costs(2.0), Costs(12.0), draft_limits=LIMITS, target_limits=LIMITS)
    parameters = (("max_engine_rows", "64"), ("separate_devices", "true"))
    with serve(Setup(pair, parameters=parameters)) as bench:
        kind = Kind(length=1000)
        points = [bench.run(Load(16, 3.0, 1.5, draft_len=4, kind=kind, mixed=mixed)) for mixed in (False, True)]
    for point in points:
        assert not point.result.wrong
        assert point.rows["target"] / point.calls["target"] <= FIT
    assert points[0].rows["target"] / points[0].calls["target"] > 0.3 * FIT, "steps are shared"
