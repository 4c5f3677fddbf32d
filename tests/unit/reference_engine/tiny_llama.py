"""A Llama of random weights: made, run as the papers write it, and written as a checkpoint."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from reference_engine import config as model_config
from reference_engine import layout, weights
from reference_engine.kv_cache import KVCache
from reference_engine.model import Llama
from reference_engine.scheduler import Capacity, Scheduler

Tensors = dict[str, npt.NDArray[np.float32]]
Array64 = npt.NDArray[np.float64]

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}


def tensors(values: dict[str, Any], seed: int = 0) -> Tensors:
    """Random weights by the names of transformers' LlamaForCausalLM, lively enough that logits differ."""
    rng = np.random.default_rng(seed)
    config = model_config.parse(values)
    hidden, inner, width = config.hidden_size, config.intermediate_size, config.head_dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for i in range(config.num_layers):
        shapes |= {
            f"model.layers.{i}.self_attn.q_proj.weight": (config.num_heads * width, hidden),
            f"model.layers.{i}.self_attn.k_proj.weight": (config.num_kv_heads * width, hidden),
            f"model.layers.{i}.self_attn.v_proj.weight": (config.num_kv_heads * width, hidden),
            f"model.layers.{i}.self_attn.o_proj.weight": (hidden, config.num_heads * width),
            f"model.layers.{i}.mlp.gate_proj.weight": (inner, hidden),
            f"model.layers.{i}.mlp.up_proj.weight": (inner, hidden),
            f"model.layers.{i}.mlp.down_proj.weight": (hidden, inner),
        }
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    result = {name: _random(rng, shape, 1.5 / np.sqrt(shape[-1])) for name, shape in shapes.items()}
    for name in norm_names(config.num_layers):
        result[name] = 1 + _random(rng, (hidden,), 0.1)
    return result


def norm_names(layers: int) -> list[str]:
    """Names of the norms' weights."""
    kinds = ("input_layernorm", "post_attention_layernorm")
    return ["model.norm.weight", *(f"model.layers.{i}.{kind}.weight" for i in range(layers) for kind in kinds)]


def _random(rng: np.random.Generator, shape: tuple[int, ...], scale: float) -> npt.NDArray[np.float32]:
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def write(folder: Path, changes: dict[str, Any] | None = None, seed: int = 0) -> Path:
    """Write config.json and model.safetensors (float32); returns the folder."""
    values = {**CONFIG, **(changes or {})}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(values))
    save_file(tensors(values, seed), folder / "model.safetensors")
    return folder


def model(changes: dict[str, Any] | None = None, slots: int = 4, seed: int = 0) -> Llama:
    """The engine's model of these weights."""
    values = {**CONFIG, **(changes or {})}
    config = model_config.parse(values)
    longest = config.max_position_embeddings
    packed = layout.build(weights.assemble(tensors(values, seed), config), config, longest)
    return Llama(config, packed, KVCache(config, slots, longest), max_num_tokens=512)


def scheduler(changes: dict[str, Any] | None = None, slots: int = 4, max_num_tokens: int = 64) -> Scheduler:
    """A scheduler on such a model."""
    llama = model(changes, slots)
    capacity = Capacity(max_num_tokens, slots, llama.config.max_position_embeddings)
    return Scheduler(llama, capacity, llama.config.vocab_size)


def textbook_logits(values: dict[str, Any], ids: npt.NDArray[np.int32], seed: int = 0) -> Array64:
    """Logits [n, vocabulary] in float64, by the formulas of RMSNorm, RoPE, attention and SwiGLU."""
    config = model_config.parse(values)
    named = {name: array.astype(np.float64) for name, array in tensors(values, seed).items()}
    x = named["model.embed_tokens.weight"][ids]
    for i in range(config.num_layers):
        layer = {key[len(f"model.layers.{i}.") :]: array for key, array in named.items() if f"layers.{i}." in key}
        x = x + _attention(_norm(x, layer["input_layernorm.weight"], config), layer, config)
        h = _norm(x, layer["post_attention_layernorm.weight"], config)
        gate, up = h @ layer["mlp.gate_proj.weight"].T, h @ layer["mlp.up_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ layer["mlp.down_proj.weight"].T
    head = named.get("lm_head.weight", named["model.embed_tokens.weight"])
    logits: Array64 = _norm(x, named["model.norm.weight"], config) @ head.T
    return logits


def _norm(x: Array64, weight: Array64, config: model_config.ModelConfig) -> Array64:
    normed: Array64 = x / np.sqrt((x * x).mean(-1, keepdims=True) + config.rms_norm_eps) * weight
    return normed


def _attention(h: Array64, layer: dict[str, Array64], config: model_config.ModelConfig) -> Array64:
    n, width, group = len(h), config.head_dim, config.heads_per_kv
    q, k, v = ((h @ layer[f"self_attn.{c}_proj.weight"].T).reshape(n, -1, width) for c in "qkv")
    q, k = _rotate(q, config), _rotate(k, config)
    out = np.empty_like(q)
    for head in range(config.num_heads):
        scores = q[:, head] @ k[:, head // group].T / np.sqrt(width)
        scores[np.triu_indices(n, 1)] = -np.inf
        weights_ = np.exp(scores - scores.max(-1, keepdims=True))
        out[:, head] = weights_ / weights_.sum(-1, keepdims=True) @ v[:, head // group]
    projected: Array64 = out.reshape(n, -1) @ layer["self_attn.o_proj.weight"].T
    return projected


def _rotate(x: Array64, config: model_config.ModelConfig) -> Array64:
    """x cos + rotate_half(x) sin, as transformers does."""
    angles = np.angle(layout.rotation(config, len(x)).astype(np.complex128))[:, None]
    first, second = np.split(x, 2, axis=-1)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
