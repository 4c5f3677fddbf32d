"""The device under the engines: where they share one, a step begins when the other's has ended."""

import fcntl
import mmap
import os
import struct

_TIME = struct.Struct("d")


class Device:
    """Reserves a device's time, first come first served. `path`: a file that sharing engines name alike."""

    def __init__(self, path: str = "") -> None:
        """Without a path the device is the engine's own."""
        self._shared = bool(path)
        if self._shared:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT)
            os.truncate(self._file, _TIME.size)
            self._busy = mmap.mmap(self._file, _TIME.size)

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
