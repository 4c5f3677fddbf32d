"""Reading manifests: what all kinds have in common."""

from tandem.api.wire import Object


def label(obj: Object, key: str) -> str:
    """Value of a label; empty when absent."""
    return str(obj["metadata"].get("labels", {}).get(key, ""))


def created(obj: Object) -> str:
    """When the object was made, RFC 3339 in UTC; empty where that is not known."""
    return str(obj["metadata"].get("creationTimestamp", ""))


def uid(obj: Object) -> str:
    """UID of the object; empty where it has none."""
    return str(obj["metadata"].get("uid", ""))


def job_uid(pod: Object) -> str:
    """UID of the Job that made the pod; empty where none did."""
    return label(pod, "batch.kubernetes.io/controller-uid")


def owner_uid(obj: Object) -> str:
    """UID of the controlling owner; empty when there is none."""
    references = obj["metadata"].get("ownerReferences", [])
    return next((str(r["uid"]) for r in references if r.get("controller")), "")


def condition(obj: Object, kind: str) -> Object | None:
    """The condition of that type in `status.conditions`, or None."""
    conditions: list[Object] = obj.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == kind), None)


def is_true(obj: Object, kind: str) -> bool:
    """Whether that condition is True."""
    found = condition(obj, kind)
    return found is not None and found["status"] == "True"
