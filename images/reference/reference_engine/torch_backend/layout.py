"""Where the rows of a pass go: one int32 array that the host fills and the device reads.

Passes are padded to a `Shape`, so that few shapes exist and each has a CUDA graph, captured before the first request:
a capture takes as long as dozens of passes. A tile is a few consecutive tokens of one sequence, which read the
sequence's keys and values together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reference_engine.backend import Segment

IntArray = npt.NDArray[np.int32]

# Few sizes, so that few graphs serve all passes; none between 384 and 512, whose products are slow on an H100.
_SIZES = (
    1,
    2,
    4,
    8,
    *range(16, 64, 8),
    *range(64, 128, 16),
    *range(128, 256, 32),
    256,
    320,
    384,
    *range(512, 1024, 128),
)
# Of passes with pieces of prompts.
_PROMPT_SIZES = (16, 32, 64, 128, 192, 256, 320, 384, *range(512, 1024, 128))
_PROMPT_STEP = 512  # between larger ones
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
        size = _tile_tokens(max(counts))
        total, wanted = sum(counts), sum(each.logits for each in segments)
        tiles = sum(-(-count // size) for count in counts)
        if size == TILE_TOKENS[-1] and any(len(each.tokens) > each.logits for each in segments):
            return cls.with_prompts(total, tiles, wanted)
        tokens = padded(total)
        return cls(tokens, padded(tiles), size, _wanted(tokens, wanted))

    @classmethod
    def with_prompts(cls, tokens: int, tiles: int, wanted: int) -> "Shape":
        """The shape of a pass with a piece of a prompt: mostly half as many tiles as tokens, whatever it needs."""
        size = next((size for size in _PROMPT_SIZES if size >= tokens), -(-tokens // _PROMPT_STEP) * _PROMPT_STEP)
        return cls(size, size // 2 if 2 * tiles <= size else size, TILE_TOKENS[-1], _wanted(size, wanted))

    def sizes(self) -> dict[str, int]:
        """Entries of each part of the array."""
        return dict(zip(_FIELDS, [self.tokens] * 3 + [self.tiles] * 2 + [self.wanted], strict=True))

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """Its fields, by which another process makes it again."""
        return self.tokens, self.tiles, self.tile_tokens, self.wanted

    @property
    def entries(self) -> int:
        """Entries of the array."""
        return sum(self.sizes().values())


def _tile_tokens(longest: int) -> int:
    return next((size for size in TILE_TOKENS if size >= longest), TILE_TOKENS[-1])


_ALL_WANTED = 320  # up to so many rows all yield logits: that costs little, and takes fewer shapes
_WANTED = (64, _ALL_WANTED)  # of more rows


def _wanted(tokens: int, wanted: int) -> int:
    return tokens if tokens <= _ALL_WANTED else next((count for count in _WANTED if count >= wanted), tokens)


def of_verification(max_rows: int, max_draft_len: int) -> list[Shape]:
    """The shapes of decoding up to so many sequences, each with up to so many draft tokens."""
    shapes = []
    for tiles in sorted({padded(count) for count in range(1, max_rows + 1)}):
        shapes.append(Shape(tiles, tiles, TILE_TOKENS[0], _wanted(tiles, tiles)))
        for tile in sorted({_tile_tokens(count) for count in range(2, max_draft_len + 2)}):
            most = tiles * min(tile, max_draft_len + 1)
            sizes = sorted({padded(count) for count in range(tiles, most + 1)})
            # Of a draft's first step, which may have several tokens of a sequence, the last alone are wanted.
            shapes += [
                Shape(rows, tiles, tile, _wanted(rows, wanted)) for rows in sizes for wanted in (*_WANTED, rows)
            ]
    return list(dict.fromkeys(shapes))


def of_prompts(max_num_tokens: int) -> list[Shape]:
    """Shapes of the passes that read pieces of prompts together with other sequences, up to so many tokens in all."""
    largest = most_rows(max_num_tokens)
    sizes = [size for size in (*_PROMPT_SIZES, *range(1024, largest + 1, _PROMPT_STEP)) if size <= largest]
    # Many short segments, which need more tiles, are few tokens.
    shapes = [Shape.with_prompts(size, size, size) for size in sizes if size <= _ALL_WANTED]
    shapes += [Shape.with_prompts(size, 1, wanted) for size in sizes for wanted in (*_WANTED, size)]
    return list(dict.fromkeys(shapes))


def of_passes(max_rows: int, max_draft_len: int, max_num_tokens: int) -> list[Shape]:
    """All of both that a pass of so many tokens can have."""
    shapes = of_verification(max_rows, max_draft_len) + of_prompts(max_num_tokens)
    return [each for each in dict.fromkeys(shapes) if each.tokens <= most_rows(max_num_tokens)]


def most_entries(tokens: int) -> int:
    """Entries of the largest shape of a pass of so many tokens."""
    return len(_FIELDS) * most_rows(tokens)


def most_rows(tokens: int) -> int:
    """Rows of the largest shape of a pass of so many tokens."""
    return max(padded(tokens), Shape.with_prompts(tokens, 1, 1).tokens)


def padded(count: int) -> int:
    """The next size that passes without prompts have."""
    return next((size for size in _SIZES if size >= count), -(-count // 256) * 256)


class Input:
    """The parts of an int32 array of a shape, for the host to fill."""

    def __init__(self, array: IntArray, shape: Shape, spare_slot: int) -> None:
        self.array = array
        self._shape = shape
        self._spare = spare_slot

    def fill(self, segments: Sequence[Segment]) -> None:
        """Write a pass; padding goes to the spare slot.

        Made of lists: mostly a pass has few rows, for which numpy's calls take several times as long.
        """
        parts: dict[str, list[int]] = {name: [] for name in _FIELDS}
        for each in segments:
            count, first = len(each.tokens), len(parts["ids"])
            end = first + count
            parts["ids"] += each.tokens.tolist()
            parts["positions"] += range(each.start, each.start + count)
            parts["slots"] += [each.slot] * count
            tiles = range(first, end, self._shape.tile_tokens)
            parts["tile_row"] += tiles
            parts["tile_count"] += [min(self._shape.tile_tokens, end - row) for row in tiles]
            parts["wanted"] += range(end - each.logits, end)
        values: list[int] = []
        for name, size in self._shape.sizes().items():
            padding = self._spare if name == "slots" else 0
            values += parts[name] + [padding] * (size - len(parts[name]))
        self.array[:] = values

    def copy(self, array: IntArray) -> None:
        """Write a pass that another of this shape was filled with."""
        self.array[:] = array
