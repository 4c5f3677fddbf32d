"""A policy of tests: nothing is found out, so that what happens does not depend on how long calls take."""

from collections.abc import Hashable

from tandem_serving.bls.draft_length.acceptance import Acceptance


class Steady:
    """Always `length` tokens."""

    off = False
    ALTERNATE = 10

    def __init__(self, length: int, separate_devices: bool) -> None:
        self._length = length
        self._separate = separate_devices
        self.acceptance = Acceptance(length)

    def enter(self, sequence: Hashable, most: int) -> None:
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
