"""Is what a revision was made for still in the cache volume? Asked before anything starts with it.

The operator reads the message where a pod ends with it (`tandem.rollout.lost`), and has the folder filled again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tandem_serving.checkpoint import CheckpointError

CACHE = Path("/cache")
_FOLDER = re.compile(r".*/(models|engines)/[0-9a-f]{32}(?=/|$)")
"""Folders that Tandem made; see images/fetcher and engine_build.py."""


class Gone(CheckpointError):
    """A folder of the cache volume is gone, or what was in it."""

    @classmethod
    def of(cls, folder: Path | str) -> Gone:
        """The error for `folder`: the operator reads its message."""
        return cls(f"{folder} is gone from the cache volume, or not whole any more: Tandem has it made again")


def check(path: Path) -> None:
    """Raises Gone where `path`, a model's or an engine's folder, is one of the cache volume and not whole."""
    found = _FOLDER.match(str(path))
    if found is None or not path.is_relative_to(CACHE):
        return
    folder = Path(found[0])
    whole = _model(folder) if found[1] == "models" else (path / "config.json").is_file()
    if not whole:
        raise Gone.of(folder)


def check_all(preflight: Mapping[str, Any]) -> None:
    """The same of all that launch.json's `preflight` names. Raises Gone."""
    for path in _paths(preflight):
        check(path)


def _paths(preflight: Mapping[str, Any]) -> Iterator[Path]:
    parts = [preflight.get(role) or {} for role in ("target", "draft", "heads")]
    for part in (*parts, *(preflight.get("engines") or {}).values()):
        yield from (Path(part[name]) for name in ("path", "tokenizer") if part.get(name))


def _model(folder: Path) -> bool:
    """Whether the files are there that .complete lists; the fetcher writes it when they are."""
    try:
        files = json.loads((folder / ".complete").read_text(encoding="utf-8"))["files"]
        return all((folder / file["name"]).stat().st_size == file["size"] for file in files)
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return False
