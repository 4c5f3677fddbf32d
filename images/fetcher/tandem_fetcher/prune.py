"""Removing from the cache volume what nobody refers to."""

from __future__ import annotations

import fcntl
import logging
import secrets
import shutil
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

_LOG = logging.getLogger(__name__)
KINDS = ("models", "engines")


@dataclass(frozen=True)
class Pruned:
    """`removed` folders, relative to the cache's root, and the bytes they held."""

    removed: tuple[str, ...]
    bytes: int


def prune(cache: Path, keep: Collection[str], young: float, *, dry_run: bool) -> Pruned:
    """Remove each `models/<key>` and `engines/<key>` that is not in `keep`. Raises OSError.

    Left alone is what somebody writes, and what was written or asked for within the last `young` seconds: a service
    that was just applied may count on it before its own references can be seen.
    """
    removed, size = [], 0
    for folder in sorted(_folders(cache)):
        name = str(folder.relative_to(cache))
        if name in keep or time.time() - _touched(folder) < young or _held(folder):
            continue
        size += sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        removed.append(name)
        if not dry_run:
            # What is half removed must not look whole: the rest of it goes with the next prune.
            shutil.rmtree(folder.rename(folder.with_name(f".removed-{secrets.token_hex(4)}")))
            _LOG.info("removed %s", name)
    return Pruned(tuple(removed), size)


def _folders(cache: Path) -> Iterator[Path]:
    for kind in KINDS:
        if (cache / kind).is_dir():
            yield from (path for path in (cache / kind).iterdir() if path.is_dir() and not path.is_symlink())


def _touched(folder: Path) -> float:
    marker = folder / ".complete"
    return max(folder.stat().st_mtime, marker.stat().st_mtime if marker.exists() else 0.0)


def _held(folder: Path) -> bool:
    """Whether somebody holds the folder for writing."""
    path = folder / ".lock"
    if not path.exists():
        return False
    with path.open("r+") as file:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False  # no locks on this file system: age alone tells
    return False
