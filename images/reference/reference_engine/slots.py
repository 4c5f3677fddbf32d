"""Which slot of the KV cache a sequence gets, so that what is computed already is computed once.

A slot keeps its tokens after its sequence has ended. A new sequence continues the slot with the longest
common prefix; where that slot is busy, or would lose more than a block of another text, the prefix is copied
into the slot that was used longest ago.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reference_engine.kv_cache import BLOCK

IntArray = npt.NDArray[np.int32]


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
        self._lengths = np.zeros(count, np.intp)
        self._used = np.zeros(count, np.int64)
        self._busy = np.zeros(count, np.bool_)
        self._clock = 0

    @property
    def busy(self) -> int:
        """Slots that a sequence holds."""
        return int(self._busy.sum())

    def acquire(self, tokens: IntArray, limit: int) -> Lease | None:
        """A slot for a sequence that starts with `tokens`; None: all are busy.

        At most `limit` tokens are reused.
        """
        free = np.flatnonzero(~self._busy)
        if not len(free):
            return None
        prefixes = np.minimum(self._prefixes(tokens), limit)
        best = int(prefixes.argmax())
        slot = self._place(best, prefixes, free)
        reused = max(int(prefixes[slot]), int(prefixes[best]))
        source = slot if prefixes[slot] == reused else best
        self._busy[slot] = True
        self._lengths[slot] = reused
        self._tokens[slot, :reused] = tokens[:reused]
        self._tokens[slot, reused:] = -1
        return Lease(slot, reused, source)

    def record(self, slot: int, tokens: IntArray) -> None:
        """Say which tokens' keys and values the slot holds."""
        self._tokens[slot, : len(tokens)] = tokens
        self._tokens[slot, len(tokens) :] = -1
        self._lengths[slot] = len(tokens)

    def release(self, slot: int) -> None:
        """The sequence has ended; its tokens stay for later ones."""
        self._clock += 1
        self._used[slot] = self._clock
        self._busy[slot] = False

    def _prefixes(self, tokens: IntArray) -> npt.NDArray[np.intp]:
        """Of each slot the length of its common prefix with `tokens`."""
        lengths = _common(self._tokens[:, :BLOCK], tokens[:BLOCK])
        if len(tokens) > BLOCK:  # mostly few slots begin alike
            alike = np.flatnonzero(lengths == BLOCK)
            lengths[alike] = _common(self._tokens[alike], tokens)
        return lengths

    def _place(self, best: int, prefixes: npt.NDArray[np.intp], free: npt.NDArray[np.intp]) -> int:
        """The slot to use: the best one where nothing much is lost, else the one used longest ago."""
        lost = self._lengths[best] - prefixes[best]
        if not self._busy[best] and prefixes[best] and lost < BLOCK:
            return best
        return int(free[self._used[free].argmin()])


def _common(rows: IntArray, tokens: IntArray) -> npt.NDArray[np.intp]:
    """Of each row [n, at least the tokens] the length of its common prefix with `tokens`."""
    same = rows[:, : len(tokens)] == tokens
    lengths: npt.NDArray[np.intp] = np.where(same.all(axis=1), len(tokens), same.argmin(axis=1))
    return lengths
