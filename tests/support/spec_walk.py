"""Specs of services that are drawn from the CRD's own schema: what a user may write, and what nobody would."""

from collections.abc import Iterator
from pathlib import Path as File
from typing import Any

import yaml
from hypothesis import strategies as st

from .simulation.api import copied

ROOT = File(__file__).parents[2]
CRD = ROOT / "crds" / "speculativeinferenceservices.yaml"
MANY = 3
"""Items of a list, and keys of an object that may have any: more are of the same kind."""
Path = tuple[str, ...]
Spec = dict[str, Any]


def schema() -> dict[str, Any]:
    """Of a spec."""
    (version,) = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def examples() -> list[Spec]:
    """The specs of the documents in `examples/`."""
    found = [
        doc for file in sorted((ROOT / "examples").glob("*.yaml")) for doc in yaml.safe_load_all(file.read_text())
    ]
    return [doc["spec"] for doc in found if doc and doc["kind"] == "SpeculativeInferenceService"]


def fields(of: dict[str, Any], above: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every field's path and schema, those of objects in lists excepted."""
    for name, field in of.get("properties", {}).items():
        yield (*above, name), field
        yield from fields(field, (*above, name))


def edited(spec: Spec, path: Path, value: Any) -> Spec:
    """With `value` at `path`."""
    found = copied(spec)
    at = found
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    return found


def values(of: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Whatever a structural schema allows, its bounds often
    (https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/)."""
    if "enum" in of:
        return st.sampled_from(of["enum"])
    if of.get("x-kubernetes-int-or-string"):
        return st.integers(-(2**31), 2**31) | st.text(max_size=20)
    match of.get("type"):
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(of.get("minimum", -(2**31)), of.get("maximum", 2**31 - 1))
        case "number":
            return st.floats(of.get("minimum", -1e9), of.get("maximum", 1e9))
        case "string":
            return _strings(of)
        case "array":
            most = min(of.get("maxItems", MANY), max(MANY, of.get("minItems", 0)))
            return st.lists(values(of["items"]), min_size=of.get("minItems", 0), max_size=most)
        case "object":
            return _objects(of)
    return st.none() | st.booleans() | st.integers() | st.text(max_size=20)


def _strings(of: dict[str, Any]) -> st.SearchStrategy[str]:
    least, most = of.get("minLength", 0), of.get("maxLength", 300)
    if "pattern" not in of:
        longest = "x" * most
        return st.text(st.characters(codec="utf-8"), min_size=least, max_size=min(most, 20)) | st.just(longest)
    return st.from_regex(of["pattern"].replace("$", r"\Z")).filter(lambda text: least <= len(text) <= most)


def _objects(of: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    if "properties" in of:
        each = {name: values(field) for name, field in of["properties"].items()}
        needed = set(of.get("required", ()))
        optional = {name: field for name, field in each.items() if name not in needed}
        return st.fixed_dictionaries({name: each[name] for name in needed}, optional=optional)
    more = of.get("additionalProperties", {})
    return st.dictionaries(st.text(max_size=20), values(more if isinstance(more, dict) else {}), max_size=MANY)


FIELDS = {path: values(field) for path, field in fields(schema())}


EXAMPLES = examples()


@st.composite
def changes(draw: st.DrawFn, spec: Spec) -> Spec:
    """The spec with up to three fields changed, each to what its own schema allows."""
    changed = spec
    for path in draw(st.lists(st.sampled_from(list(FIELDS)), min_size=1, max_size=3, unique=True)):
        whole = _missing(changed, path)  # what is new has what it must have
        changed = edited(changed, whole, draw(FIELDS[whole]))
    return changed


def _missing(spec: Spec, path: Path) -> Path:
    """To the first field on the way that is not there; to the last where all are."""
    at: Any = spec
    for depth, name in enumerate(path, 1):
        if not isinstance(at, dict) or name not in at:
            return path[:depth]
        at = at[name]
    return path
