"""docs/reference/api.md: every field of the resource, its rules and its status, from the types by way of the CRD."""

from collections.abc import Iterator
from typing import Any

from tandem.api import API_VERSION, KIND
from tandem.api.crd import PRINTER_COLUMNS, Schema, root_schema
from tandem.api.decoding import DecodingType

HEAD = f"""# {KIND}

`{API_VERSION}`; short name `sis`. Generated from the types in operator/tandem/api/types by `make generate`.
A field in **bold** is required. A rule that is broken is refused by the API server with the message shown, whether
or not the operator runs. What needs the profile, the cluster or the models to judge becomes a condition in `status`.
"""


def api_reference() -> str:
    """The whole page, as Markdown."""
    schema = root_schema()["properties"]
    parts = [HEAD, *_section("spec", schema["spec"], 2), *_section("status", schema["status"], 2)]
    parts.append(_decoding_types())
    columns = "\n".join(f"| {name} | `{path}` |" for name, _, path, _ in PRINTER_COLUMNS)
    parts.append(f"## kubectl get\n\n| column | field |\n|---|---|\n{columns}\n")
    return "\n".join(parts)


DECODING_TYPES = """## Decoding types

What each takes of the spec. Which engine and version runs it is in [profiles](profiles.md).

| decodingType | runtime.mode | spec.draft | its block in spec.speculation |
|---|---|---|---|
"""


def _decoding_types() -> str:
    rows = [
        f"| `{kind}` | {', '.join(kind.traits.modes)} | {kind.traits.draft} | {_code(kind.traits.block)} |\n"
        for kind in DecodingType
    ]
    return DECODING_TYPES + "".join(rows)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _section(path: str, node: Schema, level: int) -> Iterator[str]:
    """A heading, a table of the object's own fields, its rules; then the same for the objects in it."""
    yield f"{'#' * min(level, 4)} {path}\n"
    if text := node.get("description"):
        yield f"{text}\n"
    required = node.get("required", [])
    rows = [_row(name, child, name in required) for name, child in node["properties"].items()]
    yield "\n".join(["| field | type | default | |", "|---|---|---|---|", *rows, ""])
    if rules := node.get("x-kubernetes-validations"):
        yield "\n".join(["Refused:", "", *(f"- {_cell(rule['message'])}" for rule in rules), ""])
    for name, child in node["properties"].items():
        inner, suffix = (child["items"], "[]") if child["type"] == "array" else (child, "")
        if "properties" in inner:
            yield from _section(f"{path}.{name}{suffix}", inner, level + 1)


def _row(name: str, node: Schema, required: bool) -> str:
    field = f"**{name}**" if required else name
    default = f"`{_plain(node['default'])}`" if "default" in node else ""
    return f"| {field} | {_type(node)} | {default} | {_cell(node.get('description', ''))} |"


def _type(node: Schema) -> str:
    if enum := node.get("enum"):
        return " \\| ".join(f"`{value}`" for value in enum)
    kind = str(node["type"])
    if kind == "array":
        return f"list of {_type(node['items'])}"
    if isinstance(inner := node.get("additionalProperties"), dict):
        return f"map to {_type(inner)}"
    low, high = node.get("minimum"), node.get("maximum")
    if low is not None and high is not None:
        return f"{kind}, {low} to {high}"
    bounds = f", at least {low}" if low is not None else f", at most {high}" if high is not None else ""
    return f"{kind}{bounds}"


def _plain(value: Any) -> str:
    """A default as YAML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_plain(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_plain, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) or '""'


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
