"""What the API server does with an object before it stores it, offline, by the CRD's schema: nulls, defaults,
unknown fields, CEL rules. Types and bounds are pydantic's to check, from the same source."""

import copy
import difflib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from tandem.api.crd import root_schema
from tandem.cli.not_allowed import why_not

Schema = dict[str, Any]
METADATA = {
    *("name", "generateName", "namespace", "labels", "annotations", "finalizers", "ownerReferences", "managedFields"),
    *("uid", "resourceVersion", "generation", "selfLink"),
    *("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
}
"""Fields of meta/v1 ObjectMeta, which are Kubernetes' own and not in the CRD's schema."""
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
OPEN = "x-kubernetes-preserve-unknown-fields"


def without_nulls(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest without fields that are null: to the API server they are absent.

    https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#defaulting-and-nullable
    """
    kept: dict[str, Any] = _without_nulls(manifest, _schema())
    return kept


class ManifestProblem(NamedTuple):
    """What is wrong with a part of a manifest, and what to write instead."""

    path: tuple[str | int, ...]
    message: str

    def __str__(self) -> str:
        """As one line."""
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path).lstrip(".")
        return f"{path or 'resource'}: {self.message}"


def problems(manifest: dict[str, Any], *, fits: bool = True) -> list[ManifestProblem]:
    """What the API server would refuse in a manifest, besides types and bounds. `fits`: those are right; else it
    evaluates no rules, and neither does this."""
    schema = _schema()
    return [*_of_metadata(manifest["metadata"]), *_problems(_defaulted(manifest, schema), schema, (), fits)]


def schema_of(path: Sequence[str | int]) -> Schema:
    """The CRD's schema of a part; empty where it has none."""
    found = _schema()
    for part in path:
        found = found.get("items", {}) if isinstance(part, int) else _child(found, part)
    return found


def _of_metadata(metadata: dict[str, Any]) -> Iterator[ManifestProblem]:
    for key in sorted(metadata.keys() - METADATA):
        yield ManifestProblem(("metadata", key), "unknown field: check its spelling, or remove it")
    if not isinstance(metadata.get("namespace", ""), str):
        yield ManifestProblem(("metadata", "namespace"), "must be a text: put it in quotes")
    for kind in ("labels", "annotations"):
        texts = metadata.get(kind, {})
        if not isinstance(texts, dict):
            yield ManifestProblem(("metadata", kind), "must be names with their texts")
            continue
        for key, value in texts.items():
            if not isinstance(value, str):
                yield ManifestProblem(("metadata", kind, key), "must be a text: put it in quotes")
            elif kind == "labels" and not LABEL_VALUE.fullmatch(value):
                message = (
                    "must be at most 63 letters, digits, '-', '_' and '.', the first and the last of them a letter or"
                    " digit"
                )
                yield ManifestProblem(("metadata", kind, key), message)


@cache
def _schema() -> Schema:
    return root_schema()


@cache
def _cel() -> Callable[[str, dict[str, Any]], Any]:
    """Evaluates an expression with its variables."""
    # The package imports its interactive shell (prompt_toolkit, pygments, rich), which takes longer than the rest.
    sys.modules.setdefault("cel.cli", ModuleType("cel.cli"))
    import cel

    return cel.evaluate


def _without_nulls(data: Any, schema: Schema) -> Any:
    if isinstance(data, dict) and OPEN not in schema:
        return {key: _without_nulls(value, _child(schema, key)) for key, value in data.items() if value is not None}
    if isinstance(data, list):
        return [_without_nulls(item, schema.get("items", {})) for item in data]
    return data


def _defaulted(data: Any, schema: Schema) -> Any:
    """`data` with the schema's defaults: set where absent, then filled in themselves."""
    if isinstance(data, dict):
        filled = {key: child["default"] for key, child in schema.get("properties", {}).items() if "default" in child}
        return {
            key: _defaulted(value, _child(schema, key)) for key, value in {**copy.deepcopy(filled), **data}.items()
        }
    if isinstance(data, list):
        return [_defaulted(item, schema.get("items", {})) for item in data]
    return data


def _child(schema: Schema, key: str) -> Schema:
    children: Schema = schema.get("properties", {})
    child: Schema = children.get(key) or schema.get("additionalProperties") or {}
    return child


def _problems(data: Any, schema: Schema, path: tuple[str | int, ...], fits: bool) -> Iterator[ManifestProblem]:
    for rule in schema.get("x-kubernetes-validations", []) if fits else []:
        if not holds(rule["rule"], data):
            yield ManifestProblem(path, rule["message"])
    if isinstance(data, dict):
        closed = "properties" in schema and OPEN not in schema
        for key, value in data.items():
            if closed and key not in schema["properties"]:
                known = schema["properties"]
                yield ManifestProblem((*path, key), why_not((*path, key)) or f"unknown field: {_meant(key, known)}")
            else:
                yield from _problems(value, _child(schema, key), (*path, key), fits)
    elif isinstance(data, list):
        for index, item in enumerate(data):
            yield from _problems(item, schema.get("items", {}), (*path, index), fits)


def holds(rule: str, data: Any) -> bool:
    """What a CEL rule makes of `data`, its `self`."""
    return bool(_cel()(rule, {"self": data}))


def similar(word: str, known: Iterable[str]) -> str:
    """The known words that a misspelt one resembles: `A`, or `A or B`; empty where none does."""
    by_lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(word.lower(), by_lower, n=2, cutoff=0.8)
    return " or ".join(by_lower[each] for each in found)


def _meant(key: str, known: Iterable[str]) -> str:
    likely = similar(key, known)
    return f"did you mean {likely}?" if likely else "check its spelling, or remove it"
