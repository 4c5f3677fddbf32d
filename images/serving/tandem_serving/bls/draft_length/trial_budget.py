"""What trials of other draft lengths may cost. Pure."""

from __future__ import annotations

# Share of the time that trials of other lengths may lose, and those of the target alone besides; fruitless ones
# halve it step by step.
PROBE_SHARE, ALONE_SHARE = 0.006, 0.002


class Budget:
    """Seconds that trials may lose: a share of the time passed, a smaller one after each fruitless trial."""

    def __init__(self, now: float, share: float = PROBE_SHARE) -> None:
        self._now = now
        self._credit = 0.0
        self._share = self._full = share

    def earn(self, now: float, longest: float) -> float:
        """Count the time since the last call, `longest` at most (idle time earns nothing); returns it."""
        passed = min(max(0.0, now - self._now), longest)
        self._now = now
        self._credit += self._share * passed
        return passed

    def holds(self, seconds: float) -> bool:
        """Whether there is so much."""
        return self._credit >= seconds

    def afford(self, loss: float) -> bool:
        """Pay for a trial expected to lose `loss` seconds if there is enough; the rest is not kept for long."""
        if not self.holds(loss):
            return False
        self._credit = min(self._credit - loss, loss)
        self._fruitless()
        return True

    def borrow(self, loss: float) -> bool:
        """Pay for such a trial with time to come, unless an earlier one is not paid for."""
        if self._credit < 0:
            return False
        self._credit = -loss
        self._fruitless()
        return True

    def charge(self, seconds: float) -> None:
        """Pay for what a trial took beyond the expected."""
        self._credit -= max(0.0, seconds)

    def _fruitless(self) -> None:
        self._share = max(self._share / 1.5, self._full / 2)

    def refresh(self) -> None:
        """A trial was fruitful: the full share again."""
        self._share = self._full

    def forgive(self) -> None:
        """What a trial found is worth what was borrowed for it."""
        self._credit = max(self._credit, 0.0)
