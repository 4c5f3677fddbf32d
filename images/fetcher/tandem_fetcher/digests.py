"""Whether a file is whole: the digests that the sources publish."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

_MIB = 1024 * 1024
# Part sizes of S3's usual clients, most usual first: the AWS CLI and boto3 upload in parts of 8 MiB.
_PART_MIB = (8, 16, 5, 10, 15, 20, 25, 32, 50, 64, 100, 128, 256, 512, 1024)


class Hash(Protocol):
    """The part of hashlib's objects that is used here."""

    def update(self, data: bytes, /) -> None:
        """Take more of the content."""

    def hexdigest(self) -> str:
        """Return the digest of the content so far."""


@dataclass(frozen=True)
class Digest:
    """A file's digest. Not `certain`: an ETag that looks like one and, under SSE-KMS for instance, is none."""

    algorithm: str
    value: str
    certain: bool = True

    def hasher(self, size: int) -> Hash:
        """Return the hash of a file of `size` bytes whose hexdigest must become `value`."""
        return _HASHES[self.algorithm](self, size)

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.value}"


def sha256(value: str) -> Digest:
    """SHA-256 of the content: Git LFS's object id (https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md)."""
    return Digest("sha256", value)


def git_blob(value: str) -> Digest:
    """Git's object id of a blob: SHA-1 of "blob SIZE" NUL content."""
    return Digest("git-blob", value)


def from_etag(etag: str | None, size: int) -> Digest | None:
    """Read S3's and Cloud Storage's ETag: MD5 of the content, or of the MD5s of an upload's parts and their number.

    Both hold only without KMS or customer keys, which the ETag does not tell; and the size of the parts is not
    stored: it is the usual one that gives their number. None for other forms.
    https://docs.aws.amazon.com/AmazonS3/latest/API/API_Object.html
    """
    value = (etag or "").strip('"')
    if re.fullmatch(r"[0-9a-f]{32}", value):
        return Digest("md5", value, certain=False)
    if re.fullmatch(r"[0-9a-f]{32}-[0-9]{1,5}", value) and part_size(value, size):
        return Digest("md5-parts", value, certain=False)
    return None


def part_size(etag: str, size: int) -> int | None:
    """Bytes of each part but the last of an upload whose ETag ends with its number of parts."""
    parts = int(etag.rpartition("-")[2])
    return next((mib * _MIB for mib in _PART_MIB if math.ceil(size / (mib * _MIB)) == parts), None)


class _PartsMd5:
    """MD5 of the parts' MD5s."""

    def __init__(self, part: int) -> None:
        self._part, self._room = part, part
        self._finished, self._current = b"", hashlib.md5(usedforsecurity=False)

    def update(self, data: bytes) -> None:
        while data:
            taken, data = data[: self._room], data[self._room :]
            self._current.update(taken)
            self._room -= len(taken)
            if not self._room:
                self._finished += self._current.digest()
                self._current, self._room = hashlib.md5(usedforsecurity=False), self._part

    def hexdigest(self) -> str:
        rest = self._current.digest() if self._room < self._part else b""
        total = self._finished + rest
        return f"{hashlib.md5(total, usedforsecurity=False).hexdigest()}-{len(total) // 16}"


_HASHES: dict[str, Callable[[Digest, int], Hash]] = {
    "sha256": lambda digest, size: hashlib.sha256(),
    "git-blob": lambda digest, size: hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False),
    "md5": lambda digest, size: hashlib.md5(usedforsecurity=False),
    "md5-parts": lambda digest, size: _PartsMd5(part_size(digest.value, size) or size),
}
