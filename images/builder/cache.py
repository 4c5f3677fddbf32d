"""Where the build tool keeps what it made, outside the repository, and how that is taken away again."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from builder import mounts, progress

KEPT = 3
UNFINISHED = "unfinished-"
"""How the names of things begin that are not complete yet."""


@dataclass(frozen=True)
class Cache:
    """The cache folder: archives at its top; wheels, base, logs and buildah's store below it."""

    root: Path

    def archive(self, name: str, digest: str) -> Path:
        """Return the path of an image's archive."""
        return self.root / f"{name}-{digest}.tar"

    def base(self, identity: str) -> Path:
        """Return the path of the Debian base's tar."""
        return self.root / "base" / f"{identity}.tar"

    @property
    def wheels(self) -> Path:
        """The folder of wheel folders."""
        return self.root / "wheels"

    def log(self, name: str) -> Path:
        """Return the path of a step's log."""
        return self.root / "logs" / f"{name}.log"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the cache alone; says so when it has to wait for another build.

        Programs that `progress.run` starts meanwhile hold it too.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress.say(">> another build uses the cache: waiting for it")
                fcntl.flock(file, fcntl.LOCK_EX)
            # Programs that outlive a killed build keep the lock until they end: nobody works beside them.
            os.set_inheritable(file.fileno(), True)
            yield

    def sweep(self) -> None:
        """Delete what a killed build left half-made; the lock must be held."""
        large = [path for path in self.wheels.glob("*") if path.is_dir()]
        for folder in (self.root, self.wheels, *large, self.root / "base"):
            for path in folder.glob(f"{UNFINISHED}*"):
                mounts.remove_tree(path)

    def outdated(self, name: str) -> list[Path]:
        """Return the archives of an image beyond the newest KEPT."""
        archives = self.root.glob(f"{name}-{'[0-9a-f]' * 12}.tar")
        return sorted(archives, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]

    def remove(self) -> None:
        """Delete all of it, mounts included."""
        mounts.remove_tree(self.root)


def default() -> Cache:
    """Return the user's cache: ``$XDG_CACHE_HOME/tandem/images``."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Cache(home / "tandem" / "images")
