"""Triton kernels: keys and values into their slots, and attention that reads what a slot holds and no more.

Attention is split over the keys where tiles are few, so that all processors read memory (flash decoding); a
second kernel then joins the splits. Each split's share follows the sequence's length on the device, so that a
CUDA graph serves every length.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from reference_engine.torch_backend.attention import Pass, Scores

BLOCK = 64  # keys at a time
_MOST_SPLITS = 32
_LOG2_E = 1.4426950408889634


def store(key: Tensor, value: Tensor, keys: Tensor, values: Tensor, where: Pass) -> None:
    """Rows' keys and values [kv heads, rows, head_dim] into [slots, kv heads, positions, head_dim]."""
    heads, rows, width = key.shape
    _store[(rows,)](
        key, value, keys, values, where.slots, where.positions,
        *key.stride(), *value.stride(), keys.stride(0), keys.stride(1), heads, width,
        HEADS=triton.next_power_of_2(heads), WIDTH=triton.next_power_of_2(width),
    )  # fmt: skip


def attend(query: Tensor, keys: Tensor, values: Tensor, where: Pass, scores: Scores, out: Tensor) -> None:
    """Queries [heads, rows, head_dim] over the slots of their tiles, into `out` [rows, heads, head_dim]."""
    heads, _, width = query.shape
    kv, tiles = keys.shape[1], len(where.tile_row)
    group, padded = heads // kv, triton.next_power_of_2(width)
    rows = max(16, triton.next_power_of_2(where.tile_tokens * group))
    splits = splits_for(tiles * kv, torch.cuda.get_device_properties(query.device).multi_processor_count)
    partial = query.new_empty((tiles, kv, splits, rows, padded) if splits > 1 else (1,), dtype=torch.float32)
    sums = query.new_empty((2, tiles, kv, splits, rows) if splits > 1 else (1,), dtype=torch.float32)
    _attend[(tiles, kv, splits)](
        query, keys, values, out, partial, sums,
        where.slots, where.positions, where.tile_row, where.tile_count,
        *query.stride(), keys.stride(0), keys.stride(1), out.stride(0), out.stride(1),
        scores.scaling * _LOG2_E, scores.softcap, scores.window, width, group, tiles * kv * splits * rows,
        ROWS=rows, WIDTH=padded, SPLITS=splits, BLOCK=BLOCK, CAPPED=scores.softcap > 0, WINDOWED=scores.window > 0,
        num_warps=4, num_stages=3,
    )  # fmt: skip
    if splits > 1:
        _join[(tiles, kv, where.tile_tokens * group)](
            partial, sums, out, where.tile_row, where.tile_count, out.stride(0), out.stride(1),
            width, group, tiles * kv * splits * rows, ROWS=rows, WIDTH=padded, SPLITS=splits, num_warps=4,
        )  # fmt: skip


