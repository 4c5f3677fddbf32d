"""A Llama checkpoint's config.json."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class CheckpointError(ValueError):
    """A checkpoint that cannot be served; the message says what to change."""


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched: `kind` is default, linear or llama3."""

    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 8192


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a Llama model. Names follow config.json; `head_dim` is even."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling
    tie_word_embeddings: bool

    @property
    def heads_per_kv(self) -> int:
        """Query heads that share a key-value head."""
        return self.num_heads // self.num_kv_heads


def read(folder: Path) -> ModelConfig:
    """Read `folder`/config.json. Raises CheckpointError."""
    path = folder / "config.json"
    try:
        values = json.loads(path.read_text())
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path}: {error.strerror}; model_path must be a checkpoint's folder"
        ) from None
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from None
    try:
        return parse(values)
    except KeyError as error:
        raise CheckpointError(f"{path} lacks {error}: is it a Llama checkpoint?") from None


def parse(values: Mapping[str, Any]) -> ModelConfig:
    """From config.json's values. Raises CheckpointError (what is not supported) and KeyError (missing)."""
    _refuse(values)
    rope = _rope(values)
    heads = values["num_attention_heads"]
    config = ModelConfig(
        vocab_size=values["vocab_size"],
        hidden_size=values["hidden_size"],
        intermediate_size=values["intermediate_size"],
        num_layers=values["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=values.get("num_key_value_heads") or heads,
        head_dim=values.get("head_dim") or values["hidden_size"] // heads,
        max_position_embeddings=values["max_position_embeddings"],
        rms_norm_eps=values["rms_norm_eps"],
        rope_theta=float(rope.get("rope_theta") or values.get("rope_theta") or 10000.0),
        rope_scaling=_scaling(rope),
        tie_word_embeddings=values.get("tie_word_embeddings", False),
    )
    if config.num_heads % config.num_kv_heads or config.head_dim % 2:
        raise CheckpointError(
            f"{config.num_heads} heads of {config.head_dim} over {config.num_kv_heads} key-value heads: "
            "the heads must divide evenly and head_dim must be even"
        )
    return config


def _refuse(values: Mapping[str, Any]) -> None:
    kind = values.get("model_type")
    if kind != "llama":
        raise CheckpointError(f"model_type is {kind!r}: the reference engine runs 'llama' checkpoints")
    if values.get("hidden_act", "silu") != "silu":
        raise CheckpointError(f"hidden_act is {values['hidden_act']!r}: the reference engine runs 'silu'")
    for flag in ("attention_bias", "mlp_bias"):
        if values.get(flag):
            raise CheckpointError(f"{flag} is true: the reference engine runs models without biases")


def _rope(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """transformers 5 writes `rope_parameters`, 4 `rope_theta` and `rope_scaling`."""
    rope: Mapping[str, Any] = values.get("rope_parameters") or values.get("rope_scaling") or {}
    return rope


def _scaling(rope: Mapping[str, Any]) -> RopeScaling:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in ("default", "linear", "llama3"):
        raise CheckpointError(f"rope_type is {kind!r}: the reference engine knows default, linear and llama3")
    if kind == "default":
        return RopeScaling()
    if kind == "linear":
        return RopeScaling(kind, float(rope["factor"]))
    return RopeScaling(
        kind,
        float(rope["factor"]),
        float(rope["low_freq_factor"]),
        float(rope["high_freq_factor"]),
        int(rope["original_max_position_embeddings"]),
    )
