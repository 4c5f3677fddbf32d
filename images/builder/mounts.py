"""Removing folders in which a killed build may have left mounts."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from builder.errors import BuildError

_MOUNTINFO = Path("/proc/self/mountinfo")
_MOUNT_POINT_FIELD = 4
_ESCAPES = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


def below(folder: Path, mountinfo: str) -> list[Path]:
    """Return the mount points at or below ``folder`` in a /proc/*/mountinfo text, the innermost first."""
    points: list[Path] = []
    for line in mountinfo.splitlines():
        point = line.split(" ")[_MOUNT_POINT_FIELD]
        for escape, character in _ESCAPES.items():
            point = point.replace(escape, character)
        if Path(point).is_relative_to(folder):
            points.append(Path(point))
    return points[::-1]


def remove_tree(folder: Path) -> None:
    """Unmount what is mounted at or below ``folder``, then delete it; nothing there is no error.

    Raises BuildError when a mount cannot be undone: deleting through it could reach what is mounted there.
    """
    real = folder.resolve()
    for point in below(real, _MOUNTINFO.read_text()):
        done = subprocess.run(["umount", str(point)], capture_output=True, text=True, check=False)
        if done.returncode != 0 and os.path.ismount(point):
            raise BuildError(f"{done.stderr.strip()}: end what uses it, then run this again")
    if real.is_dir():
        shutil.rmtree(real)
    else:
        real.unlink(missing_ok=True)
