"""Control groups of real nodes, on version 1, version 2, and machines with both."""

from __future__ import annotations

import errno
import time
from pathlib import Path

ENDING_SECONDS = 30.0


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
    """Remove the group ``name`` with those below it, in every hierarchy; its processes must be ending."""
    for root, _ in hierarchies(Path("/proc/mounts").read_text()):
        group = root / name.lstrip("/")
        for folder in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            _remove(folder)
        _remove(group)


def _remove(folder: Path) -> None:
    """Remove one group, waiting for what the kernel has killed but not ended yet."""
    deadline = time.monotonic() + ENDING_SECONDS
    while True:
        try:
            return folder.rmdir()
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.05)
