"""What engine calls take, by their length. Pure."""

from __future__ import annotations

from tandem_serving.bls.calls import Role

# Weight of a new observation, which counts as so many times the known at most: a stalled machine is no slow engine.
NEW, SURPRISE = 0.2, 2.0


class CallTimes:
    """Times in seconds."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[Role, int], float] = {}

    def timed(self, role: Role, length: int, seconds: float) -> None:
        """A call of `length` output tokens at most took so long, without new prompts."""
        known = self._seconds.get((role, length), seconds)
        self._seconds[role, length] = known + NEW * (min(seconds, SURPRISE * known) - known)

    def expected(self, role: Role, length: int) -> float | None:
        """What a call of so many tokens takes; None: not known."""
        return self._seconds.get((role, length))
