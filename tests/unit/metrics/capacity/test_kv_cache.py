"""What sequences hold of the KV caches, from the figures of a window."""

from dataclasses import replace

import pytest

from tandem.metrics.capacity.kv_cache import KvCacheDemand, measure
from tandem.metrics.telemetry.figures import PodFigures
from unit.metrics.capacity.truth import Truth, figures


def pod(running: float, *, blocks: float | None = 400, used: float | None, requests: float | None) -> PodFigures:
    told = Truth().pod(running, 4)
    return replace(told, kv_blocks=blocks, kv_blocks_used=used, engine_requests=requests)


BUSY = pod(10, used=200, requests=10)
SILENT = pod(10, blocks=None, used=None, requests=None)

ROWS: dict[str, tuple[list[PodFigures], int, int, KvCacheDemand | None]] = {
    "what the requests hold": ([BUSY], 0, 0, KvCacheDemand(held=200, blocks=400)),
    "between rounds blocks count as free: what a request holds, for every sequence": (
        [pod(10, used=80, requests=4)],
        0,
        0,
        KvCacheDemand(held=200, blocks=400),
    ),
    "a full engine: what waits in it holds nothing, so all of it is held and no more": (
        [pod(40, used=400, requests=40)],
        0,
        0,
        KvCacheDemand(held=400, blocks=400),
    ),
    "replicas together; one that was idle tells of its cache alone": (
        [BUSY, pod(0, blocks=600, used=0, requests=0)],
        0,
        0,
        KvCacheDemand(held=200, blocks=500),
    ),
    "a pod that covers a quarter of the window": (
        [BUSY, replace(BUSY, seconds=15.0)],
        0,
        0,
        KvCacheDemand(held=250, blocks=400),
    ),
    "unknown pods are as busy as the mean": ([BUSY], 1, 0, KvCacheDemand(held=400, blocks=400)),
    "newcomers are not": ([BUSY], 1, 1, KvCacheDemand(held=200, blocks=400)),
    "an engine that does not tell: its sequences are like those of the others": (
        [BUSY, SILENT],
        0,
        0,
        KvCacheDemand(held=400, blocks=400),
    ),
    "no engine tells": ([SILENT], 0, 0, None),
    "no pod": ([], 2, 0, None),
    "no request was seen": ([pod(10, used=0, requests=0)], 0, 0, None),
    "hardly a request was: too little for what one holds": ([pod(10, used=1, requests=1e-300)], 0, 0, None),
    "a cache of no blocks is none": ([pod(10, blocks=0, used=9, requests=1)], 0, 0, None),
}


@pytest.mark.parametrize(("pods", "unknown", "newcomers", "expected"), ROWS.values(), ids=ROWS.keys())
def test_measure(pods: list[PodFigures], unknown: int, newcomers: int, expected: KvCacheDemand | None) -> None:
    found = measure(figures(0.0, *pods, unknown=unknown), newcomers)
    if expected is None or found is None:
        assert found is expected
        return
    assert (found.held, found.blocks) == pytest.approx((expected.held, expected.blocks))
