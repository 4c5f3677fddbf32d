"""A source of models in memory, with the faults that a test asks for."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tandem_fetcher import digests
from tandem_fetcher.digests import Digest
from tandem_fetcher.errors import FetchError, Reason
from tandem_fetcher.source import RemoteFile


@dataclass
class MemorySource:
    """`contents` by name. `faults` counts down, for each name, the streams that break after a byte per block."""

    contents: dict[str, bytes]
    block: int = 10
    cut: int = 0
    """Streams that break after their first block."""
    refuse: int = 0
    """Streams that fail before it."""
    damage: dict[str, int] = field(default_factory=dict)
    """How often a file arrives damaged, in another way each time."""
    fatal: str = ""
    """A file that access is denied to."""
    streams: list[tuple[str, int]] = field(default_factory=list)
    """Name and offset of each request."""
    sent: Counter[str] = field(default_factory=Counter)

    def resolve(self, revision: str) -> str:
        return "0" * 40

    def files(self, revision: str) -> list[RemoteFile]:
        return [RemoteFile(name, len(data), self.digest(data)) for name, data in self.contents.items()]

    def digest(self, data: bytes) -> Digest | None:
        return digests.sha256(hashlib.sha256(data).hexdigest())

    def stream(self, revision: str, file: RemoteFile, offset: int) -> Iterator[bytes]:
        self.streams.append((file.name, offset))
        if file.name == self.fatal:
            raise FetchError(Reason.ACCESS_DENIED, "no")
        if self.refuse:
            self.refuse -= 1
            raise FetchError(Reason.SOURCE_UNAVAILABLE, "away")
        data = bytearray(self.contents[file.name])
        if self.damage.get(file.name, 0):
            data[0] ^= self.damage[file.name]
            self.damage[file.name] -= 1
        for start in range(offset, len(data), self.block):
            piece = bytes(data[start : start + self.block])
            self.sent[file.name] += len(piece)
            yield piece
            if self.cut:
                self.cut -= 1
                raise FetchError(Reason.SOURCE_UNAVAILABLE, "cut")


@dataclass
class EtagSource(MemorySource):
    """Publishes ETags that look like MD5 and are none, as under SSE-KMS."""

    def digest(self, data: bytes) -> Digest | None:
        return digests.from_etag(f'"{hashlib.md5(b"key" + data).hexdigest()}"', len(data))
