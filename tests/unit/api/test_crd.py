"""The CRD is made from the types, is current, and describes every field."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tandem.api.crd import crd, root_schema
from tandem.api.reference import api_reference
from tandem.api.types import SpeculativeInferenceService
from tandem.cli.admission import holds

RULES = "x-kubernetes-validations"
REPOSITORY = Path(__file__).parents[3]


def test_the_crd_in_the_repository_is_current() -> None:
    written = (REPOSITORY / "crds/speculativeinferenceservices.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(written) == crd(), "run `make generate`"


def test_the_reference_in_the_repository_is_current() -> None:
    page = (REPOSITORY / "docs/reference/api.md").read_text(encoding="utf-8")
    assert page == api_reference(), "run `make generate`"


def test_the_reference_names_every_field_and_every_rule() -> None:
    page = api_reference()
    for path, schema in walk(root_schema()["properties"]["spec"], "spec"):
        name = path.rsplit(".", 1)[-1].removesuffix("[]")
        assert path.endswith("[]") or f"| {name} |" in page or f"**{name}**" in page or f"## {path}" in page, path
        for rule in schema.get("x-kubernetes-validations", []):
            assert rule["message"].replace("|", "\\|") in page


def walk(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from walk(schema[key], f"{path}[]")


def test_every_field_is_described() -> None:
    plain = {"", ".apiVersion", ".kind", ".metadata"}
    missing = [
        path
        for path, schema in walk(root_schema())
        if path not in plain and not path.endswith("[]") and not schema.get("description")
    ]
    assert missing == []


def test_the_schema_is_structural_and_bounded() -> None:
    """Each node has a type; each string and list of the spec a bound, which the cost of CEL needs."""
    untyped = [path for path, schema in walk(root_schema()) if "type" not in schema]
    assert untyped == []
    unbounded = [
        path
        for path, schema in walk(root_schema()["properties"]["spec"])
        if (schema["type"] == "string" and not {"maxLength", "enum"} & schema.keys())
        or (schema["type"] == "array" and "maxItems" not in schema)
        or ("additionalProperties" in schema and "maxProperties" not in schema)
    ]
    assert unbounded == []


def test_what_the_schema_cannot_bound_the_types_take() -> None:
    """Else the API server takes an object that the operator cannot read, and nobody is told.

    Kubernetes' schemas know no `propertyNames`; of whole numbers they hold those against a `minimum` rounded down.
    """
    nodes: list[Any] = [SpeculativeInferenceService.model_json_schema()]
    for node in nodes:
        if isinstance(node, dict):
            assert "propertyNames" not in node, node
            least = node.get("minimum", 0)
            assert isinstance(least, dict) or least == int(least), node
        nodes.extend(node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())


def test_the_rules_hold_for_defaults_as_they_are_written() -> None:
    """The API server checks a default by itself, before the defaults below it are filled in."""
    defaults = [(path, schema) for path, schema in walk(root_schema()) if isinstance(schema.get("default"), dict)]
    rules = [(path, rule["rule"], schema["default"]) for path, schema in defaults for rule in schema.get(RULES, [])]
    assert rules
    for path, rule, default in rules:
        assert holds(rule, default), path
