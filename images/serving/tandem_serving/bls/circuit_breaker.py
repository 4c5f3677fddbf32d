"""When to ask a draft engine that fails. Pure."""

from __future__ import annotations


class CircuitBreaker:
    """Keeps sequences from waiting for a draft engine that is down: no drafts for a while after `FAILURES`
    calls in a row (one bad request is not an engine that is down).

    After each pause one sequence tries it again, so that the others need not wait for what may be late. The pause
    doubles, from `FIRST` to `LONGEST` seconds, until a call works.
    """

    FAILURES = 3
    FIRST, LONGEST = 0.5, 30.0

    def __init__(self) -> None:
        self._failures = 0
        self._pause = 0.0
        self._until = 0.0
        self._tried = True

    def closed(self, now: float) -> bool:
        """Whether a draft may be asked for; after a pause the one who asks is the one who tries."""
        if self._failures < self.FAILURES:
            return True
        if now < self._until:
            return False
        self._until, self._tried = now + self._pause, True
        return True

    def failed(self, now: float) -> None:
        """The draft engine failed a call, or was late."""
        self._failures += 1
        if self._failures >= self.FAILURES and self._tried:  # calls that fail together are one failure
            self._pause = min(max(self.FIRST, 2 * self._pause), self.LONGEST)
            self._until, self._tried = now + self._pause, False

    def worked(self) -> None:
        """The draft engine answered."""
        self._failures = 0
        self._pause = 0.0
        self._tried = True
