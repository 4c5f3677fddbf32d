"""Where the rows of a pass go: one int32 array that the host fills and the device reads.

Passes are padded to a `Shape`, so that few shapes exist and each has a CUDA graph. A tile is a few consecutive
tokens of one sequence, which read the sequence's keys and values together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reference_engine.backend import Segment

IntArray = npt.NDArray[np.int32]

TILE_TOKENS = (1, 8, 16)  # a decoded token, a verification, a piece of a prompt
_FIELDS = ("ids", "positions", "slots", "tile_row", "tile_count", "wanted")


@dataclass(frozen=True)
class Shape:
    """`tokens` rows in `tiles` tiles of at most `tile_tokens`; `wanted` rows yield logits."""

    tokens: int
    tiles: int
    tile_tokens: int
    wanted: int

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> "Shape":
        """The smallest shape that holds the segments."""
        counts = [len(each.tokens) for each in segments]
        size = next((size for size in TILE_TOKENS if size >= max(counts)), TILE_TOKENS[-1])
        tokens, wanted = padded(sum(counts)), sum(each.logits for each in segments)
        tiles = padded(sum(-(-count // size) for count in counts))
        # Few rows cost the same with all their logits, so that they need no shapes of their own.
        return cls(tokens, tiles, size, tokens if tokens <= _SMALL else min(tokens, max(_SMALL, padded(wanted))))

    def sizes(self) -> dict[str, int]:
        """Entries of each part of the array."""
        return dict(zip(_FIELDS, [self.tokens] * 3 + [self.tiles] * 2 + [self.wanted], strict=True))


_SMALL = 64


def padded(count: int) -> int:
    """The next size: powers of two, and from 16 on the quarters between them that are whole eights."""
    if count <= 8:
        return 1 << max(0, count - 1).bit_length()
    step = max(8, (1 << (count - 1).bit_length()) // 8)
    return -(-count // step) * step


def fill(out: IntArray, shape: Shape, segments: Sequence[Segment], spare_slot: int) -> None:
    """Write the pass into `out` int32[sum of shape.sizes()]; padding goes to the spare slot."""
    ends = np.cumsum(list(shape.sizes().values()))
    ids, positions, slots, tile_row, tile_count, wanted = np.split(out, ends[:-1])
    ids[:], positions[:], slots[:], tile_row[:], tile_count[:], wanted[:] = 0, 0, spare_slot, 0, 0, 0
    row = tile = logit = 0
    for each in segments:
        count = len(each.tokens)
        rows = slice(row, row + count)
        ids[rows] = each.tokens
        positions[rows] = np.arange(each.start, each.start + count)
        slots[rows] = each.slot
        for first in range(0, count, shape.tile_tokens):
            tile_row[tile], tile_count[tile] = row + first, min(shape.tile_tokens, count - first)
            tile += 1
        row += count
        wanted[logit : logit + each.logits] = np.arange(row - each.logits, row)
        logit += each.logits
