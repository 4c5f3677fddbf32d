"""Small models of transformers with random weights, of the kinds that the torch backend runs."""

from pathlib import Path
from typing import Any

import torch
import transformers

PAIR = Path(__file__).resolve().parents[3] / "images/reference/pair"
VOCABULARY = 97
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MORE: dict[str, dict[str, Any]] = {
    "gemma2": {"sliding_window": 20, "query_pre_attn_scalar": 16},
    "granite": {"attention_multiplier": 0.2, "residual_multiplier": 0.7, "logits_scaling": 2.0},
    "mistral": {"sliding_window": 20},
    "qwen2": {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1},
    "starcoder2": {"sliding_window": 20},
}


ROPE: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "llama3": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 32},
}  # fmt: skip
"""Parameters of the kinds of rotary embedding that were tried."""


def rope(kind: str) -> dict[str, Any]:
    """config.json's `rope_parameters`, as transformers 5 writes them."""
    return {"rope_type": kind, "rope_theta": 10000.0, **ROPE[kind]}


def stock(kind: str, seed: int = 0, **values: Any) -> Any:
    """A model of transformers with random weights; `values` of its configuration."""
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(kind, **COMMON, **MORE.get(kind, {}), **values)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
