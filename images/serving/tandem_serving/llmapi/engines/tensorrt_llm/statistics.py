"""The engine's state from the statistics of its iterations, `LLM.get_stats_async`. Pure.

They are JSON, or read already (tensorrt_llm/executor/result.py, IterationResult). The families are those that
TensorRT-LLM's engines have on Triton's page in mode BLS (triton_backend/inflight_batcher_llm/src/
custom_metrics_reporter): whoever reads those reads these.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tandem_serving.llmapi.statistics import EngineState, families

FAMILIES = families("nv_trt_llm", "TRT LLM")


def parse(iteration: str | Mapping[str, Any]) -> EngineState | None:
    """The state after an iteration; None where it reports no KV cache."""
    statistics = json.loads(iteration) if isinstance(iteration, str) else iteration
    cache = statistics.get("kvCacheStats")
    if not cache:
        return None
    return EngineState(statistics["numActiveRequests"], cache["maxNumBlocks"], cache["usedNumBlocks"])
