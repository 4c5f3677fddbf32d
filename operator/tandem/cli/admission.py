"""What the API server does with an object before it stores it, offline, by the CRD's schema: nulls, defaults,
unknown fields, CEL rules. Types and bounds are pydantic's to check, from the same source."""

import copy
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Any

from tandem.api.crd import root_schema

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


def problems(manifest: dict[str, Any]) -> list[str]:
    """What the API server would refuse in a manifest that fits the API types, each with its path."""
    schema = _schema()
    return [*_of_metadata(manifest["metadata"]), *_problems(_defaulted(manifest, schema), schema, "")]


def _of_metadata(metadata: dict[str, Any]) -> Iterator[str]:
    for key in sorted(metadata.keys() - METADATA):
        yield f"metadata.{key}: unknown field: check its spelling, or remove it"
    if not isinstance(metadata.get("namespace", ""), str):
        yield "metadata.namespace: must be a text: put it in quotes"
    for kind in ("labels", "annotations"):
        texts = metadata.get(kind, {})
        if not isinstance(texts, dict):
            yield f"metadata.{kind}: must be names with their texts"
            continue
        for key, value in texts.items():
            if not isinstance(value, str):
                yield f"metadata.{kind}.{key}: must be a text: put it in quotes"
            elif kind == "labels" and not LABEL_VALUE.fullmatch(value):
                yield (
                    f"metadata.labels.{key}: must be at most 63 letters, digits, '-', '_' and '.', the first and the"
                    " last of them a letter or digit"
                )


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


def _problems(data: Any, schema: Schema, path: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", []):
        if not _cel()(rule["rule"], {"self": data}):
            yield f"{path or 'resource'}: {rule['message']}"
    if isinstance(data, dict):
        closed = "properties" in schema and OPEN not in schema
        for key, value in data.items():
            below = f"{path}.{key}" if path else str(key)
            if closed and key not in schema["properties"]:
                yield f"{below}: unknown field: check its spelling, or remove it"
            else:
                yield from _problems(value, _child(schema, key), below)
    elif isinstance(data, list):
        for index, item in enumerate(data):
            yield from _problems(item, schema.get("items", {}), f"{path}[{index}]")
