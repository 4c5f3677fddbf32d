"""Services in a file of manifests, judged offline: the schema and its CEL rules, then the settings' profiles."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tandem.accept import Accepted, Refusal, accept
from tandem.api import API_VERSION, KIND
from tandem.api.types import SpeculativeInferenceService
from tandem.cli import admission
from tandem.cli.documents import documents
from tandem.errors import TandemError
from tandem.settings import Settings


class ManifestError(TandemError):
    """The file has no service, or one that is wrong; the message says what to write."""


@dataclass(frozen=True)
class Judged:
    """A service, and why it is refused, or else the profile that runs it."""

    service: SpeculativeInferenceService
    problems: tuple[str, ...] = ()
    accepted: Accepted | None = None


def read_text(file: Path) -> str:
    """The text of `file`, of standard input for `-`. Raises ManifestError."""
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return data.decode()
    except OSError as error:
        raise ManifestError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"{file} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def judge_all(text: str, settings: Settings) -> list[Judged]:
    """The services in `text`, in order.

    Raises:
        ManifestError: no YAML, no service in it, or one that does not fit the schema.
    """
    return [_judge(raw, settings) for raw in _services(text)]


def accepted_all(text: str, settings: Settings) -> list[tuple[SpeculativeInferenceService, Accepted]]:
    """The services in `text` with their profiles.

    Raises:
        ManifestError: as `judge_all`, or the first service that is refused.
    """
    found = []
    for judged in judge_all(text, settings):
        if judged.accepted is None:
            raise ManifestError("\n  ".join([f"{judged.service.name}:", *judged.problems]))
        found.append((judged.service, judged.accepted))
    return found


def _judge(raw: dict[str, Any], settings: Settings) -> Judged:
    raw = admission.without_nulls(raw)
    service = _parse(raw)
    if raw.get("apiVersion") != API_VERSION:
        return Judged(service, (f"apiVersion: write {API_VERSION}",))
    if problems := admission.problems(raw):
        return Judged(service, tuple(problems))
    accepted = accept(service.spec, settings)
    if isinstance(accepted, Refusal):
        return Judged(service, (f"{accepted.reason}: {accepted.message}",))
    return Judged(service, accepted=accepted)


def _services(text: str) -> list[dict[str, Any]]:
    try:
        found = documents(text)
    except ValueError as error:
        raise ManifestError(str(error)) from error
    services = [each for document in found for each in _items(document) if each.get("kind") == KIND]
    if not services:
        raise ManifestError(f"no {KIND} in the file")
    return services


def _items(document: Any) -> list[dict[str, Any]]:
    """The objects of a document: itself, or those of a List, as `kubectl get` prints it."""
    if not isinstance(document, dict):
        return []
    items = document.get("items") if document.get("kind") == "List" else [document]
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _parse(raw: dict[str, Any]) -> SpeculativeInferenceService:
    meta = raw.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str):
        raise ManifestError(f"a {KIND} in the file has no metadata.name that is a text: write one")
    raw = {**raw, "metadata": {"namespace": "default", **meta}}
    try:
        # As JSON and strict: the API server takes no "2" for 2.
        return SpeculativeInferenceService.model_validate_json(json.dumps(raw), strict=True)
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise ManifestError("\n".join([f"{meta['name']}:", *lines])) from error
