"""Triton backends in C++, compiled as the serving image compiles its own, once for all tests."""

import fcntl
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import run

from triton.harness import REPOSITORY_ROOT

COLLECTOR = REPOSITORY_ROOT / "images/serving/collector"


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Only one process of all is in here at a time: the others find made what they would make."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def compiled(source: Path) -> Path:
    """`libtriton_<name>.so` of `<name>.cpp`, with headers beside it and the collector's; kept in the user's cache.

    Raises CalledProcessError where it does not compile.
    """
    name = f"libtriton_{source.stem}.so"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tandem/backends" / _digest(source)
    with alone(cache / "lock"):
        if not (cache / name).exists():
            with tempfile.TemporaryDirectory(dir=cache) as folder:
                made = Path(folder) / name
                # The compiler keeps C++'s library, which it compiles first, with what `make clean` deletes.
                env = os.environ | {"ZIG_GLOBAL_CACHE_DIR": str(cache.parent / "zig")}
                run([sys.executable, COLLECTOR / "build.py", source, made], check=True, env=env)
                made.replace(cache / name)
    return cache / name


def collector() -> Path:
    """The library of the serving image's backend `collector`."""
    return compiled(COLLECTOR / "collector.cpp")


def rounds() -> Path:
    """The library of the serving image's backend `rounds`."""
    return compiled(COLLECTOR / "rounds.cpp")


def streams() -> Path:
    """The library of the serving image's backend `streams`."""
    return compiled(COLLECTOR / "streams.cpp")


def _digest(source: Path) -> str:
    files = sorted(path for folder in {COLLECTOR, source.parent} for path in folder.iterdir() if path.is_file())
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:12]