def splits_for(programs: int, processors: int) -> int:
    """Splits that give every processor about two programs."""
    most = max(1, 2 * processors // programs)
    return min(_MOST_SPLITS, 1 << (most.bit_length() - 1))


@triton.jit
def _store(
    key, value, keys, values, slots, positions,
    key_head, key_row, key_width, value_head, value_row, value_width, cache_slot, cache_head, heads, width,
    HEADS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    head, at = tl.arange(0, HEADS)[:, None], tl.arange(0, WIDTH)[None, :]
    inside = (head < heads) & (at < width)
    to = tl.load(slots + row).to(tl.int64) * cache_slot + head * cache_head + tl.load(positions + row) * width + at
    tl.store(keys + to, tl.load(key + head * key_head + row * key_row + at * key_width, inside), inside)
    tl.store(values + to, tl.load(value + head * value_head + row * value_row + at * value_width, inside), inside)


@triton.jit
def _attend(
    query, keys, values, out, partial, sums, slots, positions, tile_row, tile_count,
    query_head, query_row, query_width, cache_slot, cache_head, out_row, out_head,
    scale, softcap, window, width, group, entries,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, SPLITS: tl.constexpr, BLOCK: tl.constexpr,
    CAPPED: tl.constexpr, WINDOWED: tl.constexpr,
):  # fmt: skip
    tile, kv, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    count = tl.load(tile_count + tile)
    if count == 0:
        return
    first = tl.load(tile_row + tile)
    start = tl.load(positions + first)
    base = tl.load(slots + first).to(tl.int64) * cache_slot + kv * cache_head
    row = tl.arange(0, ROWS)
    token, head = row // group, kv * group + row % group
    real = token < count
    at = tl.arange(0, WIDTH)
    inside = at < width
    q = tl.load(
        query + head[:, None] * query_head + (first + token)[:, None] * query_row + at[None, :] * query_width,
        real[:, None] & inside[None, :], 0.0,
    )  # fmt: skip
    low, end = 0, start + count
    if WINDOWED:
        low = tl.maximum(0, start - window + 1) // BLOCK * BLOCK
    share = tl.cdiv(tl.cdiv(end - low, SPLITS), BLOCK) * BLOCK
    low = low + split * share
    high = tl.minimum(low + share, end)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    summed = tl.zeros([ROWS, WIDTH], tl.float32)
    for block in range(low, high, BLOCK):
        index = block + tl.arange(0, BLOCK)
        k = tl.load(
            keys + base + index[None, :] * width + at[:, None], (index < high)[None, :] & inside[:, None], 0.0
        )
        v = tl.load(
            values + base + index[:, None] * width + at[None, :], (index < high)[:, None] & inside[None, :], 0.0
        )
        score = tl.dot(q, k) * scale
        if CAPPED:  # softcap and the scale are in units of log2 e
            score = softcap * 1.4426950408889634 * (1 - 2 / (tl.exp2(2 * score / softcap) + 1))
        distance = (start + token)[:, None] - index[None, :]
        visible = (distance >= 0) & (index < high)[None, :]
        if WINDOWED:
            visible = visible & (distance < window)
        score = tl.where(visible, score, float("-inf"))
        new_top = tl.maximum(top, tl.max(score, 1))
        safe = tl.where(new_top == float("-inf"), 0.0, new_top)
        fade = tl.exp2(top - safe)
        weight = tl.exp2(score - safe[:, None])
        total = total * fade + tl.sum(weight, 1)
        summed = summed * fade[:, None] + tl.dot(weight.to(v.dtype), v)
        top = new_top
    if SPLITS == 1:
        tl.store(
            out + (first + token)[:, None] * out_row + head[:, None] * out_head + at[None, :],
            (summed / total[:, None]).to(out.dtype.element_ty), real[:, None] & inside[None, :],
        )  # fmt: skip
    else:
        entry = ((tile * tl.num_programs(1) + kv) * SPLITS + split) * ROWS + row
        tl.store(partial + entry[:, None] * WIDTH + at[None, :], summed, real[:, None])
        tl.store(sums + entry, top, real)
        tl.store(sums + entries + entry, total, real)


@triton.jit
def _join(
    partial, sums, out, tile_row, tile_count, out_row, out_head, width, group, entries,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    tile, kv, row = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    token = row // group
    if token >= tl.load(tile_count + tile):
        return
    split = tl.arange(0, SPLITS)
    entry = ((tile * tl.num_programs(1) + kv) * SPLITS + split) * ROWS + row
    top = tl.load(sums + entry)
    share = tl.exp2(top - tl.max(top, 0))
    total = tl.sum(tl.load(sums + entries + entry) * share, 0)
    at = tl.arange(0, WIDTH)
    summed = tl.sum(tl.load(partial + entry[:, None] * WIDTH + at[None, :]) * share[:, None], 0)
    place = out + (tl.load(tile_row + tile) + token) * out_row + (kv * group + row % group) * out_head + at
    tl.store(place, (summed / total).to(out.dtype.element_ty), at < width)
