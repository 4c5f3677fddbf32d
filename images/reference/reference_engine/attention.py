"""Causal attention over the KV cache, in products of one shape.

A tile is `tile_tokens` queries of one sequence with all query heads of a kv head (8 rows); a unit is a tile against
one block of 64 keys. Units are computed alike wherever they stand; the softmax's sums over a tile's blocks
run in the order of the blocks, where blocks beyond a query add exact zeros.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

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
    """A span's share of the pass's arrays; T tiles of M rows, N blocks, G kv heads."""

    queries: FloatArray  # [T, 1, G, M, head_dim]
    scores: FloatArray  # [T, N, G, M, 64], later the weights
    folded: FloatArray  # [T, G, M, 64]: scores' maximum, then weights' sum, over the blocks
    partial: FloatArray  # [T, N, G, M, head_dim]: weighted values of a block
    summed: FloatArray  # [T, G, M, head_dim]
    keys: FloatArray  # [layers, N, G, head_dim, 64]
    values: FloatArray  # [layers, N, G, 64, head_dim]


@dataclass(frozen=True)
class _Rows:
    """Of each row of the pass: position; slot, block and offset in the cache; tile and place in the tile."""

    positions: IndexArray
    slot: IndexArray
    block: IndexArray
    offset: IndexArray
    tile: IndexArray
    place: IndexArray


class Plan:
    """Where the rows of one forward pass go: the same for all layers."""

    def __init__(self, spans: Sequence[Span], tile_tokens: int) -> None:
        self.spans = spans
        self.tile_tokens = tile_tokens
        self.tile_counts = [-(-span.count // tile_tokens) for span in spans]
        self.depths = [blocks(span.start + span.count) for span in spans]
        self.tiles = sum(self.tile_counts)
        self.units = sum(count * depth for count, depth in zip(self.tile_counts, self.depths, strict=True))
        self.rows = self._rows()

    def _rows(self) -> _Rows:
        facts = np.array([(span.slot, span.start, span.count) for span in self.spans], np.intp)
        counts = facts[:, 2]
        owner = np.repeat(np.arange(len(facts)), counts)
        within = np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]
        positions = facts[owner, 1] + within
        tile_counts = np.array(self.tile_counts)
        first_tile = np.cumsum(tile_counts) - tile_counts
        return _Rows(
            positions=positions,
            slot=facts[owner, 0],
            block=positions // BLOCK,
            offset=positions % BLOCK,
            tile=first_tile[owner] + within // self.tile_tokens,
            place=within % self.tile_tokens,
        )

    def tile_of_unit(self) -> IndexArray:
        """Of each unit its tile."""
        return np.repeat(np.arange(self.tiles), np.repeat(self.depths, self.tile_counts))


def _padded_group(heads: int) -> int:
    """Rows of a tile for the query heads of a kv head: tiles have 8 rows or a multiple.

    BLAS computes rows beyond a multiple of 8 or so with other kernels, whose bits differ.
    """
    return next((size for size in (1, 2, 4, 8) if size >= heads), -(-heads // TILE_ROWS) * TILE_ROWS)


class Attention:
    """Attention of all layers; keeps scratch memory between passes. Not thread-safe."""

    def __init__(self, config: ModelConfig, cache: KVCache) -> None:
        self._config = config
        self._cache = cache
        self._group = _padded_group(config.heads_per_kv)
        self._tile_tokens = max(1, TILE_ROWS // self._group)
        self._scratch = np.zeros(0, np.float32)
        # Apart from the scratch memory: what is left over in a tile's unused places stays finite.
        self._queries = np.zeros((0, 0, 0, 0), np.float32)
        # 0 up to the middle, then -inf: a window of it is a query's mask.
        self._reach = cache.keys.shape[2] * BLOCK + self._tile_tokens
        self._visible = np.zeros(2 * self._reach, np.float32)
        self._visible[self._reach + 1 :] = -np.inf

    def begin(self, spans: Sequence[Span]) -> Plan:
        """Plan a pass over these spans: one a sequence, their slots all different."""
        plan = Plan(spans, self._tile_tokens)
        self._allocate(plan)
        self._parts = list(self._split(plan))
        self._tile_of_unit = plan.tile_of_unit() if plan.units > plan.tiles else None
        return plan

    def _allocate(self, plan: Plan) -> None:
        """Scratch arrays of the pass."""
        rows, kv, width = self._tile_tokens * self._group, *self._cache.keys.shape[3:5]
        if plan.tiles > len(self._queries):
            self._queries = np.zeros((2 * plan.tiles, kv, rows, width), np.float32)
        shapes = [
            (plan.units, kv, rows, BLOCK),
            (plan.tiles, kv, rows, BLOCK),
            (plan.units, kv, rows, width),
            (plan.tiles, kv, rows, width),
            (plan.units, 1, rows, BLOCK),
        ]
        ends = list(accumulate(map(math.prod, shapes)))
        if ends[-1] > self._scratch.size:
            self._scratch = np.zeros(2 * ends[-1], np.float32)
        arrays = [self._scratch[i:j].reshape(each) for i, j, each in zip([0, *ends], ends, shapes, strict=False)]
        self._scores, self._folded, self._partial, self._summed, self._mask = arrays

    def _split(self, plan: Plan) -> Iterator[_Part]:
        """The parts of the spans; fills the mask."""
        tile = unit = 0
        for span, count, depth in zip(plan.spans, plan.tile_counts, plan.depths, strict=True):
            tiles, units = slice(tile, tile + count), slice(unit, unit + count * depth)
            tile, unit = tiles.stop, units.stop
            by_block = (count, depth, *self._scores.shape[1:3], -1)
            self._fill_mask(self._mask[units], span.start, (count, depth))
            yield _Part(
                queries=self._queries[tiles, None],
                scores=self._scores[units].reshape(by_block),
                folded=self._folded[tiles],
                partial=self._partial[units].reshape(by_block),
                summed=self._summed[tiles],
                keys=self._cache.keys[:, span.slot, :depth],
                values=self._cache.values[:, span.slot, :depth],
            )

    def _fill_mask(self, mask: FloatArray, start: int, shape: tuple[int, int]) -> None:
        """0 where a query sees a key, else -inf: a key at j is seen from a position p >= j."""
        count, depth = shape
        places, size = self._tile_tokens, self._visible.itemsize
        shape5 = (count, depth, places, self._group, BLOCK)
        strides = (-places * size, BLOCK * size, -size, 0, size)
        first = (self._reach - start) * size
        mask.reshape(shape5)[...] = np.ndarray(shape5, np.float32, self._visible.data, first, strides)

    def attend(self, plan: Plan, layer: int, qkv: FloatArray, out: FloatArray) -> None:
        """Store the rows' keys and values, attend, write [rows, heads * head_dim] to `out`.

        `qkv` [rows, heads + 2 * kv heads, head_dim] is rotated and scaled already.
        """
        rows, config = plan.rows, self._config
        heads, kv, group = config.num_heads, config.num_kv_heads, config.heads_per_kv
        self._cache.keys[layer][rows.slot, rows.block, :, :, rows.offset] = qkv[:, heads : heads + kv]
        self._cache.values[layer][rows.slot, rows.block, :, rows.offset] = qkv[:, heads + kv :]
        by_place = (plan.tiles, kv, self._tile_tokens, self._group, config.head_dim)
        by_group = (len(qkv), kv, group, config.head_dim)
        self._queries[: plan.tiles].reshape(by_place)[rows.tile, :, rows.place, :group] = qkv[:, :heads].reshape(
            by_group
        )
        self._weigh(layer)
        self._sum(layer)
        out.reshape(by_group)[...] = self._summed.reshape(by_place)[rows.tile, :, rows.place, :group]

    def _weigh(self, layer: int) -> None:
        """Weights of the keys, exp(score - the row's maximum), 0 where masked."""
        scores = self._scores
        for part in self._parts:
            np.matmul(part.queries, part.keys[layer], out=part.scores)
        scores += self._mask
        for part in self._parts:
            np.maximum.reduce(part.scores, axis=1, out=part.folded)
        top = np.maximum.reduce(self._folded, axis=-1)
        scores -= (top if self._tile_of_unit is None else top[self._tile_of_unit])[..., None]
        np.exp(scores, out=scores)

    def _sum(self, layer: int) -> None:
        """Weighted means of the values: block by block, then over the blocks in order."""
        for part in self._parts:
            np.add.reduce(part.scores, axis=1, out=part.folded)
            np.matmul(part.scores, part.values[layer], out=part.partial)
            np.add.reduce(part.partial, axis=1, out=part.summed)
        total = np.add.reduce(self._folded, axis=-1)
        self._summed /= total[..., None]
