"""What the downloader asks of a source of models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from tandem_fetcher.digests import Digest

BLOCK = 256 * 1024
"""Bytes that a source yields at a time, about; a connection that breaks loses at most one."""


@dataclass(frozen=True)
class RemoteFile:
    """A file of the model: its path relative to the model's folder, its bytes, and what tells whether it is whole."""

    name: str
    size: int
    digest: Digest | None


class Source(Protocol):
    """A model at a place. All methods raise FetchError."""

    def resolve(self, revision: str) -> str:
        """Return the 40 hex digits that pin what the revision means now; "" is the source's default."""

    def files(self, revision: str) -> list[RemoteFile]:
        """List every file of a pinned revision."""

    def stream(self, revision: str, file: RemoteFile, offset: int) -> Iterator[bytes]:
        """Yield the file's bytes from an offset on. May end early: the caller then asks again."""
