"""Whether this process stood still: a thread that looks at the clock ten times a second."""

import threading
import time

BEAT_SECONDS = 0.1
STILL_SECONDS = 1.0
"""So long, and Triton takes a model's process for dead."""


class Pulse:
    """Once begun it goes on to the end of the process."""

    def __init__(self) -> None:
        self._stood: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)

    def begin(self) -> None:
        """Idempotent."""
        if not self._thread.is_alive():
            self._thread.start()

    def stood_still(self, since: float) -> float:
        """The longest that it stood still, in seconds, since a time of the monotonic clock; 0: never for long."""
        return max((seconds for until, seconds in self._stood if until > since), default=0.0)

    def _beat(self) -> None:
        while True:
            before = time.monotonic()
            time.sleep(BEAT_SECONDS)
            seconds = (now := time.monotonic()) - before - BEAT_SECONDS
            if seconds >= STILL_SECONDS:
                self._stood.append((now, seconds))


PULSE = Pulse()
