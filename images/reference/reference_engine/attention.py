"""Causal attention over the KV cache, in products of one shape.

A tile is `tile_tokens` queries of one sequence with all query heads of a kv head; a unit is a tile against
one block of 64 keys. Units are computed alike wherever they stand; the softmax's sums over a tile's blocks
run in the order of the blocks, where blocks beyond a query add exact zeros.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reference_engine.config import ModelConfig
from reference_engine.kv_cache import BLOCK, KVCache, blocks

FloatArray = npt.NDArray[np.float32]
IndexArray = npt.NDArray[np.intp]

TILE_ROWS = 8


@dataclass(frozen=True)
class Span:
    """`count` consecutive tokens of the sequence in `slot`, the first at position `start`."""

    slot: int
    start: int
    count: int


@dataclass(frozen=True)
class _Part:
    """A span's tiles and units in the pass's arrays."""

    slot: int
    blocks: int
    tiles: slice
    units: slice


class Plan:
    """Where the rows of one forward pass go: the same for all layers."""

    def __init__(self, spans: Sequence[Span], config: ModelConfig) -> None:
        group = config.heads_per_kv
        self.tile_tokens = max(1, TILE_ROWS // group)
        self.parts: list[_Part] = []
        tile = unit = 0
        for span in spans:
            count, depth = -(-span.count // self.tile_tokens), blocks(span.start + span.count)
            units = count * depth
            self.parts.append(_Part(span.slot, depth, slice(tile, tile + count), slice(unit, unit + units)))
            tile, unit = tile + count, unit + units
        self.tiles, self.units = tile, unit
        self._index_rows(spans)
        self._index_units()
        self.mask = _mask(self, spans, group)

    def _index_rows(self, spans: Sequence[Span]) -> None:
        """Of each row: slot, block and offset in the cache; tile and place in the tile."""
        offsets = [np.arange(span.count) for span in spans]
        positions = np.concatenate([span.start + each for span, each in zip(spans, offsets, strict=True)])
        counts = [span.count for span in spans]
        within = np.concatenate(offsets)
        self.positions: IndexArray = positions
        self.slot: IndexArray = np.repeat([span.slot for span in spans], counts)
        self.block: IndexArray = positions // BLOCK
        self.offset: IndexArray = positions % BLOCK
        self.place: IndexArray = within % self.tile_tokens
        self.tile: IndexArray = within // self.tile_tokens + np.repeat([p.tiles.start for p in self.parts], counts)

    def _index_units(self) -> None:
        """Of each tile its first unit; of each unit its tile."""
        depths = np.repeat([p.blocks for p in self.parts], [p.tiles.stop - p.tiles.start for p in self.parts])
        self.first_unit: IndexArray = np.cumsum(depths) - depths
        self.tile_of_unit: IndexArray = np.repeat(np.arange(self.tiles), depths)


def _mask(plan: Plan, spans: Sequence[Span], group: int) -> FloatArray:
    """[units, 1, tile_tokens * group, 64]: 0 where a query sees a key, else -inf."""
    mask = np.empty((plan.units, 1, plan.tile_tokens * group, BLOCK), np.float32)
    for span, part in zip(spans, plan.parts, strict=True):
        queries = span.start + np.arange((part.tiles.stop - part.tiles.start) * plan.tile_tokens)
        keys = np.arange(part.blocks * BLOCK).reshape(1, part.blocks, 1, BLOCK)
        hidden = keys > queries.reshape(-1, 1, plan.tile_tokens, 1)
        seen = np.where(hidden, np.float32(-np.inf), np.float32(0))
        mask[part.units, 0] = seen.repeat(group, axis=2).reshape(-1, plan.tile_tokens * group, BLOCK)
    return mask


class Attention:
    """Attention of all layers; keeps scratch memory between passes. Not thread-safe."""

    def __init__(self, config: ModelConfig, cache: KVCache) -> None:
        self._config = config
        self._cache = cache
        self._scratch = np.zeros(0, np.float32)

    def begin(self, spans: Sequence[Span]) -> Plan:
        """Plan a pass over these spans: one a sequence, their slots all different."""
        plan = Plan(spans, self._config)
        self._allocate(plan)
        return plan

    def _allocate(self, plan: Plan) -> None:
        """Scratch arrays of the pass: queries, scores, products by unit and by tile."""
        config = self._config
        rows, kv, width = plan.tile_tokens * config.heads_per_kv, config.num_kv_heads, config.head_dim
        shapes = [
            (plan.tiles, kv, rows, width),
            (plan.units, kv, rows, BLOCK),
            (plan.units, kv, rows, width + 1),
            (plan.tiles, kv, rows, width + 1),
        ]
        sizes = [int(np.prod(shape)) for shape in shapes]
        if sum(sizes) > self._scratch.size:
            self._scratch = np.zeros(2 * sum(sizes), np.float32)
        ends = np.cumsum(sizes)
        arrays = [
            self._scratch[end - size : end].reshape(shape)
            for size, end, shape in zip(sizes, ends, shapes, strict=True)
        ]
        self._queries, self._scores, self._partial, self._summed = arrays

    def attend(self, plan: Plan, layer: int, qkv: FloatArray, out: FloatArray) -> None:
        """Store the rows' keys and values, attend, write [rows, heads * head_dim] to `out`.

        `qkv` [rows, heads + 2 * kv heads, head_dim] is rotated and scaled already.
        """
        config = self._config
        heads, kv, group = config.num_heads, config.num_kv_heads, config.heads_per_kv
        keys, values = self._cache.keys[layer], self._cache.values[layer]
        keys[plan.slot, plan.block, :, :, plan.offset] = qkv[:, heads : heads + kv]
        values[plan.slot, plan.block, :, plan.offset] = qkv[:, heads + kv :]
        count = len(qkv)
        places = (plan.tiles, kv, plan.tile_tokens, group, -1)
        self._queries.reshape(places)[plan.tile, :, plan.place] = qkv[:, :heads].reshape(count, kv, group, -1)
        for part in plan.parts:
            self._score(part, keys)
        self._weigh(plan)
        for part in plan.parts:
            self._sum(part, values)
        result = self._summed[..., :-1]
        result /= self._summed[..., -1:]
        out.reshape(count, kv, group, -1)[...] = self._summed.reshape(places)[plan.tile, :, plan.place, :, :-1]

    def _score(self, part: _Part, keys: FloatArray) -> None:
        """Products of the part's queries with its blocks of keys."""
        scores = self._scores[part.units]
        scores = scores.reshape(-1, part.blocks, *scores.shape[1:])
        np.matmul(self._queries[part.tiles, None], keys[part.slot, : part.blocks], out=scores)

    def _weigh(self, plan: Plan) -> None:
        """Scores to weights, exp(score - the tile's maximum), and their sums by unit."""
        scores = self._scores
        scores += plan.mask
        top = np.maximum.reduce(scores, axis=-1)
        if plan.units > plan.tiles:
            top = np.maximum.reduceat(top, plan.first_unit, axis=0)[plan.tile_of_unit]
        scores -= top[..., None]
        np.exp(scores, out=scores)
        np.add.reduce(scores, axis=-1, out=self._partial[..., -1])

    def _sum(self, part: _Part, values: FloatArray) -> None:
        """Weighted sums of the part's values, block by block, then over the blocks in order."""
        weights, partial = self._scores[part.units], self._partial[part.units]
        weights = weights.reshape(-1, part.blocks, *weights.shape[1:])
        partial = partial.reshape(-1, part.blocks, *partial.shape[1:])
        np.matmul(weights, values[part.slot, : part.blocks], out=partial[..., :-1])
        np.add.reduce(partial, axis=1, out=self._summed[part.tiles])
