"""What must hold at the end of a plan, as in a run without a fault, and on the way there."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tandem import names
from tandem.cluster.manifests import is_true
from tandem.digest import digest

from .observer import Change, Scene, component, named

KUBERNETES_OWN = ("deployment.kubernetes.io/revision", "kubectl.kubernetes.io/last-applied-configuration")
COUNTED = (
    *("ConfigMap", "Deployment", "Job", "NetworkPolicy", "Pod", "PodDisruptionBudget", "Service"),
    *("ServiceAccount", "HorizontalPodAutoscaler"),
)
FROM_ADDRESSES = ("clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort")


def end_state(scene: Scene, namespace: str) -> dict[str, Any]:
    """What is to be the same whatever happened on the way (a): all but times, versions, UIDs and addresses."""
    found: dict[str, Any] = {}
    for (kind, name), obj in sorted(scene.objects.items()):
        if kind == "Pod":
            continue
        text = json.dumps(_body(kind, obj), sort_keys=True).replace(namespace, "NAMESPACE")
        found[f"{kind}/{name}"] = json.loads(text)
    found["pods"] = dict(sorted(Counter(_pod(pod) for pod in scene.of("Pod")).items()))
    return found


def _body(kind: str, obj: dict[str, Any]) -> dict[str, Any]:
    meta = obj["metadata"]
    body = {key: value for key, value in obj.items() if key not in ("metadata", "status", "apiVersion", "kind")}
    annotations = {k: v for k, v in meta.get("annotations", {}).items() if k not in KUBERNETES_OWN}
    owners = [[owner["kind"], owner["name"]] for owner in meta.get("ownerReferences", [])]
    body["metadata"] = {"labels": meta.get("labels", {}), "annotations": annotations, "owners": owners}
    body["metadata"]["finalizers"] = meta.get("finalizers", [])
    body["metadata"]["deleting"] = "deletionTimestamp" in meta
    if kind == "ConfigMap":
        body["data"] = {key: digest(text) for key, text in body["data"].items()}
    if kind == "Service":
        body["spec"] = {key: value for key, value in body["spec"].items() if key not in FROM_ADDRESSES}
    if kind == "SpeculativeInferenceService":
        status = obj.get("status", {})
        conditions = {c["type"]: f"{c['status']}/{c['reason']}" for c in status.get("conditions", [])}
        body["status"] = {**status, "conditions": conditions}
        body["status"]["observedGeneration"] = status.get("observedGeneration") == meta["generation"]
    return body


def _pod(pod: dict[str, Any]) -> str:
    """A pod's part in the end state; a task's pod goes with its Job."""
    revision = pod["metadata"].get("labels", {}).get(names.LABEL_REVISION, "")
    words = [component(pod), revision, "ready" if is_true(pod, "Ready") else "not ready"]
    return " ".join(words + ["ends"] * ("deletionTimestamp" in pod["metadata"]))


def differences(wanted: Any, found: Any, path: str = "") -> Iterator[str]:
    """Where two states differ, one line each."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in sorted(wanted.keys() | found.keys()):
            yield from differences(wanted.get(key), found.get(key), f"{path}.{key}" if path else key)
    elif wanted != found:
        yield f"{path}: {_short(found)}, not {_short(wanted)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 160 else text[:160] + "…"


def made(changes: Sequence[Change]) -> dict[str, int]:
    """How many objects were made of each kind and role (b): of one that is made again there are two."""
    seen = {(named(c.object, c.kind), c.uid) for c in changes if c.kind in COUNTED and c.type == "ADDED"}
    return dict(Counter(name for name, _ in seen))


@dataclass(frozen=True)
class Servers:
    """How many server pods there were on the way (g)."""

    most: int
    """Of those that were not being deleted."""
    revisions: int
    """Most at the same time, with those that were being deleted."""
    fewest_ready: int
    """Once they were as many as asked for."""


