"""The devices under the engines: where they share one, a step begins when the other's has ended."""

import fcntl
import mmap
import os
import struct

_TIME = struct.Struct("d")
_USE = struct.Struct("dq")


def _map(path: str, size: int) -> tuple[int, mmap.mmap]:
    """A file of this size in memory, and its descriptor."""
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.truncate(file, size)
    return file, mmap.mmap(file, size)


class Meter:
    """How much an engine has worked: seconds in steps and steps, in a file that other processes read."""

    def __init__(self, path: str) -> None:
        _, self._map = _map(path, _USE.size)

    def add(self, seconds: float) -> None:
        """Count a step."""
        total, steps = self.read()
        self._map[:] = _USE.pack(total + seconds, steps + 1)

    def read(self) -> tuple[float, int]:
        """(seconds in steps, steps) so far."""
        seconds, steps = _USE.unpack(self._map[:])
        return seconds, steps


class Device:
    """Reserves a device's time, first come first served. `path`: a file that sharing engines name alike."""

    def __init__(self, path: str = "") -> None:
        """Without a path the device is the engine's own."""
        self._shared = bool(path)
        if self._shared:
            self._file, self._busy = _map(path, _TIME.size)

    def reserve(self, begin: float, seconds: float) -> float:
        """Reserve `seconds` from `begin` on, or from when the device is free; the end (monotonic clock)."""
        if not self._shared:
            return begin + seconds
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            (busy_until,) = _TIME.unpack(self._busy[:])
            end: float = max(begin, busy_until) + seconds
            self._busy[:] = _TIME.pack(end)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        return end
