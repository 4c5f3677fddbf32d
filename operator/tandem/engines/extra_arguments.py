"""`runtime.extraLlmArgs`: arguments that are passed on as they are, beside those that the resource decides. Pure."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tandem.engines.request_parameters import SPECULATION

_MAPPING = "must be a mapping: write the fields that you add below it"


def merge(decided: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Both, nested mappings merged. Where both have a value (see `conflict`) the resource's stands."""
    merged = dict(extra)
    for key, value in decided.items():
        other = merged.pop(key, None)  # what the resource decides comes first in the file
        merged[key] = merge(value, other) if isinstance(value, dict) and isinstance(other, dict) else value
    return {key: merged[key] for key in (*decided, *(key for key in extra if key not in decided))}


def with_defaults(arguments: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, and after them the defaults of those that are absent."""
    return {**arguments, **{name: value for name, value in defaults.items() if name not in arguments}}


def conflict(
    decided: Mapping[str, Any], extra: Mapping[str, Any], fields: Mapping[str, str], origin: Callable[[str], str]
) -> str | None:
    """All arguments in `extra` that the resource decides, as a message naming the field to use for each; else None.

    A file of another tool, pasted as it is, has many of them. `fields`: arguments by their path, and the field that
    decides each, whether it is written or not; `origin`: the field behind one that only some resources decide.
    """
    found = list(_conflicts(decided, extra, "", (fields, origin)))
    wrong = {path: field for path, field in found if field}
    parts = [f"runtime.extraLlmArgs.{path} {_MAPPING}" for path, field in found if not field]
    if len(wrong) == 1:
        ((path, field),) = wrong.items()
        parts.append(f"runtime.extraLlmArgs.{path} is decided by {field}: remove it, and write {field} instead")
    elif wrong:
        each = ", ".join(f"{path} ({field})" for path, field in wrong.items())
        parts.append(f"runtime.extraLlmArgs has what fields decide: remove it, and write the fields instead: {each}")
    return "; ".join(parts) or None


def _conflicts(
    decided: Mapping[str, Any],
    extra: Mapping[str, Any],
    prefix: str,
    known: tuple[Mapping[str, str], Callable[[str], str]],
) -> Iterator[tuple[str, str]]:
    """Paths of arguments with the field that decides each; "" for one that must be a mapping."""
    fields, origin = known
    for key, value in extra.items():
        path = f"{prefix}{key}"
        mine = decided.get(key)
        if path == SPECULATION and mine is None:
            yield path, "speculation.decodingType"
        elif path in fields or (key in decided and not isinstance(mine, dict)):
            yield path, fields.get(path) or origin(path)
        elif isinstance(value, dict):
            yield from _conflicts(mine or {}, value, f"{path}.", known)
        elif isinstance(mine, dict) or any(owned.startswith(f"{path}.") for owned in fields):
            yield path, ""
