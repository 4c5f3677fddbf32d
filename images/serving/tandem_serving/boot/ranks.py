"""The process that gets a pod's signals where mpirun starts the server.

On SIGTERM mpirun ends all its processes within about two seconds (odls_base_sigkill_timeout), which would cut every
stream; and it forwards no SIGTERM. So the server of the first rank gets the signal: it finishes its requests and
ends, the other ranks end with their leader, and mpirun with them. If a rank dies, mpirun ends all of them by itself.
"""

from __future__ import annotations

from pathlib import Path

from tandem_serving.boot import processes

FIRST_RANK = b"OMPI_COMM_WORLD_RANK=0"
SERVER = "tritonserver"


def is_launcher(command: str) -> bool:
    """Whether the command starts other processes by MPI."""
    return Path(command).name == "mpirun"


def server(launcher: int) -> int:
    """Process id of the first rank's server below `launcher`; the launcher's own while there is none."""
    for rank in processes.children(launcher):
        if FIRST_RANK in processes.read(rank, "environ").split(b"\0"):
            # A script may stand between mpirun and the server.
            return next((pid for pid in processes.family(rank) if processes.name(pid) == SERVER), rank)
    return launcher
