"""What others wrote into a child beside our fields, by managedFields. Pure.

Server-side apply keeps what other field managers own: a variable that `kubectl set env` adds to a Deployment's pods
stays there whatever is applied. So that it goes, its ownership is taken over first, as client-go's `csaupgrade` does
for a client that moves from Update to Apply: what we own and do not apply, the API server removes.
"""

import json
from collections.abc import Iterator, Mapping
from functools import reduce

from tandem import names
from tandem.api.wire import Object
from tandem.children.comparison import Fields, matches, owned_fields

SPEC: Mapping[str, Fields] = {"f:spec": {}}
GUARDED: Mapping[str, Mapping[str, Fields]] = {
    "Deployment": SPEC,
    "LeaderWorkerSet": SPEC,
    "Service": SPEC,
    "NetworkPolicy": SPEC,
    "PodDisruptionBudget": SPEC,
    "HorizontalPodAutoscaler": SPEC,
    "ConfigMap": {"f:data": {}, "f:binaryData": {}},
}
"""Where others have no say, by kind. Not metadata, in which controllers keep notes; not what controllers write of a
ServiceAccount (OpenShift: its Secrets) and of kinds that they store as a whole (ScaledObject, HTTPRoute)."""
_NOTES: Fields = {"f:metadata": {}}
OPEN: Mapping[str, Fields] = {
    "Deployment": {"f:spec": {"f:template": _NOTES}},
    "LeaderWorkerSet": {
        "f:spec": {"f:leaderWorkerTemplate": {"f:leaderTemplate": _NOTES, "f:workerTemplate": _NOTES}},
    },
}
"""What of it they may: labels and annotations of pods, by which `kubectl rollout restart` restarts them."""
MOST_NAMED = 3


def foreign(live: Object) -> dict[str, Fields]:
    """By field manager, what others wrote that they have no say in."""
    found = dict[str, Fields]()
    for entry in live["metadata"].get("managedFields", []):
        if _is_ours(entry) or entry.get("subresource") == "status":
            continue
        fields = {key: value for key, value in entry.get("fieldsV1", {}).items() if key in _guarded(live)}
        if fields := _without(_without(fields, OPEN.get(str(live["kind"]), {})), owned_fields(live)):
            manager = str(entry.get("manager", ""))
            found[manager] = _merged(found.get(manager, {}), fields)
    return found


def as_wanted(manifest: Object, live: Object) -> bool:
    """Whether applying `manifest` would change nothing of `live`, and nothing in it is foreign."""
    return matches(manifest, live) and not foreign(live)


def taken_over(live: Object) -> list[Object]:
    """The managedFields of `live` in which all that is foreign is ours."""
    theirs = reduce(_merged, foreign(live).values(), Fields())
    entries = list[Object]()
    for entry in live["metadata"].get("managedFields", []):
        fields = entry.get("fieldsV1", {})
        if _is_ours(entry):
            entries.append({**entry, "fieldsV1": _merged(fields, theirs)})
        elif entry.get("subresource") == "status":
            entries.append(entry)
        elif left := _without(fields, theirs):
            entries.append({**entry, "fieldsV1": left})
    return entries


def is_in_pods(live: Object) -> bool:
    """Whether removing what is foreign replaces the pods of a workload."""
    fields = [each.get("f:spec", {}) for each in foreign(live).values()]
    return any("f:template" in each or "f:leaderWorkerTemplate" in each for each in fields)


def described(live: Object) -> str:
    """Who wrote what, for people: `kubectl-set wrote spec.replicas`. Empty where nothing is foreign."""
    return "; ".join(f"{manager} wrote {_named(fields)}" for manager, fields in sorted(foreign(live).items()))


def _named(fields: Fields) -> str:
    paths = list(_paths(fields, ""))
    more = f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else ""
    return ", ".join(paths[:MOST_NAMED]) + more


def _paths(fields: Fields, path: str) -> Iterator[str]:
    """As kubectl explain writes them; items of lists by their keys. An item that was added is one."""
    below = {key: inner for key, inner in fields.items() if key != "."}
    if not below or ("." in fields and path.endswith("]")):
        yield path
        return
    for key, inner in below.items():
        yield from _paths(inner, path + _step(key, path))


def _step(key: str, path: str) -> str:
    kind, name = key.split(":", 1)
    if kind == "f":
        return f".{name}" if path else name
    value = json.loads(name)
    return f"[{','.join(map(str, value.values())) if isinstance(value, dict) else value}]"


def _guarded(live: Object) -> Mapping[str, Fields]:
    return GUARDED.get(str(live["kind"]), {})


def _is_ours(entry: Object) -> bool:
    ours = entry.get("manager") == names.FIELD_MANAGER and entry.get("operation") == "Apply"
    return ours and not entry.get("subresource")


def _without(fields: Fields, taken: Fields) -> Fields:
    """`fields` but for those in `taken`; what only holds such fields goes with them."""
    left = Fields()
    for key, inner in fields.items():
        if key not in taken:
            left[key] = inner
        elif inner and taken[key] and (rest := _without(inner, taken[key])) and rest.keys() != {"."}:
            left[key] = rest
    return left


def _merged(one: Fields, other: Fields) -> Fields:
    return {key: _merged(one.get(key, {}), other.get(key, {})) for key in {**one, **other}}
