"""The schema of the chart's values: the settings' own, with a JSON Merge Patch over it."""

from typing import Any

import pytest

from tandem.cli.chart import values_schema

LIMIT = {"properties": {"workers": {"maximum": 8}}}
ROWS: list[tuple[str, dict[str, Any], str, Any]] = [
    # reason, the chart's own part, path of a property, what becomes of it
    ("a setting is a value", {}, "workers.maximum", 256),
    ("its default is not: what is left out is not written", {}, "workers.default", None),
    ("the chart's own part wins", LIMIT, "workers.maximum", 8),
    ("and leaves the rest", LIMIT, "workers.minimum", 1),
    ("null removes", {"properties": {"workers": None}}, "workers", None),
    ("blocks are written out", {}, "lease.properties.durationSeconds.minimum", 2),
    ("and take nothing else", {}, "lease.additionalProperties", False),
    ("so do the chart's own", {"properties": {"own": {"properties": {"a": {}}}}}, "own.additionalProperties", False),
    ("maps stay free", {"properties": {"own": {"type": "object"}}}, "own.additionalProperties", None),
    ("a header's name has a form", {}, "keda.properties.prometheus.properties.headers.additionalProperties", False),
]


@pytest.mark.parametrize(("reason", "own", "path", "wanted"), ROWS, ids=[row[0] for row in ROWS])
def test_values_schema(reason: str, own: dict[str, Any], path: str, wanted: Any) -> None:
    node: Any = values_schema(own)["properties"]
    for key in path.split("."):
        node = node.get(key) if node is not None else None
    assert node == wanted, reason
