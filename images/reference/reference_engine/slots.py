"""Which slot of the KV cache a sequence gets, so that what is computed already is computed once.

A slot keeps its tokens after its sequence has ended. A new sequence continues the slot with the longest
common prefix; where that slot is busy, or would lose more than a block of another text, the prefix is copied
into the slot that was used longest ago. Mostly a text is one that the engine had a moment ago, and a few tokens more:
a slot's last blocks lead to it at once, and where it has all of the text but a block no other is looked for.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reference_engine.kv_cache import BLOCK

IntArray = npt.NDArray[np.int32]
Block = tuple[int, bytes]
"""Where a block of tokens ends in its text, and the block."""


@dataclass(frozen=True)
class Lease:
    """A slot for a sequence, whose first `reused` tokens stand in slot `source` (copy them if another)."""

    slot: int
    reused: int
    source: int


class Slots:
    """Tokens and owners of the slots. Pure bookkeeping, moves no keys or values."""

    def __init__(self, count: int, max_seq_len: int) -> None:
        # A column more than any sequence has, never equal to a token, ends every comparison.
        self._tokens: IntArray = np.full((count, max_seq_len + 1), -1, np.int32)
        self._lengths = [0] * count
        self._free = dict.fromkeys(range(count))  # in the order of their last use
        self._count = count
        self._by_block: dict[Block, int] = {}
        self._blocks: list[tuple[Block, ...]] = [()] * count

    @property
    def busy(self) -> int:
        """Slots that a sequence holds."""
        return self._count - len(self._free)

    def acquire(self, tokens: IntArray, limit: int) -> Lease | None:
        """A slot for a sequence that starts with `tokens`; None: all are busy.

        At most `limit` tokens are reused.
        """
        if not self._free:
            return None
        lease = self._continued(tokens, limit) or self._longest(tokens, limit)
        slot, reused = lease.slot, lease.reused
        del self._free[slot]
        if lease.source != slot:
            self._tokens[slot, :reused] = tokens[:reused]
        self._cut(slot, reused)
        return lease

    def record(self, slot: int, tokens: IntArray) -> None:
        """Say which tokens' keys and values the slot holds, those that it was acquired with among them."""
        known, length = self._lengths[slot], len(tokens)
        self._tokens[slot, known:length] = tokens[known:]
        self._cut(slot, length)
        blocks = self._blocks[slot]
        if not blocks or blocks[0][0] > known or length - blocks[0][0] >= BLOCK:
            self._lead(slot, tokens)

    def _lead(self, slot: int, tokens: IntArray) -> None:
        """Let the text's last blocks lead to the slot."""
        for block in self._blocks[slot]:
            if self._by_block.get(block) == slot:
                del self._by_block[block]
        self._blocks[slot] = _last_blocks(tokens)
        self._by_block.update(dict.fromkeys(self._blocks[slot], slot))

    def release(self, slot: int) -> None:
        """The sequence has ended; its tokens stay for later ones."""
        self._free[slot] = None

    def _cut(self, slot: int, length: int) -> None:
        """The slot holds so many tokens, and none behind them."""
        if length < self._lengths[slot]:
            self._tokens[slot, length : self._lengths[slot]] = -1
        self._lengths[slot] = length

    def _continued(self, tokens: IntArray, limit: int) -> Lease | None:
        """The free slot that has all but a block, found by the text's last blocks."""
        for block in _last_blocks(tokens):
            slot = self._by_block.get(block, -1)
            if slot in self._free:
                reused = min(_common_of(self._tokens[slot], tokens), limit)
                if limit - reused < BLOCK and self._lengths[slot] - reused < BLOCK:
                    return Lease(slot, reused, slot)
        return None

    def _longest(self, tokens: IntArray, limit: int) -> Lease:
        """Of all slots' prefixes the longest, where it can stay or else in the slot used longest ago."""
        prefixes = np.minimum(self._prefixes(tokens), limit)
        best = int(prefixes.argmax())
        reused = int(prefixes[best])
        if best in self._free and reused and self._lengths[best] - reused < BLOCK:
            return Lease(best, reused, best)
        slot = next(iter(self._free))
        return Lease(slot, reused, slot if prefixes[slot] == reused else best)

    def _prefixes(self, tokens: IntArray) -> npt.NDArray[np.intp]:
        """Of each slot the length of its common prefix with `tokens`."""
        lengths = _common(self._tokens[:, :BLOCK], tokens[:BLOCK])
        if len(tokens) > BLOCK:  # mostly few slots begin alike
            alike = np.flatnonzero(lengths == BLOCK)
            lengths[alike] = _common(self._tokens[alike], tokens)
        return lengths


def _last_blocks(tokens: IntArray) -> tuple[Block, ...]:
    """The last full block and the one before it: a text that goes on, or loses a draft's tail, keeps one of them."""
    ends = range(len(tokens) // BLOCK * BLOCK, 0, -BLOCK)[:2]
    return tuple([(end, tokens[end - BLOCK : end].tobytes()) for end in ends])


def _common_of(row: IntArray, tokens: IntArray) -> int:
    """The length of the common prefix of a row, longer than the tokens, with them."""
    same = row[: len(tokens)] == tokens
    first = int(same.argmin())
    return len(tokens) if same[first] else first


def _common(rows: IntArray, tokens: IntArray) -> npt.NDArray[np.intp]:
    """Of each row [n, at least the tokens] the length of its common prefix with `tokens`."""
    same = rows[:, : len(tokens)] == tokens
    lengths: npt.NDArray[np.intp] = np.where(same.all(axis=1), len(tokens), same.argmin(axis=1))
    return lengths
