"""The engine's state from its iterations' statistics."""

import json
from typing import Any

import pytest

from tandem_serving.llmapi.statistics import KV_CACHE, REQUESTS, EngineState, parse

TOLD: dict[str, Any] = {
    "numActiveRequests": 3,
    "kvCacheStats": {"maxNumBlocks": 40, "freeNumBlocks": 28, "usedNumBlocks": 12, "tokensPerBlock": 32},
    "inflightBatchingStats": {"numScheduledRequests": 3},
}


@pytest.mark.parametrize(
    ("told", "state", "reason"),
    [
        (TOLD, EngineState(requests=3, blocks=40, used=12), "read already"),
        (json.dumps(TOLD), EngineState(requests=3, blocks=40, used=12), "JSON"),
        ({"numActiveRequests": 3}, None, "an iteration that tells nothing of a KV cache"),
        ({"numActiveRequests": 3, "kvCacheStats": None}, None, "likewise"),
    ],
)
def test_parse(told: Any, state: EngineState | None, reason: str) -> None:
    assert parse(told) == state, reason


def test_gauges_have_the_labels_of_the_engines_of_mode_bls() -> None:
    model = (("model", "tensorrt_llm"), ("version", "1"))
    assert EngineState(requests=3, blocks=40, used=12).gauges() == {
        (REQUESTS, (("request_type", "active"), *model)): 3,
        (KV_CACHE, (("kv_cache_block_type", "max"), *model)): 40,
        (KV_CACHE, (("kv_cache_block_type", "free"), *model)): 28,
        (KV_CACHE, (("kv_cache_block_type", "used"), *model)): 12,
    }
