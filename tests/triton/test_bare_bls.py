"""The benchmark's bare model on the real server: the same tokens as the target's, all sequences in one round."""

import pytest

from bench.bls.client import Load
from bench.bls.in_flight import Costs, Pair
from bench.bls.measure import Setup, serve
from triton.waits import played

pytestmark = pytest.mark.nightly

STREAMS = 4


def test_all_sequences_share_rounds() -> None:
    setup = Setup(Pair(Costs(2.0), Costs(12.0), shared=True), model="bare_bls")
    with serve(setup) as bench:
        point = played(bench, Load(STREAMS, seconds=2.0, warm_up=0.5, draft_len=4))
    assert not point.result.wrong
    assert point.rows["target"] > 1.5 * point.calls["target"], "a closed loop: rounds are shared"
    assert point.result.tokens > 2 * point.result.chunks, "drafts are accepted"