def servers(changes: Sequence[Change], before: Sequence[dict[str, Any]]) -> Servers:
    """From the pods `before` on, over the changes."""
    live = {pod["metadata"]["uid"]: pod for pod in before}
    seen = [_servers(live.values())]
    for change in changes:
        if change.kind != "Pod" or component(change.object) != names.SERVER:
            continue
        if change.type == "DELETED":
            live.pop(change.uid, None)
        else:
            live[change.uid] = change.object
        seen.append(_servers(live.values()))
    return Servers(
        max(now.most for now in seen), max(now.revisions for now in seen), min(now.fewest_ready for now in seen)
    )


def _servers(live: Collection[dict[str, Any]]) -> Servers:
    """Of one moment."""
    revisions = {pod["metadata"]["labels"].get(names.LABEL_REVISION) for pod in live}
    most = sum("deletionTimestamp" not in pod["metadata"] for pod in live)
    return Servers(most, len(revisions), sum(map(_serves, live)))


def _serves(pod: dict[str, Any]) -> bool:
    return is_true(pod, "Ready") and "deletionTimestamp" not in pod["metadata"]


def orphans(scene: Scene) -> list[str]:
    """Children whose owner is not there, or not the one it was; what is held by a finalizer or being deleted (d)."""
    uids = {obj["metadata"]["uid"] for obj in scene.objects.values()}
    wrong = []
    for (kind, name), obj in scene.objects.items():
        meta = obj["metadata"]
        owners = [o for o in meta.get("ownerReferences", []) if o["kind"] not in ("ReplicaSet",)]
        if any(owner["uid"] not in uids for owner in owners):
            wrong.append(f"{kind}/{name} has an owner that is not there")
        if meta.get("finalizers"):
            wrong.append(f"{kind}/{name} has finalizers {meta['finalizers']}")
        if kind != "Pod" and names.LABEL_SERVICE in meta.get("labels", {}) and not owners:
            wrong.append(f"{kind}/{name} has no owner")
    return wrong


UNHANDLED = re.compile(r"^Traceback|ERROR +asyncio|never retrieved", re.M)


def unhandled(log: str, allowed: Sequence[str] = ()) -> list[str]:
    """Exceptions in the operator's log that nobody caught (h)."""
    found = [log[match.start() : match.start() + 3000] for match in UNHANDLED.finditer(log)]
    return [text for text in found if not any(word in text for word in allowed)]


def more_made(wanted: Mapping[str, int], found: Mapping[str, int], explained: Mapping[str, int]) -> list[str]:
    """Objects that were made more or less often than in the reference, but for what the fault explains (b)."""
    wrong = []
    for key in sorted(wanted.keys() | found.keys()):
        least = wanted.get(key, 0)
        most = least + explained.get(key, 0)
        if not least <= found.get(key, 0) <= most:
            wrong.append(f"{key}: made {found.get(key, 0)} times, not {least}" + f" to {most}" * (most > least))
    return wrong


def without_lease(entries: Sequence[dict[str, Any]], held: Sequence[tuple[str, str]]) -> list[str]:
    """Writes in an audit log by an operator that had not the Lease. `held`: who had it from when on (RFC 3339)."""
    wrong = []
    for entry in entries:
        user, at = entry.get("impersonatedUser", {}).get("username", ""), entry["requestReceivedTimestamp"]
        reference = entry.get("objectRef", {})
        reads = entry["verb"] in ("get", "list", "watch") or reference.get("resource") == "leases"
        holder = [who for since, who in held if since <= at][-1:]
        if user and not reads and holder != [user.rpartition(":")[2]]:
            wrong.append(f"{user} at {at}: {entry['verb']} {reference}; {holder} had the Lease")
    return wrong


def ready(scene: Scene) -> bool:
    """Whether the service is Ready as its present generation asks, and nothing is being done."""
    return _stands(scene, "Ready") and not _stands(scene, "Reconciling")


def stalled(scene: Scene) -> bool:
    """Whether its present generation cannot be."""
    return _stands(scene, "Stalled")


def gone(scene: Scene) -> bool:
    """Whether nothing is left."""
    return not scene.objects


def _stands(scene: Scene, kind: str) -> bool:
    """Whether a condition of the service's present generation is True."""
    service = scene.service
    if service is None:
        return False
    seen = service.get("status", {}).get("observedGeneration") == service["metadata"]["generation"]
    return seen and is_true(service, kind)
