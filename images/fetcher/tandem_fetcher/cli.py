"""The commands: `fetch` brings a model into the cache, `resolve` pins its revision, `prune` removes unused ones.

Each ends with one line of JSON: the first two with a verdict.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tandem_fetcher import environment, verdict
from tandem_fetcher import progress as progress_module
from tandem_fetcher import uri as uri_module
from tandem_fetcher.cache import CachedFile, Entry, Manifest, model_path
from tandem_fetcher.download import Download
from tandem_fetcher.errors import FetchError, Reason, cache_error
from tandem_fetcher.progress import Progress
from tandem_fetcher.prune import prune
from tandem_fetcher.selection import select
from tandem_fetcher.source import RemoteFile, Source
from tandem_fetcher.uri import ModelUri
from tandem_fetcher.verdict import Pinned

_LOG = logging.getLogger("tandem_fetcher")
MOST_NAMES, MOST_LEFT, MOST_CHARACTERS = 60, 10, 80
"""Folders that prune names, those that it removed and others, and characters of a name as JSON: a termination
message has 4 KiB."""
_PINNED = re.compile(r"[0-9a-f]{40}")


@dataclass
class Task:
    """One command's work, and what it knows so far."""

    options: argparse.Namespace
    progress: Progress = field(default_factory=Progress)
    pinned: Pinned = field(default_factory=Pinned)

    def resolve(self) -> str:
        """Pin the revision and list what would be fetched."""
        uri = uri_module.parse(self.options.uri)
        self._list(open_source(uri), uri)
        message = f"{uri} is at revision {self.pinned.revision}"
        return verdict.render("Unknown", "RevisionResolved", message, self.pinned)

    def fetch(self) -> str:
        """Bring the model into the cache; a complete one is neither asked for nor touched."""
        uri = uri_module.parse(self.options.uri)
        # A pinned revision that is complete needs no source.
        if _PINNED.fullmatch(self.options.revision) and (found := self._cached(uri, self.options.revision)):
            return found
        source = open_source(uri)
        files = self._list(source, uri)
        if found := self._cached(uri, self.pinned.revision):
            return found
        try:
            return self._write(source, uri, files)
        except OSError as error:
            raise cache_error(error) from error

    def _list(self, source: Source, uri: ModelUri) -> list[RemoteFile]:
        revision = source.resolve(self.options.revision)
        files = select(source.files(revision), self.options.allow)
        self._pin(uri, revision, sum(file.size for file in files), len(files))
        return files

    def _pin(self, uri: ModelUri, revision: str, size: int, files: int) -> None:
        self.pinned = Pinned(revision, model_path(uri, revision, self.options.allow), size, files)

    def _entry(self, path: str) -> Entry:
        return Entry(self.options.cache / path, environment.namespace())

    def _cached(self, uri: ModelUri, revision: str) -> str | None:
        entry = self._entry(model_path(uri, revision, self.options.allow))
        try:
            if entry.manifest() is None:  # somebody may hold it for hours, to write it
                return None
            with entry.kept():
                return self._found(entry, uri, revision)
        except OSError as error:
            raise cache_error(error) from error

    def _found(self, entry: Entry, uri: ModelUri, revision: str) -> str | None:
        """What the folder, which is held, has. Raises OSError."""
        manifest = entry.manifest()
        if manifest is None:
            return None
        self._pin(uri, revision, manifest.size, len(manifest.files))
        entry.touch()
        return self._ready("Cached", uri)

    def prune(self) -> str:
        """Remove what is not to be kept."""
        options = self.options
        try:
            found = prune(
                options.cache, options.keep, options.young, dry_run=options.dry_run, namespace=environment.namespace()
            )
        except OSError as error:
            raise cache_error(error) from error
        left = {_short(name): found.left[name] for name in sorted(found.left)[:MOST_LEFT]}
        return json.dumps(
            {
                "removed": found.removed[:MOST_NAMES],
                "folders": len(found.removed),
                "bytes": found.bytes,
                "left": left,
                "leftFolders": len(found.left),
            }
        )

    def _write(self, source: Source, uri: ModelUri, files: list[RemoteFile]) -> str:
        entry = self._entry(self.pinned.path)
        with entry.lock(waiting=self._waiting):
            if found := self._found(entry, uri, self.pinned.revision):
                return found  # the one that held the lock has fetched it
            Download(source, self.pinned.revision, entry, self.progress, self.options.parallel).run(files)
            listed = tuple(CachedFile(file.name, file.size, str(file.digest or "")) for file in files)
            entry.complete(Manifest(str(uri), self.pinned.revision, listed))
        return self._ready("Fetched", uri)

    def _waiting(self) -> None:
        self.progress.phase = "Waiting"
        _LOG.info("another pod fetches the same model: waiting for it")

    def _ready(self, reason: str, uri: ModelUri) -> str:
        self.progress.phase = "Complete"
        message = f"{uri} at {self.pinned.revision}: {self.pinned.bytes} bytes in {self.pinned.files} files"
        return verdict.render("True", reason, message, self.pinned)


