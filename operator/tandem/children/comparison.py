"""Whether a child is as it should be: a comparison that knows which fields are ours. Pure."""

import json
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from tandem import names
from tandem.api.wire import Object

QUANTITIES = {"limits", "requests", "sizeLimit", "tolerance"}
"""Fields whose values the API server writes in another way: `cpu: 2` as "2", `1024Mi` as `1Gi`, `0.05` as `50m`."""

ATOMIC_DEFAULTS = {"apiVersion": "v1", "divisor": "0"}
"""Fields of `fieldRef` and `resourceFieldRef` that the API server fills in."""

Fields = dict[str, Any]
"""A FieldsV1 tree: `f:<name>` fields, `k:<json>` list items by key, `v:<json>` set members, `.` itself.
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta (managedFields)."""


def matches(manifest: Object, live: Object, subresource: str = "") -> bool:
    """Whether applying `manifest` would change nothing of `live`.

    True when each of its fields has that value in `live` and is ours, and no other field is ours.
    """
    fields = owned_fields(live, subresource)
    body = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
    meta = {k: v for k, v in body.pop("metadata").items() if k in ("labels", "annotations", "ownerReferences")}
    if meta:
        body["metadata"] = meta
    return _matches(body, live, fields)


def owned_fields(live: Object, subresource: str = "") -> Fields:
    """The fields that Tandem applied last; empty where it never did."""
    for entry in live["metadata"].get("managedFields", []):
        ours = entry.get("manager") == names.FIELD_MANAGER and entry.get("operation") == "Apply"
        if ours and entry.get("subresource", "") == subresource:
            fields: Fields = entry.get("fieldsV1", {})
            return fields
    return {}


def _matches(wanted: Any, live: Any, fields: Fields, quantities: bool = False) -> bool:
    inner = {key: value for key, value in fields.items() if key != "."}
    if not inner:  # a leaf, an atomic list or map, or an empty one
        return bool(_filled(wanted, live) == live) or (quantities and _equal_quantities(wanted, live))
    if isinstance(wanted, dict) and isinstance(live, dict):
        return {f"f:{key}" for key in wanted} == inner.keys() and all(
            key in live and _matches(value, live[key], inner[f"f:{key}"], quantities or key in QUANTITIES)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list) and isinstance(live, list):
        return len(wanted) == len(inner) and all(
            _matches(_item(wanted, key), _item(live, key), items) for key, items in inner.items()
        )
    return False


def _filled(wanted: Any, live: Any) -> Any:
    """`wanted` with the defaults of atomic maps that the API server filled in."""
    if not (isinstance(wanted, dict) and isinstance(live, dict)):
        return wanted
    return {**{name: value for name, value in ATOMIC_DEFAULTS.items() if name in live}, **wanted}


def _equal_quantities(wanted: Any, live: Any) -> bool:
    try:
        return bool(parse_quantity(str(wanted)) == parse_quantity(str(live)))  # as texts: 0.05 is no binary fraction
    except ValueError:  # maps, for instance
        return False


def _item(items: list[Any], key: str) -> Any:
    """The list item that `k:{...}` or `v:...` names; None when there is none.

    What an item lacks of its key has a default: a port without a protocol is named as TCP's.
    """
    name = json.loads(key[2:])
    if key.startswith("v:"):
        return name if name in items else None
    return next((item for item in items if name.items() <= {**name, **item}.items()), None)
