"""Control groups of real nodes, on version 1, version 2, and machines with both."""

from __future__ import annotations

import contextlib
from pathlib import Path


def hierarchies(mounts: str) -> list[tuple[Path, bool]]:
    """Return where control groups are mounted, from the text of /proc/mounts; True marks cpuset of version 1."""
    entries = (line.split() for line in mounts.splitlines())
    groups = (entry for entry in entries if entry[2] in {"cgroup", "cgroup2"})
    return [(Path(entry[1]), entry[2] == "cgroup" and "cpuset" in entry[3].split(",")) for entry in groups]


def make(name: str) -> None:
    """Make the group ``name`` (``/a``) in every hierarchy; the kubelet makes pods' groups below it."""
    for root, is_cpuset in hierarchies(Path("/proc/mounts").read_text()):
        group = root / name.lstrip("/")
        group.mkdir(exist_ok=True)
        if is_cpuset:  # starts empty and takes no process until it has processors and memory
            for file in ("cpuset.cpus", "cpuset.mems"):
                if not (group / file).read_text().strip():
                    (group / file).write_text((root / file).read_text())


def remove(name: str) -> None:
    """Remove the group ``name`` with those below it, in every hierarchy; its processes must have ended."""
    for root, _ in hierarchies(Path("/proc/mounts").read_text()):
        group = root / name.lstrip("/")
        for folder in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            folder.rmdir()
        with contextlib.suppress(FileNotFoundError):
            group.rmdir()
