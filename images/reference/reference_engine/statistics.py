"""The engine at a moment, and gauges of it as TensorRT-LLM's Triton backend has them, under a prefix of Tandem's.

Families, labels and their values are that backend's, as far as the engine has the numbers.
Source: TensorRT-LLM, triton_backend/inflight_batcher_llm/src/custom_metrics_reporter/custom_metrics_reporter.cc
"""

from collections.abc import Mapping
from dataclasses import dataclass

from reference_engine.kv_cache import BLOCK

REQUESTS, KV_CACHE = "tandem_engine_request_metrics", "tandem_engine_kv_cache_block_metrics"
GENERAL = "tandem_engine_general_metrics"
FAMILIES: Mapping[str, tuple[str, str]] = {
    REQUESTS: ("request_type", "Engine request metrics"),
    KV_CACHE: ("kv_cache_block_type", "Engine KV cache block metrics"),
    GENERAL: ("general_type", "General engine metrics"),
}
"""The label that says which number it is, and the help, by family."""


@dataclass(frozen=True)
class Statistics:
    """`running` sequences in the model, `waiting` for one of `slots` places; they hold `used` of the KV cache's
    `blocks`. What is kept for reuse is not held. `iterations`: passes of the model so far."""

    running: int
    waiting: int
    slots: int
    used: int
    blocks: int
    iterations: int = 0


def gauges(statistics: Statistics) -> dict[tuple[str, str], float]:
    """Values by family and by what its label says."""
    requests = {
        "active": statistics.running + statistics.waiting,
        "max": statistics.slots,
        "scheduled": statistics.running,
        "waiting": statistics.waiting,
    }
    blocks = {
        "max": statistics.blocks,
        "free": statistics.blocks - statistics.used,
        "used": statistics.used,
        "tokens_per": BLOCK,
        "fraction": statistics.used / statistics.blocks,
    }
    return {
        **{(REQUESTS, kind): value for kind, value in requests.items()},
        **{(KV_CACHE, kind): value for kind, value in blocks.items()},
        (GENERAL, "iteration_counter"): statistics.iterations,
    }
