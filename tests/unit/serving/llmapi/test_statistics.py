"""The gauges of an engine's state."""

import pytest

from tandem_serving.llmapi import engines
from tandem_serving.llmapi.engines.tensorrt_llm import TensorRtLlm
from tandem_serving.llmapi.statistics import EngineState


@pytest.mark.parametrize(("kind", "prefix"), [("TensorRT-LLM", "nv_trt_llm"), ("Tandem", "tandem_engine")])
def test_gauges_are_those_of_the_engine_with_the_labels_of_mode_bls(kind: str, prefix: str) -> None:
    engine = engines.find(kind)
    assert isinstance(engine, TensorRtLlm)
    model = (("model", "tensorrt_llm"), ("version", "1"))
    gauges = EngineState(requests=3, blocks=40, used=12).gauges(engine.families)
    assert {(family.name, labels): value for (family, labels), value in gauges.items()} == {
        (f"{prefix}_request_metrics", (("request_type", "active"), *model)): 3,
        (f"{prefix}_kv_cache_block_metrics", (("kv_cache_block_type", "max"), *model)): 40,
        (f"{prefix}_kv_cache_block_metrics", (("kv_cache_block_type", "free"), *model)): 28,
        (f"{prefix}_kv_cache_block_metrics", (("kv_cache_block_type", "used"), *model)): 12,
    }
