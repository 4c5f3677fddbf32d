"""Removing unreferenced folders from the cache volume: those that Tandem made, by their name and marker."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import re
import secrets
import shutil
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tandem_fetcher.cache import LOCK, MARKER, NO_LOCKS, Entry, is_at

_LOG = logging.getLogger(__name__)
KINDS = ("models", "engines")
UNMARKED, NO_LOCK, SHARED = "Unmarked", "NoLocks", "Shared"
_NAME = re.compile(r"(?P<key>[0-9a-f]{32})|\.removed-(?P<removed>[0-9a-f]{32})-[0-9a-f]{8}")
"""`KEY`, or `.removed-KEY-TOKEN` of one that is half removed."""


@dataclass
class Pruned:
    """`removed` folders, relative to the cache's root, and the `bytes` they held; those that were `left`, though no
    service refers to them, and why: they bear no marker, the file system has no locks, or others use them."""

    removed: tuple[str, ...] = ()
    bytes: int = 0
    left: dict[str, str] = field(default_factory=dict)


def prune(cache: Path, keep: Collection[str], young: float, *, dry_run: bool, namespace: str = "") -> Pruned:
    """Remove each `models/<key>` and `engines/<key>` that is neither in `keep` nor below a folder of it (`.`: all).
    Raises OSError.

    Left alone is what Tandem did not mark, what somebody writes, and what was written or asked for within the last
    `young` seconds: a service that was just applied may count on it before its own references can be seen. So is
    what another namespace than `namespace` has asked for: whose prune comes last removes it.
    """
    found = Pruned()
    for folder in sorted(_folders(cache)):
        name = f"{folder.parent.name}/{folder.name}"
        if _kept(name, keep):
            continue
        if not _ours(folder):
            found.left[name] = UNMARKED
        elif folder.name.startswith("."):
            found.bytes += _size(folder)
            found.removed += (name,)
            if not dry_run:
                _remove(folder)
        elif (entry := Entry(folder, namespace)).others():
            found.left[name] = SHARED
            if not dry_run and time.time() - _touched(folder) >= young:
                entry.leave()
        elif moved := _set_aside(folder, name, young, found, dry_run=dry_run):
            _remove(moved)
            _LOG.info("removed %s", name)
    return found


def _set_aside(folder: Path, name: str, young: float, found: Pruned, *, dry_run: bool) -> Path | None:
    """Rename a folder under its lock, so that no fetch finds it there; the new path, None where it stays."""
    with contextlib.suppress(FileNotFoundError), (folder / LOCK).open("a") as file:  # another prune may be faster
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None  # somebody writes it, or has just found it
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            found.left[name] = NO_LOCK
            return None
        if not is_at(file, folder / LOCK) or time.time() - _touched(folder) < young:
            return None
        found.bytes += _size(folder)
        found.removed += (name,)
        if not dry_run:
            # What is half removed must not look whole: the rest of it goes with the next prune.
            return folder.rename(folder.with_name(f".removed-{folder.name}-{secrets.token_hex(4)}"))
    return None


def _remove(folder: Path) -> None:
    """The marker last: what is left of it is still known for ours."""
    with contextlib.suppress(FileNotFoundError):  # another prune is at it
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != MARKER:
                path.unlink()
        (folder / MARKER).unlink()
        folder.rmdir()


def _folders(cache: Path) -> Iterator[Path]:
    for kind in (cache / name for name in KINDS):
        if kind.is_dir() and not kind.is_symlink():
            yield from (path for path in kind.iterdir() if path.is_dir() and not path.is_symlink())


def _kept(name: str, keep: Collection[str]) -> bool:
    return any(each == "." or name == each or name.startswith(f"{each}/") for each in keep)


def _ours(folder: Path) -> bool:
    """Whether Tandem made it: a name as Tandem gives them, and a marker that says it, so that a copy has none."""
    named = _NAME.fullmatch(folder.name)
    try:
        marked = (folder / MARKER).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return False
    return named is not None and marked == f"{folder.parent.name}/{named['key'] or named['removed']}"


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _touched(folder: Path) -> float:
    """When it was last written or asked for: the marker is written anew each time."""
    return max(path.stat().st_mtime for path in (folder, folder / MARKER, folder / ".complete") if path.exists())
