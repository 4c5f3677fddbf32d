"""What must hold at each write, and what must be there at the end."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tandem import names
from tandem.api import KIND
from tandem.api.wire import Object
from tandem.cluster.manifests import label, owner_uid

from .api import LATENCY, Cluster, Write

COMPARED = ("Deployment", "Service", "ServiceAccount", "NetworkPolicy", "PodDisruptionBudget")
"""Kinds whose objects are the same whatever happened; of ConfigMaps a history is kept."""

COLLECTOR = "kubernetes"
"""Who deletes what has lost its owner."""
LEAVING = 12.0
"""Seconds after which no operator may still carry out what it planned before: longer than a Lease that is not renewed
lets it write."""


class Judge:
    """Looks at every write of an operator; `faults`: what was wrong with them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.faults: list[str] = []
        self.foreign: set[str] = set()
        """UIDs of objects that are somebody else's."""
        self.writes = 0
        """Of operators; Leases do not count."""
        self._written: dict[str, tuple[float, str]] = {}
        """When each object was last written by an operator, and by which; by UID."""
        self._collected: dict[tuple[str, str], float] = {}
        """When an object went with its service, by its name and the service's UID."""
        self._holders: list[tuple[float, str]] = []
        """Since when which process has the Lease; empty: nobody."""
        cluster.on_write.append(self._judge)
        cluster.on_request = self._may_ask

    @property
    def leader(self) -> str:
        """Who has the Lease; empty: nobody."""
        return self._holders[-1][1] if self._holders else ""

    def _judge(self, write: Write) -> None:
        if write.object["kind"] == "Lease":
            holder = write.object["spec"]["holderIdentity"]
            if not self._holders or self._holders[-1][1] != holder:
                self._holders.append((self._cluster.loop.time(), holder))
        elif write.by.startswith("operator-"):
            self.writes += 1
            self.faults += [f"{write.verb} {_named(write.object)} by {write.by}: {why}" for why in self._wrong(write)]
            self._written[write.object["metadata"]["uid"]] = self._cluster.loop.time(), write.by
        elif write.after is None and write.by == COLLECTOR:
            self._collected[_named(write.object), owner_uid(write.object) or ""] = self._cluster.loop.time()

    def _may_ask(self, by: str, verb: str, kind: str, began: float) -> None:
        holder = [who for since, who in self._holders if since <= began][-1:]
        if kind != "Lease" and holder != [by]:
            self.faults.append(f"{verb} {kind} by {by}: {holder} has the Lease")

    def _wrong(self, write: Write) -> Iterator[str]:
        before, after = write.before, write.after
        if before and before["metadata"]["uid"] in self.foreign:
            yield "it is somebody else's"
        if before and after and owner_uid(before) and owner_uid(before) != owner_uid(after):
            yield f"its owner was {owner_uid(before)} and is {owner_uid(after)}"
        service = self._cluster.get(KIND, label(write.object, names.LABEL_SERVICE))
        # Of a plan for the service of that name before, it is what is collected anyway.
        known = after is None and service and self._is_known(service, write.began)
        if known and service and owner_uid(write.object) != service["metadata"]["uid"]:
            yield "it is not the service's"
        if before is None and service and self._left(service, write.began):
            yield "its service is being deleted"
        went = self._collected.get((_named(write.object), owner_uid(write.object) or ""), write.began)
        # No write depends on its owner: the answer to the last look at it, and a read by name, lie between.
        if before is None and went < write.began - 3 * LATENCY and not self._lives(owner_uid(write.object)):
            yield "it went with its service, and is made again"
        at, by = self._written.get(write.object["metadata"]["uid"], (0.0, ""))
        if by != write.by and at > write.began:
            yield f"{by} wrote it since: the plan is too old"
        if before and not write.bound:
            yield "it names no UID: it may be of another object of that name"
        if after is None and before:
            if before["kind"] == "Deployment":
                yield "it serves"
            if before["kind"] == "ConfigMap" and (pods := self._mounted_by(before)):
                yield f"{pods} mount it"

    def _mounted_by(self, configmap: Object) -> list[str]:
        """Pods of its service and revision."""
        if label(configmap, names.LABEL_COMPONENT) != names.REVISION:
            return []
        same = (names.LABEL_SERVICE, names.LABEL_REVISION)
        return [
            str(pod["metadata"]["name"])
            for pod in self._cluster.of("Pod")
            if "deletionTimestamp" not in pod["metadata"]
            and label(pod, names.LABEL_COMPONENT) == names.SERVER
            and all(label(pod, key) == label(configmap, key) for key in same)
        ]

    def _lives(self, uid: str | None) -> bool:
        """Whether a service is there, and not being deleted."""
        return any(
            service["metadata"]["uid"] == uid and "deletionTimestamp" not in service["metadata"]
            for service in self._cluster.of(KIND)
        )

    def _is_known(self, service: Object, at: float) -> bool:
        """Whether it was there for so long at that time that no plan of before may be carried out."""
        return at - self._cluster.loop.seconds(service["metadata"]["creationTimestamp"]) > LEAVING

    def _left(self, service: Object, at: float) -> bool:
        """Whether it was being deleted for so long at that time that no plan of before may be carried out."""
        leaves = service["metadata"].get("deletionTimestamp")
        return bool(leaves) and at - self._cluster.loop.seconds(leaves) > LEAVING


def end_state(cluster: Cluster, service: str) -> dict[str, Any]:
    """What is to be the same whatever happened on the way: the children, the pods, the conditions."""
    live = cluster.get(KIND, service)
    owned = [obj for obj in cluster.all if live and owner_uid(obj) == live["metadata"]["uid"]]
    children = {_named(obj): _body(obj) for obj in owned if obj["kind"] in COMPARED}
    status = (live or {}).get("status", {})
    of_service = [obj for obj in cluster.all if label(obj, names.LABEL_SERVICE) == service]
    return {
        "children": children,
        "unfinished": sorted(_named(obj) for obj in of_service if obj["kind"] == "Job"),
        "orphans": sorted(_named(obj) for obj in of_service if obj["kind"] != "Pod" and obj not in owned),
        "pods": Counter(label(pod, names.LABEL_REVISION) for pod in of_service if pod["kind"] == "Pod"),
        "conditions": {c["type"]: f"{c['status']}/{c['reason']}" for c in status.get("conditions", [])},
        "seen": live is not None and status.get("observedGeneration") == live["metadata"]["generation"],
    }


def _body(obj: Object) -> Object:
    """Without what differs from one cluster to the next."""
    meta = {key: obj["metadata"].get(key) for key in ("labels", "annotations")}
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")} | {"metadata": meta}


def _named(obj: Object) -> str:
    return f"{obj['kind']}/{obj['metadata']['name']}"
