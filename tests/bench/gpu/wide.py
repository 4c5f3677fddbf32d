"""The trained pair inside larger shapes: it computes the small models' function at the large models' cost.

The small blocks stand in the first dimensions and heads, zeros in what adds to the result elsewhere; the other
heads and layers cost what they cost and add nothing. One more dimension holds a constant: in the norms it is the
small model's epsilon, and in the head it makes the vocabulary's further rows impossible. In float32 the logits are
the small model's but for rounding.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, LlamaConfig

IMPOSSIBLE = -1e6


def module(folder: Path, config: LlamaConfig, make: Callable[[LlamaConfig], Any]) -> Any:
    """A module of the large shape by `make(config)`, with the checkpoint's function."""
    small = AutoConfig.from_pretrained(folder)
    config.rms_norm_eps = 1e-20
    large = make(config)
    stored = load_file(folder / "model.safetensors", device=str(large.device))
    weights = {name: each.float() for name, each in stored.items()}
    with torch.no_grad():
        _Placing(small, config, weights).place(large)
    return large


class _Placing:
    def __init__(self, small: LlamaConfig, large: LlamaConfig, weights: dict[str, Tensor]) -> None:
        self._small, self._large, self._weights = small, large, weights
        self._width = small.hidden_size
        self._norm_scale = (small.hidden_size / large.hidden_size) ** 0.5

    def place(self, model: Any) -> None:
        base, width = model.model, self._width
        embedding = self._weights["model.embed_tokens.weight"]
        for table in (base.embed_tokens.weight, model.lm_head.weight):
            table.zero_()
            table[: len(embedding), :width] = embedding.to(table.dtype)
        base.embed_tokens.weight[:, width] = (width * self._small.rms_norm_eps) ** 0.5
        model.lm_head.weight[len(embedding) :, width] = IMPOSSIBLE
        base.norm.weight[:width] = (self._weights["model.norm.weight"] * self._norm_scale).to(base.norm.weight.dtype)
        for index, layer in enumerate(base.layers):
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
            if index < self._small.num_hidden_layers:
                self._layer(layer, f"model.layers.{index}.")

    def _layer(self, layer: Any, prefix: str) -> None:
        def get(name: str) -> Tensor:
            return self._weights[prefix + name + ".weight"]

        for name in ("input_layernorm", "post_attention_layernorm"):
            weight = getattr(layer, name).weight
            weight[: self._width] = (get(name) * self._norm_scale).to(weight.dtype)
            weight[self._width] = 0
        self._attention(layer.self_attn, get)
        inner = self._small.intermediate_size
        for name in ("gate_proj", "up_proj"):
            weight = getattr(layer.mlp, name).weight
            weight[:inner, : self._width] = get("mlp." + name).to(weight.dtype)
        down = layer.mlp.down_proj.weight
        down[: self._width, :inner] = get("mlp.down_proj").to(down.dtype)

    def _attention(self, attention: Any, get: Callable[[str], Tensor]) -> None:
        small, large, width = self._small, self._large, self._width
        shape = (-1, large.head_dim, large.hidden_size)
        q, k, v = (getattr(attention, f"{name}_proj").weight.view(shape) for name in "qkv")
        o = attention.o_proj.weight.view(large.hidden_size, -1, large.head_dim)
        few, many = (each.num_attention_heads // each.num_key_value_heads for each in (small, large))
        pairs = torch.arange(small.head_dim // 2, device=q.device)
        step = large.head_dim // small.head_dim
        at = torch.cat([pairs * step, pairs * step + large.head_dim // 2])  # the pairs of equal frequency
        grow = (large.head_dim / small.head_dim) ** 0.5
        from_q, from_k, from_v = (get(f"self_attn.{name}_proj").view(-1, small.head_dim, width) for name in "qkv")
        from_o = get("self_attn.o_proj").view(width, -1, small.head_dim)
        for head in range(small.num_attention_heads):
            to = head // few * many + head % few
            q[to] = 0
            q[to, at, :width] = (from_q[head] * grow).to(q.dtype)
            o[:width, to, : small.head_dim] = from_o[:, head].to(o.dtype)
        for head in range(small.num_key_value_heads):
            k[head, at, :width] = from_k[head].to(k.dtype)
            v[head, : small.head_dim, :width] = from_v[head].to(v.dtype)
