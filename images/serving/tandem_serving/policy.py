"""The policy of speculation: how many tokens to draft, and how many waves are in flight.

`Fixed` keeps to what the service and the request say. The protocol is what the runner asks and tells;
it calls under its lock, so policies need none.
"""

from __future__ import annotations

from typing import Protocol

from tandem_serving.loop import Role


class Estimate(Protocol):
    """What is known of one sequence's acceptance; made by its policy."""

    def observe(self, drafted: int, accepted: int) -> None:
        """Learn what a round gave."""
        ...


class Policy(Protocol):
    """Chooses draft lengths for all sequences of a service."""

    def estimate(self) -> Estimate:
        """A new sequence's estimate."""
        ...

    def enter(self, estimate: Estimate) -> None:
        """A sequence starts to run."""
        ...

    def leave(self, estimate: Estimate) -> None:
        """A sequence is over."""
        ...

    def length(self, estimate: Estimate) -> int:
        """Tokens to draft in a sequence's next round; 0: the target alone."""
        ...

    def slots(self, sequences: int) -> int:
        """Waves in flight: 1 (lock-step) or 2 (alternating cohorts)."""
        ...

    def observe(self, drafted: int, accepted: int) -> None:
        """Learn what a round gave."""
        ...

    def timed(self, role: Role, rows: int, length: int, seconds: float) -> None:
        """Learn how long an engine call took: `rows` sequences, `length` draft tokens each."""
        ...


class _Nothing:
    def observe(self, drafted: int, accepted: int) -> None:
        """A fixed length needs no estimate."""


class Fixed:
    """Always `length` tokens. Two waves from `alternate` sequences on, if the engines' devices are separate."""

    # Half a cohort a wave pays a step's fixed cost twice as often: with few sequences it is not worth it.
    ALTERNATE = 24

    def __init__(self, length: int, separate_devices: bool) -> None:
        self._length = length
        self._separate = separate_devices

    def estimate(self) -> Estimate:
        """Nothing is estimated."""
        return _Nothing()

    def enter(self, estimate: Estimate) -> None:
        """Who runs does not matter."""

    def leave(self, estimate: Estimate) -> None:
        """Who runs does not matter."""

    def length(self, estimate: Estimate) -> int:
        """The same for all."""
        return self._length

    def slots(self, sequences: int) -> int:
        """By the number of sequences alone."""
        return 2 if self._separate and sequences >= self.ALTERNATE else 1

    def observe(self, drafted: int, accepted: int) -> None:
        """A fixed length learns nothing."""

    def timed(self, role: Role, rows: int, length: int, seconds: float) -> None:
        """A fixed length learns nothing."""
