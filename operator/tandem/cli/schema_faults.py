"""Faults of types and bounds, as pydantic finds them, in words that say what to write: by the CRD's schema."""

import json
from collections.abc import Mapping
from typing import Any

from tandem.cli.admission import ManifestProblem, schema_of, similar

PATTERNS = {
    r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$": "a name of lower-case letters, digits, '-' and '.', such as my-secret",
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$": "a name of lower-case letters, digits and '-', such as my-claim",
    r"^[A-Za-z0-9]([A-Za-z0-9._/:@+-]*[A-Za-z0-9])?$": "a model's name, such as meta-llama/Llama-3.3-70B-Instruct",
    r"^[A-Za-z0-9._/-]+$": "a branch, tag or commit: letters, digits, '.', '_', '/' and '-'",
    r"^[A-Za-z0-9._-]+$": "a key of a ConfigMap: letters, digits, '.', '_' and '-'",
    r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$": "a module and its attribute, such as my_drafter:Drafter",
    r"^[A-Za-z][A-Za-z0-9_]*$": "a word of letters, digits and '_', such as PARD",
    r"^[^\s\x24]+$": "a marker without spaces, such as <think>",
    r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$": "the name of a resource, such as nvidia.com/gpu",
    r"^(\*\.)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$": "a host name, such as llm.example.com or *.example.com",
    r"^(/[A-Za-z0-9._~-]+)+$": "a path without an end, such as /llama",
    r"^[1-9][0-9]*(Gi|Ti|G|T)$": "a size such as 500Gi",
    r"^[0-9]{1,6}(\.[0-9]{1,3})?(ms|s)$": "a time such as 500ms or 2s",
}
"""What a text of the schema's patterns is, for people."""
_MOST_SHOWN = 60


def problem(error: Mapping[str, Any]) -> ManifestProblem:
    """One of `ValidationError.errors()`, for a manifest that was validated as JSON."""
    path = tuple(error["loc"])
    schema = schema_of(path)
    if error["type"] == "missing":
        return ManifestProblem(path, f"missing: write {_wanted(schema)}")
    value, kind = error["input"], schema.get("type")
    if isinstance(value, str) and (likely := similar(value, map(str, schema.get("enum", ())))):
        return ManifestProblem(path, f"{_shown(value)} is not allowed: did you mean {likely}?")
    quotes = ""
    if kind == "string" and isinstance(value, bool | int | float):
        quotes = " (put it in quotes)"
    elif kind in ("integer", "number", "boolean") and isinstance(value, str):
        quotes = ", without quotes"
    return ManifestProblem(path, f"{_shown(value)} is not allowed: write {_wanted(schema)}{quotes}")


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _wanted(schema: Mapping[str, Any]) -> str:
    """What a field takes."""
    if names := schema.get("enum"):
        return _either([str(name) for name in names])
    match schema.get("type"):
        case "integer" | "number" as kind:
            bounds = _bounds(schema.get("minimum"), schema.get("maximum")).replace(" of ", " from ", 1)
            return ("a whole number" if kind == "integer" else "a number") + bounds
        case "boolean":
            return "true or false"
        case "string":
            return _text(schema)
        case "array":
            return "a list" + _bounds(schema.get("minItems"), schema.get("maxItems"))
        case "object":
            needed = schema.get("required")
            return f"a mapping with {' and '.join(needed)}" if needed else "a mapping"
    return "something else: see docs/reference/api.md"


def _text(schema: Mapping[str, Any]) -> str:
    if pattern := schema.get("pattern"):
        return PATTERNS.get(pattern, f"a text of the form {pattern}")
    least, most = schema.get("minLength"), schema.get("maxLength")
    return f"a text{_bounds(least, most)} characters" if least or most else "a text"


def _bounds(least: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f" of {least} to {most}"
    if least is not None:
        return f" of {least} or more"
    return f" of at most {most}" if most is not None else ""


def _either(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
