"""Shared memory that a killed Triton leaves behind: each process of its Python backend has a region of 1 MiB or more.

A pod's /dev/shm outlives its containers, so that it would be full after some restarts. Regions that a process maps
are in use: of another server on a machine where several share /dev/shm.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

FOLDER, PROCESSES = Path("/dev/shm"), Path("/proc")
OPTION = "shm-region-prefix-name="
PREFIX = "triton_python_backend_shm_region_"
"""Triton's own (python_be.cc), unless its command has the option."""


def clear(command: Sequence[str] = (), folder: Path = FOLDER, processes: Path = PROCESSES) -> int:
    """Remove regions that a server of this command has left, and no process maps; how many."""
    prefixes = [word.partition(OPTION)[2] for word in command if OPTION in word]
    left = {path for path in folder.glob("*") if path.name.startswith(prefixes[-1] if prefixes else PREFIX)}
    if not left:
        return 0
    mapped = _mapped(processes)
    unused = [path for path in left if str(path) not in mapped]
    for path in unused:
        path.unlink(missing_ok=True)
    if unused:
        print(f"removed {len(unused)} regions of shared memory that an earlier server left in {folder}", flush=True)
    return len(unused)


def _mapped(processes: Path) -> set[str]:
    """Files that processes map, as far as they may be looked at."""
    found: set[str] = set()
    for maps in processes.glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # it ended meanwhile, or is another user's
            found.update(line.split(maxsplit=5)[-1] for line in maps.read_text(errors="replace").splitlines())
    return found
