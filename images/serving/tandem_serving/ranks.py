"""The process that gets a pod's signals where mpirun starts the server.

On SIGTERM mpirun ends all its processes within about two seconds (odls_base_sigkill_timeout), which would cut every
stream; and it forwards no SIGTERM. So the server of the first rank gets the signal: it finishes its requests and
ends, the other ranks end with their leader, and mpirun with them. If a rank dies, mpirun ends all of them by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
FIRST_RANK = b"OMPI_COMM_WORLD_RANK=0"
SERVER = "tritonserver"


def is_launcher(command: str) -> bool:
    """Whether the command starts other processes by MPI."""
    return Path(command).name == "mpirun"


def server(launcher: int) -> int:
    """Process id of the first rank's server below `launcher`; the launcher's own while there is none."""
    for rank in _children(launcher):
        if FIRST_RANK in _read(rank, "environ").split(b"\0"):
            # A script may stand between mpirun and the server.
            return next((pid for pid in _family(rank) if _name(pid) == SERVER), rank)
    return launcher


def _family(pid: int) -> Iterator[int]:
    """`pid` and its descendants."""
    yield pid
    for child in _children(pid):
        yield from _family(child)


def _children(pid: int) -> list[int]:
    """Children in the order in which they were started; none of a process that is gone."""
    return [int(child) for child in _read(pid, f"task/{pid}/children").split()]


def _name(pid: int) -> str:
    return _read(pid, "comm").decode(errors="replace").strip()


def _read(pid: int, name: str) -> bytes:
    try:
        return (PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""
