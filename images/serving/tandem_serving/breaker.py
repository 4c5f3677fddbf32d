"""When to ask a draft engine that fails. Pure."""

from __future__ import annotations


class Breaker:
    """Keeps sequences from waiting for a draft engine that is down: no drafts for a while after `FAILURES`
    calls in a row (one bad request is not an engine that is down).

    The pause doubles, from `FIRST` to `LONGEST` seconds, until a call works.
    """

    FAILURES = 3
    FIRST, LONGEST = 0.5, 30.0

    def __init__(self) -> None:
        self._failures = 0
        self._pause = 0.0
        self._until = 0.0

    def closed(self, now: float) -> bool:
        """Whether drafts may be asked for."""
        return now >= self._until

    def failed(self, now: float) -> None:
        """The draft engine failed a call, or was late."""
        self._failures += 1
        if self._failures >= self.FAILURES and now >= self._until:
            self._pause = min(max(self.FIRST, 2 * self._pause), self.LONGEST)
            self._until = now + self._pause

    def worked(self) -> None:
        """The draft engine answered."""
        self._failures = 0
        self._pause = 0.0
