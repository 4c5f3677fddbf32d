"""Brings the files of a model into its folder of the cache: in parallel, resumed, verified."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from tandem_fetcher.cache import Entry
from tandem_fetcher.digests import Hash
from tandem_fetcher.errors import FetchError, Reason
from tandem_fetcher.progress import Progress
from tandem_fetcher.source import RemoteFile, Source

_LOG = logging.getLogger(__name__)
_READ = 8 * 1024 * 1024
RETRIES = 5
"""Consecutive failures of a file, without a byte between them, after which the pod gives up."""


@dataclass
class Download:
    """One fetch of one pinned revision. `free`: bytes left where a folder lies."""

    source: Source
    revision: str
    entry: Entry
    progress: Progress
    parallel: int = 4
    backoff: float = 1.0
    free: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free
    _stop: threading.Event = field(default_factory=threading.Event)
    _etags_are_digests: bool = True

    def run(self, files: Sequence[RemoteFile]) -> None:
        """Bring all files, the entry's lock held. Raises FetchError, and OSError of the cache."""
        self.progress.start(sum(file.size for file in files), len(files))
        self._check_space(files)
        with ThreadPoolExecutor(self.parallel, thread_name_prefix="fetch") as threads:
            futures = [threads.submit(self._bring, file) for file in files]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            # After a failure those under way stop at their next block, and keep what they have.
            self._stop.set()
            threads.shutdown(cancel_futures=True)
        for future in done:
            future.result()
        shutil.rmtree(self.entry.folder / ".partial", ignore_errors=True)

    def _check_space(self, files: Sequence[RemoteFile]) -> None:
        here = sum(min(self._present(file), file.size) for file in files)
        need, free = self.progress.total - here, self.free(self.entry.folder)
        if need > free:
            message = (
                f"the cache volume lacks {need - free} bytes: the model needs {need} more and {free} are free; "
                "enlarge the volume or remove models that nobody uses"
            )
            raise FetchError(Reason.DISK_FULL, message)

    def _present(self, file: RemoteFile) -> int:
        """Bytes of a file that need not be fetched."""
        paths = (self.entry.folder / file.name, self.entry.partial(file.name))
        return next((path.stat().st_size for path in paths if path.is_file()), 0)

    def _bring(self, file: RemoteFile) -> None:
        final = self.entry.folder / file.name
        # A file has its final name only after it was verified.
        if final.is_file() and final.stat().st_size == file.size:
            self.progress.add(file.size)
        else:
            self._verified(file)
            self.entry.publish(file.name)
        self.progress.file_done()

    def _verified(self, file: RemoteFile) -> None:
        """Fetch into the partial file; a second time, from the start, when the first does not have the digest."""
        first = self._complete(file)
        if self._agrees(file, first):
            return
        _LOG.warning("%s: the digest is %s instead of %s: fetching it again", file.name, first, file.digest)
        self.entry.partial(file.name).unlink()
        self.progress.add(-file.size)
        second = self._complete(file)
        if self._agrees(file, second):
            return
        if file.digest is not None and not file.digest.certain and first == second:
            # The same bytes came twice: the ETag is no digest here, and its like are not either.
            self._etags_are_digests = False
            return
        self.entry.partial(file.name).unlink()
        message = (
            f"{file.name} arrived damaged twice ({second} instead of {file.digest}): "
            "repair it at its source, or look for a proxy that changes it"
        )
        raise FetchError(Reason.CHECKSUM_MISMATCH, message)

    def _agrees(self, file: RemoteFile, found: str) -> bool:
        digest = file.digest
        if digest is None or not (digest.certain or self._etags_are_digests):
            return True
        return found == digest.value

    def _complete(self, file: RemoteFile) -> str:
        """Fetch what the partial file lacks; return the digest of all of it ("" without one to compare with)."""
        path = self.entry.partial(file.name)
        path.touch()
        if path.stat().st_size > file.size:
            os.truncate(path, 0)
        hasher = file.digest.hasher(file.size) if file.digest is not None else None
        # Unbuffered: whatever kills the process, what came is in the file.
        with path.open("r+b", buffering=0) as target:
            self._append(file, target, hasher)
            os.fsync(target.fileno())
        return hasher.hexdigest() if hasher is not None else ""

    def _append(self, file: RemoteFile, target: BinaryIO, hasher: Hash | None) -> None:
        offset = self._take(target, hasher)
        failures = 0
        while offset < file.size:
            before = offset
            try:
                for block in self.source.stream(self.revision, file, offset):
                    # More than was listed is no part of the file.
                    offset += self._write(block[: file.size - offset], target, hasher)
                problem = FetchError(Reason.SOURCE_UNAVAILABLE, f"{file.name} ended after {offset} bytes")
            except FetchError as error:
                if error.reason is not Reason.SOURCE_UNAVAILABLE:
                    raise
                problem = error
            failures = 1 if offset > before else failures + 1
            if offset < file.size:
                self._pause(failures, problem)

    def _take(self, target: BinaryIO, hasher: Hash | None) -> int:
        """Count and hash what an earlier try left; the file stands at its end then."""
        while hasher is not None and (block := target.read(_READ)):
            hasher.update(block)
        size = target.seek(0, os.SEEK_END)
        self.progress.add(size)
        return size

    def _write(self, block: bytes, target: BinaryIO, hasher: Hash | None) -> int:
        if self._stop.is_set():
            raise FetchError(Reason.INTERRUPTED, "another file failed")
        view = memoryview(block)
        while view:
            view = view[target.write(view) :]
        if hasher is not None:
            hasher.update(block)
        self.progress.add(len(block))
        return len(block)

    def _pause(self, failures: int, problem: FetchError) -> None:
        if failures > RETRIES:
            raise problem
        _LOG.warning("%s; trying again", problem)
        if self._stop.wait(self.backoff * 2 ** (failures - 1)):
            raise FetchError(Reason.INTERRUPTED, "another file failed")
