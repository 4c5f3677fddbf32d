"""Can a checkpoint be split over GPUs as the resource asks? By its config.json alone. Pure.

TensorRT-LLM's rules, of TensorRT engines and of the PyTorch flow: attention heads are divided equally
(`num_heads % tp_size == 0`, _torch/modules/attention.py); KV heads too, or else each of them is copied to the same
number of GPUs (`duplicate_kv_weight`, `dup_kv_weight`); each pipeline stage has a layer at least, and stages may
differ by one (mapping.py, `pp_layers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_HEADS = ("num_attention_heads", "n_head")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads")
_LAYERS = ("num_hidden_layers", "n_layer")


def problem(config: Mapping[str, Any], tensor: int, pipeline: int = 1, model: str = "") -> str:
    """Why a model cannot be split over `tensor` GPUs a layer and `pipeline` stages, and what to write; "": it can, or
    config.json does not say.

    `config`: its language model's values (`checkpoint.language_model`). `model`: whose fields they are, as `target.`.
    """
    heads, layers = _number(config, _HEADS), _number(config, _LAYERS)
    # Latent attention (MLA) has one latent of keys and values for all heads, on each GPU.
    kv_heads = None if config.get("kv_lora_rank") else _number(config, _KV_HEADS)
    if heads and not _divides(heads, kv_heads, tensor):
        kv = f" and {kv_heads} KV heads" if kv_heads and kv_heads != heads else ""
        fitting = _either([str(size) for size in range(1, heads + 1) if _divides(heads, kv_heads, size)])
        what = f"{heads} attention heads{kv} cannot be split over {tensor} GPUs"
        return f"{what}: write {model}tensorParallelSize: {fitting}"
    if layers and pipeline > layers:
        return (
            f"{layers} layers cannot be split over {pipeline} pipeline stages: write"
            f" {model}pipelineParallelSize: {layers} or less"
        )
    return ""


def _divides(heads: int, kv_heads: int | None, tensor: int) -> bool:
    kv = kv_heads or heads
    return heads % tensor == 0 and (kv % tensor == 0 or tensor % kv == 0)


def _number(config: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    found = next((config[name] for name in names if config.get(name)), None)
    return found if isinstance(found, int) else None


def _either(sizes: list[str]) -> str:
    return f"{', '.join(sizes[:-1])} or {sizes[-1]}" if len(sizes) > 1 else sizes[0]
