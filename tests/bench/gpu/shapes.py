"""Models in the shapes of Llama 3, and what a pass must read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from reference_engine.torch_backend import attention, loading
from reference_engine.torch_backend.loading import Sizes
from reference_engine.torch_backend.model import TorchModel

DTYPE = torch.bfloat16
_COMMON = {"vocab_size": 128256, "num_key_value_heads": 8, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5}
CONFIGS = {
    "8B": LlamaConfig(
        hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, head_dim=128,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, tie_word_embeddings=False, **_COMMON,
    ),
    "1B": LlamaConfig(
        hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, head_dim=64,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, tie_word_embeddings=False, **_COMMON,
    ),
}  # fmt: skip
CUT_70B = LlamaConfig(
    hidden_size=8192, intermediate_size=28672, num_hidden_layers=24, num_attention_heads=64, head_dim=128,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, tie_word_embeddings=False, **_COMMON,
)  # fmt: skip
"""Llama 3.1 70B with 24 of its 80 layers: 45 GB."""


@dataclass(frozen=True)
class Bytes:
    """That a pass reads: the weights once, and keys and values for each token of context."""

    weights: int
    per_token: int


def random_module(config: LlamaConfig, dtype: torch.dtype = DTYPE) -> Any:
    """A module of random weights on the GPU."""
    with torch.device("cuda"):
        return AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention.NAME)


def load(config: LlamaConfig, sizes: Sizes, module: torch.nn.Module | None = None) -> tuple[TorchModel, Bytes]:
    """A model of this shape with random keys and values in its slots."""
    module = random_module(config) if module is None else module
    read = sum(each.numel() for name, each in module.named_parameters() if "embed_tokens" not in name)
    per_token = loading.bytes_per_slot(config, 1, DTYPE)
    model = loading.build(module, sizes)
    model.cache.keys.normal_()
    model.cache.values.normal_()
    return model, Bytes(read * DTYPE.itemsize, per_token)


def bandwidth() -> float:
    """Bytes that the GPU reads a second: the best of several sums over 4 GiB."""
    data = torch.ones(1 << 30, dtype=torch.float32, device="cuda")
    return max(data.nbytes / seconds(data.sum, 5) for _ in range(5))


def seconds(action: Callable[[], object], repeats: int) -> float:
    """GPU time of one action, the mean of several in a row."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    action()
    torch.cuda.synchronize()
    start.record()
    for _ in range(repeats):
        action()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3 / repeats
