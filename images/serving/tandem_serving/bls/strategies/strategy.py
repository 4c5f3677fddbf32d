"""What a strategy is."""

from __future__ import annotations

from typing import Protocol

from tandem_serving.bls.batches import Batch, Group, S


class Strategy(Protocol):
    """What starts next of a group. What an answer leads to is in its batches: whether they make way."""

    def micro_batches(self, sequences: int) -> int:
        """Batches into which it divides so many sequences."""
        ...

    def start(self, group: Group[S]) -> list[Batch[S]]:
        """The batches that start now, taken from what waits."""
        ...
