"""Base images by digest: in each Containerfile, `ARG BASE=NAME:TAG@sha256:...`. A tag alone may mean another image
tomorrow; the tag stays for who reads it, and for the next look."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from builder.errors import BuildError
from builder.inputs import Image

_BASE = re.compile(r"^(ARG \w*BASE=)([^\s@]+)(@sha256:[0-9a-f]{64})?$", re.MULTILINE)


def pin(root: Path, images: Sequence[Image], digest: Callable[[str], str]) -> list[str]:
    """Write the digest of each base's tag, as `digest` finds it, into the Containerfiles; return the references."""
    found: dict[str, str] = {}
    for image in images:
        file = root / image.containerfile
        text = file.read_text(encoding="utf-8")
        for _, tag, _ in _BASE.findall(text):
            if tag not in found:
                found[tag] = f"{tag}@{digest(tag)}"
        file.write_text(_BASE.sub(lambda match: match[1] + found[match[2]], text), encoding="utf-8")
    return list(found.values())


def check(root: Path, images: Sequence[Image]) -> None:
    """Raises BuildError where a Containerfile names a base by its tag alone."""
    for image in images:
        for _, tag, pinned in _BASE.findall((root / image.containerfile).read_text(encoding="utf-8")):
            if not pinned:
                raise BuildError(
                    f"{image.containerfile} begins with {tag}, which may be another image tomorrow: run `make bases`"
                    " and commit what it writes, or take what the tag means now (UNPINNED=1)"
                )
