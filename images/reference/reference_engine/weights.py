"""A checkpoint's tensors from safetensors files, as float32."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors

from reference_engine.config import CheckpointError, ModelConfig

FloatArray = npt.NDArray[np.float32]

_deserialize: Callable[[bytes], list[tuple[str, dict[str, Any]]]] = safetensors.deserialize


@dataclass(frozen=True)
class LayerWeights:
    """One decoder layer; projections are [out, in] as stored, norms [hidden]."""

    input_norm: FloatArray
    q: FloatArray
    k: FloatArray
    v: FloatArray
    o: FloatArray
    post_attention_norm: FloatArray
    gate: FloatArray
    up: FloatArray
    down: FloatArray


@dataclass(frozen=True)
class Weights:
    """A whole model; `embedding` and `lm_head` are [vocabulary, hidden] (the same array when tied)."""

    embedding: FloatArray
    layers: tuple[LayerWeights, ...]
    norm: FloatArray
    lm_head: FloatArray


def read(folder: Path, config: ModelConfig) -> Weights:
    """Read model.safetensors, or the files that model.safetensors.index.json lists.

    float16, bfloat16 and float32 are understood. Raises CheckpointError.
    """
    return assemble(_read_files(files(folder)), config)


def assemble(tensors: Mapping[str, FloatArray], config: ModelConfig) -> Weights:
    """From tensors by their names in transformers' LlamaForCausalLM. Raises CheckpointError."""
    shapes = _shapes(config)

    def get(name: str, shape: str) -> FloatArray:
        if name not in tensors:
            raise CheckpointError(f"the checkpoint lacks the tensor {name}: is it a complete Llama checkpoint?")
        if tensors[name].shape != shapes[shape]:
            raise CheckpointError(f"{name} is {tensors[name].shape}, config.json says {shapes[shape]}")
        return tensors[name]

    embedding = get("model.embed_tokens.weight", "vocabulary")
    return Weights(
        embedding=embedding,
        layers=tuple(
            LayerWeights(
                input_norm=get(f"model.layers.{i}.input_layernorm.weight", "norm"),
                q=get(f"model.layers.{i}.self_attn.q_proj.weight", "q"),
                k=get(f"model.layers.{i}.self_attn.k_proj.weight", "kv"),
                v=get(f"model.layers.{i}.self_attn.v_proj.weight", "kv"),
                o=get(f"model.layers.{i}.self_attn.o_proj.weight", "o"),
                post_attention_norm=get(f"model.layers.{i}.post_attention_layernorm.weight", "norm"),
                gate=get(f"model.layers.{i}.mlp.gate_proj.weight", "up"),
                up=get(f"model.layers.{i}.mlp.up_proj.weight", "up"),
                down=get(f"model.layers.{i}.mlp.down_proj.weight", "down"),
            )
            for i in range(config.num_layers)
        ),
        norm=get("model.norm.weight", "norm"),
        lm_head=embedding if config.tie_word_embeddings else get("lm_head.weight", "vocabulary"),
    )


def _shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, heads, kv = config.hidden_size, config.num_heads, config.num_kv_heads
    return {
        "norm": (hidden,),
        "vocabulary": (config.vocab_size, hidden),
        "q": (heads * config.head_dim, hidden),
        "kv": (kv * config.head_dim, hidden),
        "o": (hidden, heads * config.head_dim),
        "up": (config.intermediate_size, hidden),
        "down": (hidden, config.intermediate_size),
    }


def files(folder: Path) -> list[Path]:
    """The files that `read` reads."""
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return [folder / "model.safetensors"]
    return [folder / name for name in sorted(set(json.loads(index.read_text())["weight_map"].values()))]


def _read_files(paths: Iterable[Path]) -> dict[str, FloatArray]:
    tensors: dict[str, FloatArray] = {}
    for path in paths:
        try:
            entries = _deserialize(path.read_bytes())
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
        except safetensors.SafetensorError as error:
            raise CheckpointError(f"{path} is damaged ({error}): download it again") from None
        tensors.update((name, to_float32(name, entry)) for name, entry in entries)
    return tensors


def to_float32(name: str, entry: Mapping[str, Any]) -> FloatArray:
    """A tensor as safetensors deserializes it (`dtype`, `shape`, `data`: bytes). Raises CheckpointError."""
    kind, data = entry["dtype"], entry["data"]
    if kind == "F32":
        values = np.frombuffer(data, np.float32)
    elif kind == "F16":
        values = np.frombuffer(data, np.float16).astype(np.float32)
    elif kind == "BF16":  # the upper half of a float32
        values = (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        raise CheckpointError(f"{name} is stored as {kind}: the reference engine reads F16, BF16 and F32")
    return values.reshape(entry["shape"])
