"""What goes into an image: read from its Containerfile, hashed, and laid out as the build's context.

The context holds exactly what was hashed, with fixed modes and times: the tag depends on nothing else, neither on
a checkout's times nor on the umask, compiled files or editors' leavings in it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.errors import BuildError

DEFAULT = ("operator", "serving", "reference", "fetcher")
LARGE = ("reference-torch", "vllm-cpu")
"""Of several GB: built where they are named."""
NAMES = (*DEFAULT, *LARGE)
REPOSITORY = "localhost/tandem"
_IGNORED = ("__pycache__",)
# Any fixed time serves; wheels are zip files, which know none before 1980.
_EPOCH = 1577836800  # 2020-01-01T00:00:00Z


@dataclass(frozen=True)
class Image:
    """One image: its name, and where its Containerfile stands in the repository."""

    name: str

    @property
    def containerfile(self) -> str:
        """Path of the Containerfile, from the repository root."""
        return f"images/{self.name}/Containerfile"

    def ref(self, digest: str) -> str:
        """Return the full image reference for a content hash."""
        return f"{REPOSITORY}/{self.name}:{digest}"


def select(names: list[str]) -> list[Image]:
    """Return the images of these names, those of DEFAULT for none; raises BuildError for an unknown name."""
    for name in names:
        if name not in NAMES:
            raise BuildError(f"no image is named {name!r}: the images are {', '.join(NAMES)}")
    return [Image(name) for name in NAMES if name in (names or DEFAULT)]


def copied(containerfile: str) -> list[str]:
    """Return the sources of a Containerfile's COPY instructions, without those from other stages, in its order."""
    sources: list[str] = []
    for line in containerfile.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words or words[0].upper() != "COPY":
            continue
        flags = [word for word in words[1:] if word.startswith("--")]
        if any(flag.startswith("--from=") for flag in flags):
            continue
        paths = [word for word in words[1:] if word not in flags]
        sources += [path.rstrip("/") for path in paths[:-1]]
    return sources


def files(root: Path, image: Image) -> list[str]:
    """Return the paths, from ``root``, of all files that go into the image: sorted, the Containerfile among them.

    Raises BuildError when the Containerfile copies something that is not there, or an empty folder.
    """
    found = {image.containerfile}
    for source in copied(_containerfile(root, image)):
        here = [str(file.relative_to(root)) for file in _walk(root / source)]
        if not here:
            raise BuildError(f"{image.containerfile} copies {source}, which has no file: is the checkout complete?")
        found.update(here)
    return sorted(found)


def locks(root: Path, image: Image) -> list[str]:
    """Return the hash-locked requirement files that the image installs from, as paths from ``root``."""
    return [source for source in copied(_containerfile(root, image)) if source.endswith("requirements.txt")]


def bases(root: Path, image: Image) -> tuple[str, ...]:
    """Return the names of the Containerfile's build arguments that are images to begin with."""
    return tuple(re.findall(r"^ARG (\w*BASE)=", _containerfile(root, image), re.MULTILINE))


def digest(root: Path, paths: Sequence[str], base: str) -> str:
    """Return 12 hex digits that name these files' paths, contents and executable bits, and the base."""
    total = hashlib.sha256(base.encode())
    for path in sorted(paths):
        content = hashlib.sha256((root / path).read_bytes()).hexdigest()
        total.update(f"\0{path}\0{_mode(root / path):o}\0{content}".encode())
    return total.hexdigest()[:12]


def stage(root: Path, paths: Sequence[str], context: Path) -> None:
    """Copy the files to ``context``, at the same relative paths, with fixed modes and times."""
    for path in paths:
        target = context / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((root / path).read_bytes())
        target.chmod(_mode(root / path))
        os.utime(target, (_EPOCH, _EPOCH))
    for folder in (context, *(path for path in context.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
        os.utime(folder, (_EPOCH, _EPOCH))


def _containerfile(root: Path, image: Image) -> str:
    path = root / image.containerfile
    if not path.is_file():
        raise BuildError(f"{path} is not there: run this from the repository root, or give it with --root")
    return path.read_text()


def _walk(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    if not path.is_dir():
        return
    for child in path.iterdir():
        if child.name.startswith(".") or child.name in _IGNORED or child.suffix == ".pyc":
            continue
        yield from _walk(child)


def _mode(path: Path) -> int:
    return 0o755 if os.access(path, os.X_OK) else 0o644
