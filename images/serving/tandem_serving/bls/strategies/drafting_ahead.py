"""Few sequences, engines on devices of their own: those that are being verified are drafted ahead meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from tandem_serving.bls.batches import Batch, Group, S


class DraftingAhead:
    """A sequence that needs a draft gets it at once; one verification is in flight. `almost_drafted(key)`: whether it
    waits for drafts that are almost done."""

    def __init__(self, almost_drafted: Callable[[Hashable], bool]) -> None:
        self._almost_drafted = almost_drafted

    def micro_batches(self, sequences: int) -> int:
        """All are verified together."""
        return 1

    def start(self, group: Group[S]) -> list[Batch[S]]:
        """The batches that start now."""
        waits = not group.waiting["target"] or group.in_flight["target"] or self._almost_drafted(group.key)
        return group.take("draft") + ([] if waits else group.take("target"))
