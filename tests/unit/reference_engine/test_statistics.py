"""The engine's state under the names of TensorRT-LLM's Triton backend."""

from reference_engine.statistics import GENERAL, KV_CACHE, REQUESTS, Statistics, gauges


def test_gauges() -> None:
    assert gauges(Statistics(running=2, waiting=3, slots=4, used=10, blocks=40, iterations=7)) == {
        (REQUESTS, "active"): 5,
        (REQUESTS, "max"): 4,
        (REQUESTS, "scheduled"): 2,
        (REQUESTS, "waiting"): 3,
        (KV_CACHE, "max"): 40,
        (KV_CACHE, "free"): 30,
        (KV_CACHE, "used"): 10,
        (KV_CACHE, "tokens_per"): 64,
        (KV_CACHE, "fraction"): 0.25,
        (GENERAL, "iteration_counter"): 7,
    }
