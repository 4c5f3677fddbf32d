"""Everything that stands in the namespaces of all plans, and how it came there: by watches of its own, of which no
fault knows."""

import asyncio
import json
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import aiohttp

from tandem import names
from tandem.cluster.kinds import (
    CONFIGMAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    JOB,
    LEASE,
    NETWORK_POLICY,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    SERVICES_KIND,
    Kind,
)

from .requests import role

HPA = Kind("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
KINDS = (
    *(SERVICES_KIND, CONFIGMAP, SERVICE, SERVICE_ACCOUNT, DEPLOYMENT, JOB, DISRUPTION_BUDGET, NETWORK_POLICY, POD),
    *(HPA, LEASE),
)
NOT_OURS = ("kube-root-ca.crt", "default")
"""What Kubernetes puts into each namespace."""


@dataclass(frozen=True)
class Change:
    """An event of a watch."""

    at: float
    type: str
    kind: str
    object: dict[str, Any]

    @property
    def uid(self) -> str:
        """Of the object."""
        return str(self.object["metadata"]["uid"])


class Scene:
    """One namespace."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.changes: list[Change] = []

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The objects of a kind."""
        return [obj for (its, _), obj in self.objects.items() if its == kind]

    @property
    def service(self) -> dict[str, Any] | None:
        """The plan's SpeculativeInferenceService."""
        return self.objects.get((SERVICES_KIND.kind, "svc"))

    @property
    def servers(self) -> list[dict[str, Any]]:
        """Pods that serve, or are on their way."""
        return [pod for pod in self.of("Pod") if component(pod) == names.SERVER]

    def note(self, type_: str, kind: Kind, obj: dict[str, Any]) -> None:
        """Take an event in."""
        if obj["metadata"]["name"] in NOT_OURS:
            return
        self.changes.append(Change(time.monotonic(), type_, kind.kind, obj))
        key = kind.kind, obj["metadata"]["name"]
        if type_ == "DELETED":
            self.objects.pop(key, None)
        else:
            self.objects[key] = obj


class Observer:
    """Watches all namespaces."""

    def __init__(self, session: aiohttp.ClientSession, server: str) -> None:
        self._session, self._server = session, server
        self.scenes: dict[str, Scene] = defaultdict(Scene)
        self.leases: dict[str, list[tuple[str, str]]] = defaultdict(list)
        """Since when (RFC 3339) who has a Lease, by its name."""

    async def run(self) -> None:
        """Watch for ever."""
        async with asyncio.TaskGroup() as group:
            for kind in KINDS:
                group.create_task(self._watch(kind))

    async def _watch(self, kind: Kind) -> None:
        path = self._server + kind.path(None)
        async with self._session.get(path, params={"limit": "1"}, raise_for_status=True) as answer:
            version = (await answer.json())["metadata"]["resourceVersion"]
        while True:
            query = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true"}
            async with self._session.get(path, params=query, raise_for_status=True) as answer:
                rest = b""
                async for part in answer.content.iter_any():
                    *lines, rest = (rest + part).split(b"\n")
                    for event in map(json.loads, lines):
                        assert event["type"] != "ERROR", event
                        version = event["object"]["metadata"]["resourceVersion"]
                        self._note(kind, event)

    def _note(self, kind: Kind, event: dict[str, Any]) -> None:
        obj, type_ = event["object"], event["type"]
        if type_ == "BOOKMARK":
            return
        if kind is LEASE:
            holder = obj["spec"].get("holderIdentity", "")
            held = self.leases[obj["metadata"]["name"]]
            if not held or held[-1][1] != holder:
                held.append((obj["spec"].get("acquireTime", ""), holder))
            return
        self.scenes[obj["metadata"]["namespace"]].note(type_, kind, obj)


def component(obj: dict[str, Any]) -> str:
    """Of a child or pod."""
    return str(obj["metadata"].get("labels", {}).get(names.LABEL_COMPONENT, ""))


def named(obj: dict[str, Any], kind: str) -> str:
    """`kind/role` of an object: the same in all namespaces."""
    if kind == "Pod":
        return f"Pod/{component(obj)}"
    return f"{kind}/{role(obj['metadata']['name'])}"
