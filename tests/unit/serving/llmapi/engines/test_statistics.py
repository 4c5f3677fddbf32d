"""TensorRT-LLM's state from its iterations' statistics."""

import json
from typing import Any

import pytest

from tandem_serving.llmapi.engines.tensorrt_llm.statistics import parse
from tandem_serving.llmapi.statistics import EngineState

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
