"""When to ask a draft engine that fails, or has not answered yet. Pure."""

from __future__ import annotations


class CircuitBreaker:
    """Keeps sequences from waiting for a draft engine that is down: no drafts for a while after `FAILURES` calls in a
    row (one bad request is not an engine that is down), or after one call that was late, which costs seconds.

    After each pause one sequence tries it, while no other draft is unanswered: the others need not wait for what may
    be late. The pause doubles, from `FIRST` to `LONGEST` seconds, until a call works.

    One sequence also tries an engine that is `new`. If that call is late, the engine may still warm up, so the next
    pause is the longest one. The first answer ends the pause, even if no sequence waits for it any longer.
    """

    FAILURES = 3
    FIRST, LONGEST = 0.5, 30.0

    def __init__(self) -> None:
        self._answered = False
        self._failures = 0
        self._pause = 0.0
        self._until = 0.0
        self._tried = True

    @property
    def closed(self) -> bool:
        """Whether any sequence may ask for a draft."""
        return self._answered and self._failures < self.FAILURES

    @property
    def new(self) -> bool:
        """Whether the draft engine has neither answered nor failed."""
        return not self._answered and not self._failures

    def may_try(self, now: float) -> bool:
        """Whether it is time to try; who asks is the one who does, and others wait for a pause."""
        if now < self._until:
            return False
        self._until, self._tried = now + max(self.FIRST, self._pause), True
        return True

    def failed(self, now: float, late: bool = False) -> None:
        """The draft engine failed a call, or was late."""
        self._failures = max(self._failures + 1, self.FAILURES if late else 0)
        if not self.closed and self._tried:  # calls that fail together are one failure
            least = self.FIRST if self._answered or not late else self.LONGEST
            self._pause = min(max(least, 2 * self._pause), self.LONGEST)
            self._until, self._tried = now + self._pause, False

    def worked(self, late: bool = False) -> None:
        """The draft engine answered; `late`: when the call had been given up, which counts only as a first answer."""
        if late and self._answered:
            return
        self._answered = True
        self._failures = 0
        self._pause = 0.0
        self._tried = True
