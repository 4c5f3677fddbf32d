"""Applying what differs: a comparison that knows which fields are ours, and the execution of a plan."""

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from tandem import names
from tandem.cluster.client import Api
from tandem.cluster.keys import new_key_pair
from tandem.cluster.kinds import BY_KIND, DISRUPTION_BUDGET, OPTIONAL, SECRET, SERVICE
from tandem.cluster.observe import owner_uid
from tandem.errors import KindMissing, NameTaken, Refused
from tandem.rollout.observed import Object, label
from tandem.rollout.plan import Action, Apply, CreateKeys, Delete

log = logging.getLogger(__name__)

INSTALL = {
    "LeaderWorkerSet": "a replica that needs several nodes is one; install https://lws.sigs.k8s.io, or write parallel"
    " sizes that placement.gpu.perNode holds",
    "ScaledObject": "autoscaling.source KEDA makes one; install https://keda.sh, or write source: Embedded",
}
"""What to do where a kind is missing."""
UNKNOWN_KIND = ("page not found", "could not find the requested resource")
"""How the API server says so; it also answers 404 when the namespace is gone."""

LEAVES = (SERVICE.kind, DISRUPTION_BUDGET.kind)
"""What no other child rests on: without them pods still come up as they should. Not so a NetworkPolicy, say."""

QUANTITIES = {"limits", "requests", "sizeLimit", "tolerance"}
"""Fields whose values the API server writes in another way: `cpu: 2` as "2", `1024Mi` as `1Gi`, `0.05` as `50m`."""

Fields = dict[str, Any]
"""A FieldsV1 tree: `f:<name>` fields, `k:<json>` list items by key, `v:<json>` set members, `.` itself.
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta (managedFields)."""


def matches(manifest: Object, live: Object, subresource: str = "") -> bool:
    """Whether applying `manifest` would change nothing of `live`.

    True when each of its fields has that value in `live` and is ours, and no other field is ours.
    """
    fields = _owned_fields(live, subresource)
    body = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
    meta = {k: v for k, v in body.pop("metadata").items() if k in ("labels", "annotations", "ownerReferences")}
    if meta:
        body["metadata"] = meta
    return _matches(body, live, fields)


def _owned_fields(live: Object, subresource: str) -> Fields:
    for entry in live["metadata"].get("managedFields", []):
        ours = entry.get("manager") == names.FIELD_MANAGER and entry.get("operation") == "Apply"
        if ours and entry.get("subresource", "") == subresource:
            fields: Fields = entry.get("fieldsV1", {})
            return fields
    return {}


def _matches(wanted: Any, live: Any, fields: Fields, quantities: bool = False) -> bool:
    inner = {key: value for key, value in fields.items() if key != "."}
    if not inner:  # a leaf, an atomic list or map, or an empty one
        return bool(wanted == live) or (quantities and _equal_quantities(wanted, live))
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


async def execute(api: Api, actions: Sequence[Action], may_write: Callable[[], None]) -> list[Refused]:
    """Carry out a plan, in order; what the API server refused of it, which keeps back only what may rest on it.

    `may_write` is asked before each request, and raises when it may not. Of what is refused `KindMissing` says that
    the cluster does not know a child's kind, and `NameTaken` that somebody else has its name, whose object is left
    alone.

    Raises:
        NotLeader, Transient: as the requests do.
    """
    refused = list[Refused]()
    kept_back = False
    for action in actions:
        kind = str((action.live if isinstance(action, Delete) else action.manifest)["kind"])
        if kept_back and kind not in LEAVES:
            continue
        try:
            await _carry_out(api, action, may_write)
        except Refused as error:
            log.warning("%s", error)
            refused.append(error)
            kept_back |= kind not in LEAVES
    return refused


async def _carry_out(api: Api, action: Action, may_write: Callable[[], None]) -> None:
    if isinstance(action, Delete):
        may_write()
        await api.delete(BY_KIND[action.live["kind"]], action.live)
    elif isinstance(action, CreateKeys):
        may_write()
        await api.create_once(SECRET, {**action.manifest, "data": new_key_pair()})
    else:
        await _apply(api, action, may_write)


async def _apply(api: Api, action: Apply, may_write: Callable[[], None]) -> None:
    manifest = action.manifest
    kind, meta = BY_KIND[manifest["kind"]], manifest["metadata"]
    live = action.live or await api.get(kind, meta["namespace"], meta["name"])
    if "ownerReferences" not in meta:  # shared by the namespace's services: made once, by whoever comes first
        if live is None:
            may_write()
            await api.create(kind, manifest)
            log.info("created %s %s/%s", kind.kind, meta["namespace"], meta["name"])
        return
    if live is not None:
        owner = meta["ownerReferences"][0]["uid"]
        if owner_uid(live) != owner and not _let_go(live, manifest):
            raise NameTaken(kind.kind, meta["name"], owner_uid(live) or "no SpeculativeInferenceService")
        if action.live is None and matches(manifest, live):
            return  # made a moment ago, or of a kind that may be read by name alone
        manifest = {**manifest, "metadata": {**meta, "uid": live["metadata"]["uid"]}}
    may_write()
    try:
        await api.apply(kind, manifest)
    except Refused as error:
        if kind in OPTIONAL and error.status == 404 and any(text in str(error) for text in UNKNOWN_KIND):
            raise KindMissing(kind.kind, INSTALL[kind.kind]) from error
        raise
    log.info("applied %s %s/%s", kind.kind, meta["namespace"], meta["name"])


def _let_go(live: Object, manifest: Object) -> bool:
    """Whether we made `live` for a service of that name, and somebody removed its owner: it is nobody else's."""
    service = label(manifest, names.LABEL_SERVICE)
    return not owner_uid(live) and label(live, names.LABEL_SERVICE) == service and bool(_owned_fields(live, ""))
