"""A policy of tests: nothing is found out, so that what happens does not depend on how long calls take."""

from collections.abc import Hashable

from tandem_serving.bls.draft_length.policy import AdaptiveDraftLength


class Steady(AdaptiveDraftLength):
    """Always `length` tokens."""

    ALTERNATE = 10

    def __init__(self, length: int, separate_devices: bool) -> None:
        super().__init__(length, length, separate_devices)
        self._length = length
        self._separate = separate_devices
        self.turned_off = False

    @property
    def off(self) -> bool:
        """As a test says."""
        return self.turned_off

    @property
    def probes(self) -> bool:
        """Nothing is measured."""
        return False

    def enter(self, sequence: Hashable, most: int, fixed: bool = False) -> None:
        """Who runs does not matter."""

    def leave(self, sequence: Hashable) -> None:
        """Who runs does not matter."""

    def rounds_ended(self, rows: int, length: int) -> None:
        """What rounds take does not matter."""
        self.acceptance.update(half_life=128)

    def length(self, sequence: Hashable) -> int:
        """The same for all."""
        return self._length

    def micro_batches(self, sequences: int) -> int:
        """Two from `ALTERNATE` sequences on, where the engines run side by side."""
        return 2 if self._separate and sequences >= self.ALTERNATE else 1
