"""A policy of tests: nothing is found out, so that what happens does not depend on how long calls take."""

from tandem_serving.bls.calls import Role
from tandem_serving.bls.draft_length.acceptance import AcceptanceEstimate


class Steady:
    """Always `length` tokens."""

    off = alone = together = False
    ALTERNATE = 10

    def __init__(self, length: int, separate_devices: bool) -> None:
        self._length = length
        self._separate = separate_devices
        self.server = AcceptanceEstimate(length)

    def estimate(self) -> AcceptanceEstimate:
        """A sequence's own acceptance, which starts as the server's."""
        return AcceptanceEstimate(self._length, self.server)

    def enter(self, estimate: AcceptanceEstimate, most: int) -> None:
        """Who runs does not matter."""

    def leave(self, estimate: AcceptanceEstimate) -> None:
        """Who runs does not matter."""

    def rounds_ended(self, rows: int, length: int) -> None:
        """Whose turn it is does not matter."""

    def think(self) -> None:
        """There is nothing to find out."""

    def length(self, estimate: AcceptanceEstimate) -> int:
        """The same for all."""
        return self._length

    def micro_batches(self, sequences: int) -> int:
        """Two from `ALTERNATE` sequences on, where the engines run side by side."""
        return 2 if self._separate and sequences >= self.ALTERNATE else 1

    def timed(
        self, role: Role, rows: float, length: int, seconds: float, prompt: int = 0, queued: bool = False
    ) -> None:
        """A fixed length learns nothing."""

    def timed_alone(self, rows: float, steps: float, seconds: float, together: bool) -> None:
        """A fixed length learns nothing."""

    def step(self, rows: int) -> float:
        """A fixed length makes no use of it."""
        return 0.0

    def ended(self, tokens: int, calls: int) -> None:
        """A fixed length learns nothing."""
