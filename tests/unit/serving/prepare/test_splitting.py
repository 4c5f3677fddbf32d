"""Which models can be split over how many GPUs: heads, KV heads and layers of published checkpoints."""

from typing import Any

import pytest

from tandem_serving.prepare.splitting import problem

QWEN_05B = {"num_attention_heads": 14, "num_key_value_heads": 2, "num_hidden_layers": 24}
LLAMA_8B = {"num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32}
DEEPSEEK = {"num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512, "num_hidden_layers": 61}

ROWS: list[tuple[str, dict[str, Any], int, int, str]] = [
    # why, config.json, GPUs a layer, stages, what is wrong; empty: nothing
    ("Qwen2.5 0.5B whole", QWEN_05B, 1, 1, ""),
    ("14 heads over 2", QWEN_05B, 2, 1, ""),
    (
        "14 heads over 4",
        QWEN_05B,
        4,
        1,
        "14 attention heads and 2 KV heads cannot be split over 4 GPUs: write tensorParallelSize: 1, 2 or 14",
    ),
    (
        "7 divides 14 heads, but 2 KV heads cannot be copied to 7",
        QWEN_05B,
        7,
        1,
        "write tensorParallelSize: 1, 2 or 14",
    ),
    ("KV heads are copied", LLAMA_8B, 16, 1, ""),
    (
        "3 GPUs",
        LLAMA_8B,
        3,
        1,
        "32 attention heads and 8 KV heads cannot be split over 3 GPUs: write tensorParallelSize: 1, 2, 4, 8, 16 or"
        " 32",
    ),
    ("6 KV heads over 4", {"num_attention_heads": 48, "num_key_value_heads": 6}, 4, 1, "over 4 GPUs"),
    (
        "as many KV heads as heads",
        {"num_attention_heads": 12, "num_key_value_heads": 12},
        8,
        1,
        "12 attention heads cannot",
    ),
    ("one KV head", {"num_attention_heads": 8, "num_key_value_heads": 1}, 8, 1, ""),
    ("latent attention has no KV heads", DEEPSEEK, 16, 1, ""),
    (
        "GPT-2's names",
        {"n_head": 25, "n_layer": 48},
        2,
        1,
        "25 attention heads cannot be split over 2 GPUs: write tensorParallelSize: 1, 5 or 25",
    ),
    ("Falcon 7B", {"num_attention_heads": 71, "num_kv_heads": 1}, 2, 1, "write tensorParallelSize: 1 or 71"),
    ("stages of unequal layers", LLAMA_8B, 1, 3, ""),
    ("a stage without layers", QWEN_05B, 1, 25, "25 pipeline stages: write pipelineParallelSize: 24 or less"),
    ("it does not say", {}, 8, 8, ""),
    ("heads by layer, as Nemotron-NAS has them", {"num_attention_heads": 64, "num_key_value_heads": None}, 8, 1, ""),
]


@pytest.mark.parametrize(
    ("config", "tensor", "pipeline", "message"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_splitting(config: dict[str, Any], tensor: int, pipeline: int, message: str) -> None:
    found = problem(config, tensor, pipeline)
    assert bool(found) == bool(message), found
    assert message in found
