"""The cache volume: a folder for each content, written once.

    models/<key>/             the model, when .complete is there
    models/<key>/.complete    what the folder holds; written last, at once
    models/<key>/.partial/    files on their way; kept, so that the next try goes on where this one ended
    models/<key>/.lock        held by the one that writes, shared by those that find the model there
    models/<key>/.tandem      the folder's name: by it prune knows that Tandem made it
    models/<key>/.used-by-NAMESPACE  that has asked for it: several share a volume by claims of one path

The key names URI, pinned revision and patterns, so a folder's content never changes: with .complete in it, it is
only read. Nothing here is needed from the pod that ended: a killed one leaves at most a shorter partial file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from tandem_fetcher.uri import ModelUri

_LOG = logging.getLogger(__name__)
MARKER, LOCK, USER = ".tandem", ".lock", ".used-by-"
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


@dataclass(frozen=True)
class CachedFile:
    """A file of a complete model; `digest` is "" where the source gives none."""

    name: str
    size: int
    digest: str


@dataclass(frozen=True)
class Manifest:
    """What .complete says."""

    uri: str
    revision: str
    files: tuple[CachedFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def model_path(uri: ModelUri, revision: str, allow: Sequence[str]) -> str:
    """Return the model's folder relative to the cache's root; `revision` is a pinned one."""
    inputs = json.dumps([str(uri), revision, sorted(allow)])
    return f"models/{hashlib.sha256(inputs.encode()).hexdigest()[:32]}"


@dataclass(frozen=True)
class Entry:
    """The folder of one content; `namespace`: whose pod asks for it, where that is known."""

    folder: Path
    namespace: str = ""

    def manifest(self) -> Manifest | None:
        """Return what the folder holds, None while it is not complete, or no longer. Raises OSError.

        The disk may have lost what .complete says, or .complete itself what it said: that is fetched again.
        """
        try:
            data = json.loads((self.folder / ".complete").read_text(encoding="utf-8"))
            files = tuple(CachedFile(**file) for file in data["files"])
            manifest = Manifest(data["uri"], data["revision"], files)
            whole = all((self.folder / file.name).stat().st_size == file.size for file in files)
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return manifest if whole else None

    def complete(self, manifest: Manifest) -> None:
        """Say that the folder is complete. Raises OSError."""
        unfinished = self.folder / ".complete.partial"
        with unfinished.open("w", encoding="utf-8") as file:
            json.dump(asdict(manifest), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(self.folder / ".complete")
        sync_folder(self.folder)

    def touch(self) -> None:
        """Say that the folder was asked for: it is not pruned soon. A volume that is only read keeps its times."""
        with contextlib.suppress(OSError):
            self._mark()
            os.utime(self.folder / ".complete")

    def _mark(self) -> None:
        name = f"{self.folder.parent.name}/{self.folder.name}\n"
        (self.folder / MARKER).write_text(name, encoding="utf-8")
        if self.namespace:
            (self.folder / f"{USER}{self.namespace}").touch()

    def others(self) -> set[str]:
        """Other namespaces that have asked for the folder. Raises OSError."""
        users = {path.name.removeprefix(USER) for path in self.folder.glob(f"{USER}*")}
        return users - {self.namespace}

    def leave(self) -> None:
        """The namespace uses it no longer. Raises OSError."""
        (self.folder / f"{USER}{self.namespace}").unlink(missing_ok=True)

    def partial(self, name: str) -> Path:
        """Return where a file stands on its way; its folder exists then. Raises OSError."""
        path = self.folder / ".partial" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def publish(self, name: str) -> None:
        """Give a whole file, already on the disk, its name. Raises OSError."""
        final = self.folder / name
        final.parent.mkdir(parents=True, exist_ok=True)
        self.partial(name).rename(final)
        sync_folder(final.parent)

    @contextmanager
    def lock(self, waiting: Callable[[], None]) -> Iterator[None]:
        """Hold the folder for writing; calls `waiting` once when another one holds it. Raises OSError.

        flock(2): the kernel of the holder lets go when the holder dies, however that happens, and a network file
        system when its node does; a lease with heartbeats would trust clocks and stall for its length. Where the file
        system has no locks, two writers cost bandwidth, no content: both write the same bytes to the same places,
        and only verified files get their name.
        """
        while True:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._locked("w", fcntl.LOCK_EX, waiting) as held:
                if held:
                    self._mark()
                    yield
                    return

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep prune off the folder meanwhile, where it is there. Raises OSError."""
        with self._locked("r", fcntl.LOCK_SH, lambda: None):
            yield

    @contextmanager
    def _locked(self, mode: str, kind: int, waiting: Callable[[], None]) -> Iterator[bool]:
        """Hold the lock in the folder; False where it is not that of the folder any more: prune was faster."""
        path = self.folder / LOCK
        try:
            file = path.open(mode)
        except FileNotFoundError:
            yield False
            return
        with file:
            try:
                _acquire(file.fileno(), kind, waiting)
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
                _LOG.warning("the cache's file system has no locks (%s): going on without", error.strerror)
            yield is_at(file, path)


def is_at(file: IO[str], path: Path) -> bool:
    """Whether the open file is the one at `path` now."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _acquire(descriptor: int, kind: int, waiting: Callable[[], None]) -> None:
    told = False
    while True:
        try:
            return fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if not told:
                waiting()
                told = True
            time.sleep(0.5)


def sync_folder(folder: Path) -> None:
    """Put a folder's names on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
