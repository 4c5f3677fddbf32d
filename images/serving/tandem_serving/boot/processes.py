"""The processes below this one, from the kernel's /proc."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")


def family(pid: int) -> Iterator[int]:
    """`pid` and its descendants."""
    yield pid
    for child in children(pid):
        yield from family(child)


def children(pid: int) -> list[int]:
    """Children in the order in which they were started; none of a process that is gone."""
    return [int(child) for child in read(pid, f"task/{pid}/children").split()]


def name(pid: int) -> str:
    """The program's name, of which the kernel keeps 15 bytes; empty for a process that is gone."""
    return read(pid, "comm").decode(errors="replace").strip()


def dead(pid: int) -> bool:
    """Whether it has ended, and its parent has not asked how."""
    _, _, after_name = read(pid, "stat").rpartition(b")")
    return after_name.split()[:1] == [b"Z"]


def read(pid: int, file: str) -> bytes:
    """A file of the process's folder; empty when it is gone."""
    try:
        return (PROC / str(pid) / file).read_bytes()
    except OSError:
        return b""