def _short(name: str) -> str:
    text = json.dumps(name)[1:-1]
    return name if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


def open_source(uri: ModelUri) -> Source:
    """Return the source of a URI. Its libraries are loaded when they are needed: they read the environment then."""
    environment.prepare(uri.scheme)
    if uri.scheme == "hf":
        from tandem_fetcher.hub import Hub

        return Hub(uri)
    from tandem_fetcher.buckets import Bucket

    return Bucket(uri)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns its exit code: 0 when the verdict is final, 1 when trying again can help."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    _LOG.setLevel(logging.INFO)
    task = Task(options)
    _end_on_sigterm(task)
    progress_module.log(task.progress)
    if getattr(options, "port", None) is not None:
        progress_module.serve(task.progress, options.port)
    work: Callable[[], str] = getattr(task, options.command)
    try:
        text, code = work(), 0
    except FetchError as error:
        text, code = verdict.failure(error, task.pinned), int(error.passing)
    _tell(options.termination_log, text)
    return code


def _end_on_sigterm(task: Task) -> None:
    """A pod that must go says so and goes: what it has written is what a killed one leaves."""

    def end(number: int, frame: FrameType | None) -> None:
        error = FetchError(Reason.INTERRUPTED, "the pod was stopped: the next one goes on where it ended")
        _tell(task.options.termination_log, verdict.failure(error, task.pinned))
        os._exit(1)

    signal.signal(signal.SIGTERM, end)


def _tell(termination_log: Path | None, text: str) -> None:
    print(text, flush=True)
    if termination_log is not None:
        termination_log.write_text(text, encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tandem_fetcher", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")
    for name, text in (("fetch", "bring a model into the cache"), ("resolve", "pin a revision, list its files")):
        command = commands.add_parser(name, help=text)
        command.add_argument("--uri", required=True, help="hf://org/name[/folder], s3://bucket/prefix, gs://...")
        command.add_argument("--revision", default="", help="branch, tag, commit or pinned revision")
        command.add_argument("--allow", action="append", default=[], help="pattern of files to take; repeatable")
        command.add_argument("--termination-log", type=Path, help="file that also gets the verdict")
    fetch = commands.choices["fetch"]
    fetch.add_argument("--cache", type=Path, default="/cache", help="root of the cache volume")
    fetch.add_argument("--port", type=int, default=8080, help="port of GET /progress")
    fetch.add_argument("--parallel", type=int, default=4, help="files at a time")
    remove = commands.add_parser("prune", help="remove models and engines that no service uses")
    remove.add_argument("--cache", type=Path, default="/cache", help="root of the cache volume")
    remove.add_argument(
        "--keep", action="append", default=[], help="folder that stays, such as models/KEY; repeatable"
    )
    remove.add_argument("--young", type=float, default=3600, help="keep what was written or asked for so lately, s")
    remove.add_argument("--dry-run", action="store_true", help="only tell")
    remove.add_argument("--termination-log", type=Path, help="file that also gets the result")
    return parser
