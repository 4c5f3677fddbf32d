"""What a cluster makes of the objects that Tandem applies: managed fields, Jobs that end, servers that are Ready."""

import copy
import json
import re
from typing import Any

from tandem import names
from tandem.names import FIELD_MANAGER

from .store import BY_PLURAL, Object, Store

NUMBER = re.compile(r"^svc-(\d{5})")
"""A service's, by which the UIDs of all that is its own begin: those of copies differ."""
NOW = "2026-01-01T00:00:00Z"
OWNED = ("labels", "annotations", "ownerReferences")
VERDICT = json.dumps(
    {
        "checks": [
            {"type": "ModelsReady", "status": "True", "reason": "FilesFound", "message": "both are there"},
            {"type": "PairCompatible", "status": "True", "reason": "TokenizersEqual", "message": "equal"},
        ]
    }
)


def fields(value: Any) -> Object:
    """FieldsV1 of an object's part; lists count as one field."""
    return {f"f:{key}": fields(item) for key, item in value.items()} if isinstance(value, dict) else {}


def managed(manager: str, body: Object, subresource: str = "", operation: str = "Apply") -> Object:
    """An entry of managedFields."""
    entry = {"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "time": NOW}
    return {**entry, "fieldsV1": fields(body), **({"subresource": subresource} if subresource else {})}


def apply(store: Store, plural: str, manifest: Object, subresource: str = "") -> Object:
    """Server-side apply of our manager, which is the only one: what it leaves out goes."""
    meta = manifest["metadata"]
    live = store.get(plural, meta["namespace"], meta["name"])
    before = copy.deepcopy(live)
    obj = live or _new(store, plural, meta)
    if subresource:
        obj[subresource] = body = manifest[subresource]
        _manage(obj, managed(FIELD_MANAGER, {subresource: body}, subresource))
    else:
        body = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind", "metadata")}
        ours = {key: meta[key] for key in OWNED if key in meta}
        obj |= body
        obj["metadata"] |= ours
        _manage(obj, managed(FIELD_MANAGER, {**body, "metadata": ours}))
    if before == obj:
        return obj
    if before and before.get("spec") != obj.get("spec"):
        obj["metadata"]["generation"] += 1
    store.put(plural, obj)
    if not subresource:
        _control(store, plural, obj)
    return obj


def replace_managers(store: Store, plural: str, named: tuple[str, str], operations: list[Object]) -> Object:
    """A JSON patch of managedFields, as of the object's last version."""
    obj = store.get(plural, *named)
    assert obj
    entries, version = (operation["value"] for operation in operations)
    assert version == obj["metadata"]["resourceVersion"]
    obj["metadata"]["managedFields"] = entries
    return store.put(plural, obj)


def _new(store: Store, plural: str, meta: Object) -> Object:
    kind = BY_PLURAL[plural]
    number = NUMBER.search(meta["name"])
    uid = f"{number[1] if number else 'none'}-{store.version:08}-aaaa-bbbb-cccccccccccc"
    own = {"name": meta["name"], "namespace": meta["namespace"], "uid": uid}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {**own, "creationTimestamp": NOW, "generation": 1},
    }


def _manage(obj: Object, entry: Object) -> None:
    others = [
        each
        for each in obj["metadata"].get("managedFields", [])
        if (each["manager"], each.get("subresource")) != (entry["manager"], entry.get("subresource"))
    ]
    obj["metadata"]["managedFields"] = [*others, entry]


def _control(store: Store, plural: str, obj: Object) -> None:
    if plural == "jobs":
        labels = {"batch.kubernetes.io/controller-uid": obj["metadata"]["uid"]}
        ended = {"terminated": {"exitCode": 0, "reason": "Completed", "message": VERDICT}}
        _pod(store, obj, "x", labels, {"phase": "Succeeded"}, ended)
        _status(store, plural, obj, {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]})
    if plural == "deployments":
        replicas = obj["spec"]["replicas"]
        status = {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
        for number in range(replicas):
            running = {"running": {"startedAt": NOW}}
            _pod(store, obj, f"{number}", {"pod-template-hash": "0123456789"}, status, running)
        counts = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas", "availableReplicas"), replicas)
        _status(store, plural, obj, {"observedGeneration": obj["metadata"]["generation"], **counts})


def _status(store: Store, plural: str, obj: Object, status: Object) -> None:
    obj["status"] = status
    _manage(obj, managed("kube-controller-manager", {"status": status}, "status", "Update"))
    store.put(plural, obj)


def _pod(store: Store, owner: Object, suffix: str, labels: Object, status: Object, state: Object) -> None:
    template, meta = owner["spec"]["template"], owner["metadata"]
    name = f"{meta['name']}-{suffix}"
    pod = store.get("pods", meta["namespace"], name) or _new(
        store, "pods", {"name": name, "namespace": meta["namespace"]}
    )
    pod["metadata"]["labels"] = {**template["metadata"].get("labels", {}), **labels}
    pod["metadata"]["ownerReferences"] = [
        {"kind": owner["kind"], "name": meta["name"], "uid": meta["uid"], "controller": True}
    ]
    pod["spec"] = template["spec"]
    containers = [{"name": names.CONTAINER, "restartCount": 0, "state": state}]
    pod["status"] = {**status, "containerStatuses": containers}
    pod["metadata"]["managedFields"] = [
        managed("kube-controller-manager", {"spec": pod["spec"]}, operation="Update"),
        managed("kubelet", {"status": pod["status"]}, "status", "Update"),
    ]
    store.put("pods", pod)
