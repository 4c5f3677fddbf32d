"""The benchmark's BLS with clocks, on the real server: each of its stages is still of functions that are called."""

import pytest

from bench.bls.client import Load
from bench.bls.in_flight import Costs, Pair
from bench.bls.measure import Setup, serve
from triton.waits import played

pytestmark = pytest.mark.nightly

TICK = 0.01  # seconds: the system counts a process's CPU time in such


def test_every_stage_is_counted_once() -> None:
    setup = Setup(Pair(Costs(2.0), Costs(12.0), shared=True), model="clocked_bls")
    with serve(setup) as bench:
        point = played(bench, Load(4, seconds=2.0, warm_up=0.5, draft_len=4))
    assert not point.result.wrong
    assert [stage for stage, (_, calls) in point.stages.items() if not calls] == []
    held = sum(seconds for seconds, _ in point.stages.values())
    assert 0.3 * point.cpu["bls"] <= held <= point.cpu["bls"] + TICK, (
        "what a function calls is counted with that alone"
    )
