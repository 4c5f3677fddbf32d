"""The Debian base for machines that reach no registry: Python 3.11 on a minimal root file system."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path

from builder import mounts, progress
from builder.cache import UNFINISHED
from builder.errors import BuildError

SUITE = "bookworm"
# Triton's Python backend loads libpython; python3-venv makes the environments that the images copy.
PACKAGES = ("ca-certificates", "libpython3.11", "python3", "python3-venv")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_EMPTIED = ("dev", "proc", "sys", "tmp", "var/cache/apt", "var/lib/apt/lists")
_USELESS = ("usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian")


def identity() -> str:
    """Return 12 hex digits that name the recipe of this base."""
    recipe = [SUITE, PACKAGES, _EMPTIED, _USELESS, "doc: copyright only"]
    return hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:12]


def mirror() -> list[str]:
    """Return debootstrap's mirror argument: ``TANDEM_DEBIAN_MIRROR``, or none for Debian's own."""
    given = os.environ.get("TANDEM_DEBIAN_MIRROR")
    return [given] if given else []


def make(archive: Path, log: Path) -> None:
    """Make the base as a tar file at ``archive``; needs root, debootstrap and the mirror, about a minute.

    Raises BuildError, saying what is missing.
    """
    if os.geteuid() != 0:
        raise BuildError("making the Debian base needs root (debootstrap): run this as root, or use Docker or Podman")
    if shutil.which("debootstrap") is None:
        raise BuildError("debootstrap is not installed: `python -m cluster deps` installs it")
    archive.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=archive.parent))
    root, unfinished = work / "root", work / "base.tar"
    include = f"--include={','.join(PACKAGES)}"
    try:
        progress.run(["debootstrap", "--variant=minbase", include, SUITE, str(root), *mirror()], log)
        trim(root)
        progress.run(["tar", "--numeric-owner", "-C", str(root), "-cf", str(unfinished), "."], log)
        unfinished.replace(archive)
    finally:
        mounts.remove_tree(work)


def trim(root: Path) -> None:
    """Take away what no container reads: package lists, manuals, translations; licences stay."""
    for folder in _USELESS:
        shutil.rmtree(root / folder, ignore_errors=True)
    for folder in _EMPTIED:
        for child in (root / folder).iterdir():
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child)
            else:
                child.unlink()
    for path in (root / "usr/share/doc").rglob("*"):
        if path.is_file() and path.name != "copyright":
            path.unlink()
