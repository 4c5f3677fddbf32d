"""Weights as the forward pass wants them.

What is folded in, so that the pass has less to do: norm weights and the square root of the width into the
projections that follow (so a norm is x / sqrt(sum(x * x) + width * eps)), the attention scale into the query
projection, the sign of the gate into gate and up (so silu(g) * u is g' * u' / (1 + exp(g')) with g' = -g,
u' = -u). Query and key rows are reordered from the two halves that transformers rotates to neighbouring
pairs, so that rotary embedding is one multiplication of complex numbers.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reference_engine import linear
from reference_engine.config import ModelConfig, RopeScaling
from reference_engine.weights import LayerWeights, Weights

FloatArray = npt.NDArray[np.float32]
ComplexArray = npt.NDArray[np.complex64]


@dataclass(frozen=True)
class Layer:
    """Packed weights [blocks, in, 64] of one layer."""

    qkv: FloatArray
    o: FloatArray
    gate_up: FloatArray
    down: FloatArray


@dataclass(frozen=True)
class Layout:
    """Packed weights of a model; `rotation` complex64 [positions, head_dim / 2], `norm_eps` = width * eps."""

    embedding: FloatArray
    layers: tuple[Layer, ...]
    lm_head: FloatArray
    rotation: ComplexArray
    norm_eps: float

    @property
    def bytes_per_pass(self) -> int:
        """Bytes of weights that one forward pass reads."""
        arrays = [array for each in self.layers for array in (each.qkv, each.o, each.gate_up, each.down)]
        return sum(array.nbytes for array in [*arrays, self.lm_head])


def build(weights: Weights, config: ModelConfig, max_seq_len: int) -> Layout:
    """Lay out a model for sequences of at most `max_seq_len` tokens."""
    root = np.sqrt(config.hidden_size)
    return Layout(
        embedding=np.ascontiguousarray(weights.embedding),
        layers=tuple(_layer(each, config) for each in weights.layers),
        lm_head=linear.pack(weights.lm_head * (weights.norm * root)),
        rotation=rotation(config, max_seq_len),
        norm_eps=config.hidden_size * config.rms_norm_eps,
    )


def rotation(config: ModelConfig, positions: int) -> ComplexArray:
    """exp(i * position * frequency), Su et al. 2021, with the checkpoint's stretching of frequencies."""
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float64) / config.head_dim
    frequencies = _stretched(config.rope_theta**-exponents, config.rope_scaling)
    angles = np.outer(np.arange(positions), frequencies)
    turned: ComplexArray = np.exp(1j * angles).astype(np.complex64)
    return turned


def _stretched(frequencies: npt.NDArray[np.float64], scaling: RopeScaling) -> npt.NDArray[np.float64]:
    """Linear interpolation, or Llama 3.1's: long waves stretched, short ones kept, a ramp between."""
    if scaling.kind == "default":
        return frequencies
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    turns = scaling.original_max_position * frequencies / (2 * np.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    stretched: npt.NDArray[np.float64] = frequencies * (kept + (1 - kept) / scaling.factor)
    return stretched


def _layer(weights: LayerWeights, config: ModelConfig) -> Layer:
    root = np.float32(np.sqrt(config.hidden_size))
    before, after = weights.input_norm * root, weights.post_attention_norm * root
    q = _pairs(weights.q, config.head_dim) * np.float32(config.head_dim**-0.5)
    qkv = np.concatenate([q, _pairs(weights.k, config.head_dim), weights.v]) * before
    # Both halves start at a block, so that they can be split after packing.
    gate, up = (linear.pack(-each * after) for each in (weights.gate, weights.up))
    down = np.zeros((len(weights.down), linear.padded(weights.down.shape[1])), np.float32)
    down[:, : weights.down.shape[1]] = weights.down
    return Layer(linear.pack(qkv), linear.pack(weights.o), np.concatenate([gate, up]), linear.pack(down))


def _pairs(weight: FloatArray, head_dim: int) -> FloatArray:
    """Rows of each head from [first half, second half] to neighbouring pairs."""
    heads = weight.reshape(-1, 2, head_dim // 2, weight.shape[1])
    return heads.transpose(0, 2, 1, 3).reshape(weight.shape)
