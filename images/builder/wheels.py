"""Wheels for the images, fetched by pip before the build, checked against the locks' hashes."""

from __future__ import annotations

import hashlib
import platform
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from builder import progress
from builder.cache import UNFINISHED

PYTHON = "3.11"
# The images' C library is glibc 2.36 (Debian 12): it runs wheels for all older ones.
_NEWEST_GLIBC = 36
_LEGACY = ("manylinux2014", "manylinux2010", "manylinux1")


def folder(cache: Path, locks: Sequence[Path]) -> Path:
    """Return the folder for the wheels of these locks; it exists when they have been fetched."""
    content = hashlib.sha256(b"\0".join(lock.read_bytes() for lock in locks)).hexdigest()[:12]
    return cache / f"wheels-{content}"


def fetch(locks: Sequence[Path], target: Path, log: Path) -> None:
    """Download every wheel that the locks pin to ``target``, delete earlier ones; raises BuildError if pip fails."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=target.parent))
    try:
        progress.run(pip_command(locks, unfinished, platform.machine()), log)
        unfinished.chmod(0o755)
        # Wheels of earlier locks are never asked for again; pip's own cache remembers what the next fetch needs.
        for old in target.parent.glob("wheels-*"):
            shutil.rmtree(old)
        unfinished.replace(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def pip_command(locks: Sequence[Path], target: Path, machine: str) -> list[str]:
    """Return the pip call that fetches for the images' Python, whichever Python runs the build."""
    newest_first = [f"manylinux_2_{minor}" for minor in range(_NEWEST_GLIBC, 4, -1)]
    return [
        *(sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--progress-bar=off"),
        *("--no-deps", "--require-hashes", "--only-binary=:all:", f"--dest={target}"),
        *(f"--python-version={PYTHON}", "--implementation=cp", f"--abi=cp{PYTHON.replace('.', '')}"),
        *(f"--platform={tag}_{machine}" for tag in (*_LEGACY, *newest_first)),
        *(f"--requirement={lock}" for lock in locks),
    ]
