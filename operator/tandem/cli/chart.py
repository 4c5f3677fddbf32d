"""What the Helm chart has of the code: the schema of its values, rights on autoscalers, names of the profiles, the
version."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tandem import __version__
from tandem.autoscaling import SOURCES
from tandem.settings import Settings, shipped_profiles

Schema = dict[str, Any]
OWN_VALUES = "values.schema.yaml"
"""The chart's own part of the schema."""
VERBS = ["get", "list", "watch", "create", "patch", "delete"]


def generated(chart: Path) -> dict[Path, str]:
    """The generated files of the chart in folder `chart`: path to text."""
    own = yaml.safe_load((chart / OWN_VALUES).read_text(encoding="utf-8"))
    return {
        chart / "values.schema.json": json.dumps(values_schema(own), indent=2, ensure_ascii=False) + "\n",
        chart / "Chart.yaml": _of_this_version((chart / "Chart.yaml").read_text(encoding="utf-8")),
        chart / "files" / "autoscalers.yaml": _autoscaler_rules(),
        chart / "files" / "profiles.txt": "".join(f"{profile['name']}\n" for profile in shipped_profiles()),
    }


def values_schema(own: Schema) -> Schema:
    """JSON Schema of the chart's values: that of the settings, with `own`, a JSON Merge Patch, over it."""
    document = Settings.model_json_schema(by_alias=True)
    schema = _inline(document, document.pop("$defs"))
    closed: Schema = _closed(_merge_patch({"$schema": "", "title": "", **schema}, own))
    return closed


def _inline(node: Any, definitions: Mapping[str, Schema]) -> Any:
    """`node` without references, titles and defaults: a value that is left out is not written into the settings."""
    if isinstance(node, list):
        return [_inline(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        node = {**definitions[node["$ref"].rsplit("/", 1)[-1]], **node}
    schema = {key: value for key, value in node.items() if key not in ("$ref", "title", "default", "properties")}
    inlined = {key: _inline(value, definitions) for key, value in schema.items()}
    if "description" in inlined:
        inlined["description"] = " ".join(inlined["description"].split())
    if "properties" in node:
        inlined["properties"] = {name: _inline(child, definitions) for name, child in node["properties"].items()}
    return inlined


def _merge_patch(target: Any, patch: Any) -> Any:
    """https://www.rfc-editor.org/rfc/rfc7396#section-2."""
    if not isinstance(patch, dict):
        return patch
    kept = {**target} if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            kept.pop(key, None)
        else:
            kept[key] = _merge_patch(kept.get(key), value)
    return kept


def _closed(node: Any) -> Any:
    """`node`, in which objects that list their properties take no others, so that a misspelt value is refused."""
    if isinstance(node, list):
        return [_closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    closed = {key: _closed(value) for key, value in node.items() if key != "properties"}
    if "properties" in node:
        closed["properties"] = {name: _closed(child) for name, child in node["properties"].items()}
        closed["type"] = "object"
    if "properties" in node or "patternProperties" in node:
        closed["additionalProperties"] = False
    return closed


def _of_this_version(text: str) -> str:
    """The text of a Chart.yaml with the version of this package."""
    return re.sub(r"^(version|appVersion): .*$", rf"\1: {__version__}", text, flags=re.MULTILINE)


def _autoscaler_rules() -> str:
    """RBAC rules: what the operator may do with the objects of all autoscaling sources, one rule for each kind."""
    kinds = dict.fromkeys((source.api_version.partition("/")[0], source.plural) for source in SOURCES.values())
    rules = [{"apiGroups": [group], "resources": [plural], "verbs": VERBS} for group, plural in kinds]
    return "".join(f"- {json.dumps(rule)}\n" for rule in rules)
