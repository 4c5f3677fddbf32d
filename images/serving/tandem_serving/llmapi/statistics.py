"""The engine's state from the statistics of its iterations, under the names that TensorRT-LLM's engines have on
Triton's page in mode BLS: whoever reads those reads these. Pure.

The statistics are those of `LLM.get_stats_async`, JSON or read already (tensorrt_llm/executor/result.py,
IterationResult). The families are of triton_backend/inflight_batcher_llm/src/custom_metrics_reporter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tandem_serving.metrics import Family, Labels

REQUESTS = Family("nv_trt_llm_request_metrics", "gauge", "TRT LLM request metrics")
KV_CACHE = Family("nv_trt_llm_kv_cache_block_metrics", "gauge", "TRT LLM KV cache block metrics")
MODEL = (("model", "tensorrt_llm"), ("version", "1"))


@dataclass(frozen=True)
class EngineState:
    """Requests in the engine, and blocks of its KV cache: all of them, and those that requests hold."""

    requests: int
    blocks: int
    used: int

    def gauges(self) -> dict[tuple[Family, Labels], float]:
        """Values by family and labels."""
        blocks = {"max": self.blocks, "free": self.blocks - self.used, "used": self.used}
        return {
            (REQUESTS, (("request_type", "active"), *MODEL)): self.requests,
            **{(KV_CACHE, (("kv_cache_block_type", kind), *MODEL)): value for kind, value in blocks.items()},
        }


def parse(iteration: str | Mapping[str, Any]) -> EngineState | None:
    """The state after an iteration; None where it reports no KV cache."""
    statistics = json.loads(iteration) if isinstance(iteration, str) else iteration
    cache = statistics.get("kvCacheStats")
    if not cache:
        return None
    return EngineState(statistics["numActiveRequests"], cache["maxNumBlocks"], cache["usedNumBlocks"])
