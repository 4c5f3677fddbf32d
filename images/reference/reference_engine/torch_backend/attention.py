"""Attention over a KV cache by slots, as an attention function of transformers.

A pass has one row of tokens, of several sequences: `Pass` says which token is whose. Each layer stores the
rows' keys and values in its `SlotCache`, then every tile attends to the tokens of its slot up to its own.
On a GPU that is split over the keys where tiles are few, so that all processors read memory (flash decoding), and
joined; each split's share follows the sequence's length on the device, so that a CUDA graph serves every length.
Elsewhere it is torch's matrix products, tile by tile.
"""

import contextvars
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from reference_engine.torch_backend import chain, kernels

NAME = "tandem_slots"
BLOCK = 64  # keys at a time
_MOST_SPLITS = 32
_LOG2_E = 1.4426950408889634
_REFUSED = ("s_aux", "position_bias", "head_mask")  # what would change the result, and is not here


@dataclass(frozen=True)
class Pass:
    """int32 tensors: of each row its position and slot; of each tile its first row and how many (0: padding)."""

    positions: Tensor
    slots: Tensor
    tile_row: Tensor
    tile_count: Tensor
    tile_tokens: int


@dataclass(frozen=True)
class Scores:
    """How scores are made: `scaling`, a `window` of keys (0: all), `softcap` (0: none)."""

    scaling: float
    window: int
    softcap: float


current: contextvars.ContextVar[Pass] = contextvars.ContextVar("current")


class SlotCache(nn.Module):
    """Keys and values of one layer: [slots, kv heads, positions, head_dim]."""

    keys: Tensor
    values: Tensor

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.register_buffer("keys", keys, persistent=False)
        self.register_buffer("values", values, persistent=False)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """An attention function by transformers' signature: [1, heads, rows, head_dim] to [1, rows, heads, head_dim]."""
    if attention_mask is not None or any(others.get(name) is not None for name in _REFUSED):
        raise NotImplementedError(f"{type(module).__name__} needs a mask, sinks or a bias: it is not supported")
    cache = module.slot_cache
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = torch.ops.tandem.attend(
        query[0], key[0], value[0], cache.keys, cache.values, scale, sliding_window or 0, softcap or 0.0
    )
    return out[None], None


AttentionInterface.register(NAME, attend)


@torch.library.custom_op("tandem::attend", mutates_args=("keys", "values"))
def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    keys: Tensor,
    values: Tensor,
    scaling: float,
    window: int,
    softcap: float,
) -> Tensor:
    """Opaque to the compiler, so that one compiled layer serves all shapes: what varies comes from `current`."""
    out = torch.empty_like(query.transpose(0, 1), memory_format=torch.contiguous_format)
    where, scores = current.get(), Scores(scaling, window, softcap)
    if query.is_cuda:
        launch_store(key, value, keys, values, where)
        launch_attend(query, keys, values, where, scores, out)
    else:
        _store(key, value, keys, values, where)
        _attend_by_tile(query, keys, values, where, scores, out)
    return out


@_attend.register_fake
def _(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    keys: Tensor,
    values: Tensor,
    scaling: float,
    window: int,
    softcap: float,
) -> Tensor:
    return torch.empty_like(query.transpose(0, 1), memory_format=torch.contiguous_format)


def launch_store(key: Tensor, value: Tensor, keys: Tensor, values: Tensor, where: Pass) -> None:
    """Rows' keys and values [kv heads, rows, head_dim] into [slots, kv heads, positions, head_dim]."""
    heads, rows, width = key.shape
    kernels.store[(rows,)](
        key, value, keys, values, where.slots, where.positions,
        *key.stride(), *value.stride(), keys.stride(0), keys.stride(1), heads, width,
        HEADS=_power_of_2(heads), WIDTH=_power_of_2(width), **chain.options(),
    )  # fmt: skip


def launch_attend(query: Tensor, keys: Tensor, values: Tensor, where: Pass, scores: Scores, out: Tensor) -> None:
    """Queries [heads, rows, head_dim] over the slots of their tiles, into `out` [rows, heads, head_dim]."""
    heads, _, width = query.shape
    kv, tiles = keys.shape[1], len(where.tile_row)
    group, padded = heads // kv, _power_of_2(width)
    rows = max(16, _power_of_2(where.tile_tokens * group))
    splits = splits_for(tiles * kv, torch.cuda.get_device_properties(query.device).multi_processor_count)
    partial = query.new_empty((tiles, kv, splits, rows, padded) if splits > 1 else (1,), dtype=torch.float32)
    sums = query.new_empty((2, tiles, kv, splits, rows) if splits > 1 else (1,), dtype=torch.float32)
    kernels.attend[(tiles, kv, splits)](
        query, keys, values, out, partial, sums,
        where.slots, where.positions, where.tile_row, where.tile_count,
        *query.stride(), keys.stride(0), keys.stride(1), out.stride(0), out.stride(1),
        scores.scaling * _LOG2_E, scores.softcap, scores.window, width, group, tiles * kv * splits * rows,
        ROWS=rows, WIDTH=padded, SPLITS=splits, BLOCK=BLOCK, CAPPED=scores.softcap > 0, WINDOWED=scores.window > 0,
        num_warps=4, num_stages=3, **chain.options(),
    )  # fmt: skip
    if splits > 1:
        kernels.join[(tiles, kv, where.tile_tokens * group)](
            partial, sums, out, where.tile_row, where.tile_count, out.stride(0), out.stride(1),
            width, group, tiles * kv * splits * rows, ROWS=rows, WIDTH=padded, SPLITS=splits, num_warps=4,
            **chain.options(),
        )  # fmt: skip


def _power_of_2(least: int) -> int:
    return 1 << (least - 1).bit_length()


def splits_for(programs: int, processors: int) -> int:
    """Splits that give every processor about two programs."""
    most = max(1, 2 * processors // programs)
    return min(_MOST_SPLITS, 1 << (most.bit_length() - 1))


def _store(key: Tensor, value: Tensor, keys: Tensor, values: Tensor, where: Pass) -> None:
    keys[where.slots, :, where.positions] = key.transpose(0, 1)
    values[where.slots, :, where.positions] = value.transpose(0, 1)


def _attend_by_tile(query: Tensor, keys: Tensor, values: Tensor, where: Pass, scores: Scores, out: Tensor) -> None:
    out.zero_()
    group = query.shape[0] // keys.shape[1]
    for first, count in zip(where.tile_row.tolist(), where.tile_count.tolist(), strict=True):
        if not count:
            continue
        rows = slice(first, first + count)
        slot, positions = where.slots[first], where.positions[rows]
        seen = slice(0, int(positions[-1]) + 1)
        weights = torch.matmul(query[:, rows], keys[slot, :, seen].repeat_interleave(group, 0).mT) * scores.scaling
        if scores.softcap:
            weights = scores.softcap * torch.tanh(weights / scores.softcap)
        distance = positions[:, None] - torch.arange(seen.stop, device=positions.device)
        hidden = (distance < 0) | ((distance >= scores.window) & bool(scores.window))
        weights = weights.float().masked_fill(hidden, -torch.inf).softmax(-1).to(query.dtype)
        out[rows] = torch.matmul(weights, values[slot, :, seen].repeat_interleave(group, 0)).transpose(0, 1)
