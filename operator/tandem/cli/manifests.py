"""Services in a file of manifests, judged offline: the schema and its CEL rules, then the settings' profiles."""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tandem.accept import Accepted, accept, refusals
from tandem.api import API_VERSION, KIND
from tandem.api.types import SpeculativeInferenceService
from tandem.cli import admission, schema_faults
from tandem.cli.admission import ManifestProblem
from tandem.cli.documents import Document, FieldPath, read
from tandem.errors import TandemError
from tandem.settings import Settings

SUFFIXES = (".json", ".yaml", ".yml")
"""Of the files that kubectl reads in a folder."""
_FIELD = re.compile(r"\b[a-z][A-Za-z0-9]*(?:\.[A-Za-z0-9_]+)+")


class ManifestError(TandemError):
    """The file has no service, or one that is wrong; the message says what to write."""


@dataclass(frozen=True)
class Judged:
    """A service, or what should have been one: its faults, or else the profile that runs it.

    A fault is a line for people, with the place where it stands; `name` is empty where it has none.
    """

    name: str
    faults: tuple[str, ...] = ()
    service: SpeculativeInferenceService | None = None
    accepted: Accepted | None = None


@dataclass(frozen=True)
class ManifestSource:
    """The text of a file of manifests; or why it cannot be read."""

    name: str
    text: str = ""
    error: str = ""
    listed: bool = False
    """Whether it was found in a folder, or stands among others: it need not have a service."""


def sources(files: Iterable[Path]) -> list[ManifestSource]:
    """The files, and those of folders that kubectl would read too (not of folders in them)."""
    return [source for file in files for source in _sources(file)]


def _sources(file: Path) -> Iterator[ManifestSource]:
    if not file.is_dir():
        yield _source(file)
        return
    found = sorted(each for each in file.iterdir() if each.suffix in SUFFIXES and not each.is_dir())
    if not found:
        yield ManifestSource(str(file), error=f"there is no {', '.join(f'*{each}' for each in SUFFIXES)} in {file}")
    yield from (replace(_source(each), listed=True) for each in found)


def _source(file: Path) -> ManifestSource:
    try:
        return ManifestSource(str(file), read_text(file))
    except ManifestError as error:
        return ManifestSource(str(file), error=str(error))


def read_text(file: Path) -> str:
    """The text of `file`, of standard input for `-`. Raises ManifestError."""
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return data.decode()
    except OSError as error:
        raise ManifestError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"{file} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def judge_files(files: Iterable[Path], settings: Settings) -> list[Judged]:
    """What these files have; one that cannot be read is a fault, too. `-`: standard input."""
    return judge_sources(sources(files), settings)


def judge_sources(files: Sequence[ManifestSource], settings: Settings | None) -> list[Judged]:
    """What these files have, of which any may have the services of a folder. Without settings the profiles are not
    asked, so that no service is `accepted`."""
    found: list[Judged] = []
    for file in files:
        judged = [] if file.error else _judge_text(file.text, settings, file.name)
        none = file.error or f"{file.name}:1: no {KIND} in the file"
        found += judged or ([Judged("", (none,))] if file.error or not file.listed else [])
    return found or [Judged("", (f"there is no {KIND} in {', '.join(file.name for file in files)}",))]


def judge_all(text: str, settings: Settings, file: str = "") -> list[Judged]:
    """What `text` has, in order; `file`: its name, for faults. One that has no service at all is a fault, too."""
    return judge_sources([ManifestSource(file or "line", text)], settings)


def objects(files: Iterable[ManifestSource]) -> list[dict[str, Any]]:
    """All objects of files that can be read, of whichever kind."""
    return [item for file in files for document in read(file.text) for _, item in _items(document.value)]


def _judge_text(text: str, settings: Settings | None, file: str) -> list[Judged]:
    return [judged for document in read(text) for judged in _judge_document(document, settings, file)]


def accepted_all(text: str, settings: Settings, file: str = "") -> list[tuple[SpeculativeInferenceService, Accepted]]:
    """The services in `text` with their profiles.

    Raises:
        ManifestError: what `judge_all` finds wrong, all of it.
    """
    return accepted(judge_all(text, settings, file))


def accepted(judged: Iterable[Judged]) -> list[tuple[SpeculativeInferenceService, Accepted]]:
    """Services with their profiles. Raises ManifestError: all that is wrong with any."""
    judged = list(judged)
    if faults := [fault for one in judged for fault in one.faults]:
        raise ManifestError("\n".join(faults))
    return [(one.service, one.accepted) for one in judged if one.service and one.accepted]


def _judge_document(document: Document, settings: Settings | None, file: str) -> Iterator[Judged]:
    if document.error:
        yield Judged("", (f"{file}:{document.line}: {document.error}",))
    for path, item in _items(document.value):
        if item.get("kind") == KIND:
            service, profile, faults = _judge(item, settings)
            placed = sorted((document.line_of((*path, *fault.path)), fault) for fault in faults)
            lines = tuple(f"{file}:{line}: {fault.message}" for line, fault in placed)
            yield Judged(service.name if service else "", lines, service, profile)


def _items(document: Any) -> list[tuple[FieldPath, dict[str, Any]]]:
    """The objects of a document with their paths: itself, or those of a List, as `kubectl get` prints it."""
    if not isinstance(document, dict):
        return []
    if document.get("kind") != "List":
        return [((), document)]
    items = document.get("items")
    items = items if isinstance(items, list) else []
    return [(("items", index), item) for index, item in enumerate(items) if isinstance(item, dict)]


def _judge(
    raw: dict[str, Any], settings: Settings | None
) -> tuple[SpeculativeInferenceService | None, Accepted | None, list[ManifestProblem]]:
    """The service and the profile that runs it; else its faults, with paths in `raw`."""
    meta = raw.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str):
        return (
            None,
            None,
            [ManifestProblem(("metadata",), f"a {KIND} has no metadata.name that is a text: write one")],
        )
    raw = admission.without_nulls(raw)
    service, wrong = _parse(raw)
    known = {each.path for each in wrong}
    wrong += [each for each in admission.problems(raw, fits=service is not None) if each.path not in known]
    if raw.get("apiVersion") != API_VERSION:
        wrong.append(ManifestProblem(("apiVersion",), f"write {API_VERSION}"))
    faults = [ManifestProblem(each.path, f"{meta['name']}: {each}") for each in wrong]
    if service is None or settings is None:
        return service, None, faults
    for each in refusals(service.spec, settings, broken=bool(faults)):
        faults.append(ManifestProblem(_named(each.message, raw), f"{meta['name']}: {each.reason}: {each.message}"))
    answer = None if faults else accept(service.spec, settings)
    return service, answer if isinstance(answer, Accepted) else None, faults


def _named(message: str, raw: Mapping[str, Any]) -> FieldPath:
    """The part that a refusal is about: the first field of the spec that its message names and the manifest has."""
    named = (words.removeprefix("spec.").split(".") for words in _FIELD.findall(message))
    return next((("spec", *parts) for parts in named if parts[0] in raw["spec"]), ("spec",))


def _parse(raw: dict[str, Any]) -> tuple[SpeculativeInferenceService | None, list[ManifestProblem]]:
    """The service, or what of its types and bounds is wrong."""
    raw = {**raw, "metadata": {"namespace": "default", **raw["metadata"]}}
    try:
        # As JSON and strict: the API server takes no "2" for 2.
        return SpeculativeInferenceService.model_validate_json(json.dumps(raw), strict=True), []
    except ValidationError as error:
        return None, [schema_faults.problem(each) for each in error.errors()]
