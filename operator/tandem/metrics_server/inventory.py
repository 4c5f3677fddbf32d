"""Which services there are, and which pods serve them: kept up by watches, so that a round makes no request."""

import asyncio
import ipaddress
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

from pydantic import ValidationError

from tandem import names
from tandem.api.types import SpeculativeInferenceService
from tandem.api.wire import Object
from tandem.cluster.client import Api
from tandem.cluster.kinds import POD, SERVICES_KIND
from tandem.cluster.manifests import is_true
from tandem.cluster.pods import by_the_api_server
from tandem.cluster.problems import pod_problem
from tandem.cluster.reflector import Reflector
from tandem.metrics.telemetry.figures import Replicas
from tandem.metrics.telemetry.source import ScrapeTarget
from tandem.render.latest import STARTUP_FAILURES, STARTUP_PERIOD_SECONDS
from tandem.times import moment

log = logging.getLogger(__name__)

SERVER_PODS = f"{names.LABEL_MANAGED_BY}={names.FIELD_MANAGER},{names.LABEL_COMPONENT}={names.SERVER}"
"""Where a replica is a group, its leader is its server: it alone publishes metrics."""
START = {"periodSeconds": STARTUP_PERIOD_SECONDS, "failureThreshold": STARTUP_FAILURES}
"""Of a startup probe; the kubelet ends a container that takes longer."""
LATEST = 5
"""So many of the youngest Ready pods say how long a replica takes to start."""


@dataclass(frozen=True)
class Pod:
    """A server pod that is not on its way out."""

    namespace: str
    service: str
    created: datetime
    target: ScrapeTarget | None
    """None while it is not Ready: its metrics say nothing about serving yet."""
    start_seconds: float | None = None
    """From its creation until it was Ready; None where that is not known."""
    name: str = ""
    revision: str = ""
    """Digest."""
    problem: str = ""
    """What keeps it from being Ready, where the cluster names it."""


@dataclass(frozen=True)
class Known:
    """A service and what serves it."""

    service: SpeculativeInferenceService
    targets: tuple[ScrapeTarget, ...]
    """Its Ready pods."""
    replicas: Replicas
    pods: tuple[Pod, ...] = ()
    """All of them, by name."""


class Inventory:
    """All services and server pods of the namespaces `scopes` (None: of all)."""

    def __init__(self, api: Api, scopes: Sequence[str | None]) -> None:
        self._services = [Reflector(api, SERVICES_KIND, scope, "", service) for scope in scopes]
        self._pods = [Reflector(api, POD, scope, SERVER_PODS, pod) for scope in scopes]
        self._all: list[Reflector[Any]] = [*self._services, *self._pods]

    async def run(self) -> None:
        """Keep it up, for ever."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._all:
                group.create_task(reflector.run())

    async def listed(self) -> None:
        """Wait until all was listed once."""
        for reflector in self._all:
            await reflector.listed.wait()

    @property
    def problem(self) -> str:
        """Why nothing is known yet; empty once all was listed. What is known stays while the API server is away."""
        waiting = [reflector for reflector in self._all if not reflector.listed.is_set()]
        return next((reflector.problem or "services and pods are being listed" for reflector in waiting), "")

    def known(self) -> list[Known]:
        """Services and their pods, now."""
        services = [held for reflector in self._services for held in reflector.held]
        return join(services, [held for reflector in self._pods for held in reflector.held])


def join(services: Iterable[SpeculativeInferenceService], pods: Iterable[Pod]) -> list[Known]:
    """Each service with its pods. Pure."""
    by_service: dict[tuple[str, str], list[Pod]] = defaultdict(list)
    for one in pods:
        by_service[one.namespace, one.service].append(one)
    found = []
    for known in services:
        own = by_service[known.namespace, known.name]
        targets = tuple(sorted((p.target for p in own if p.target), key=lambda target: target.uid))
        replicas = Replicas(len(targets), len(own) - len(targets), known.spec.replicas, _start_seconds(own))
        found.append(Known(known, targets, replicas, tuple(sorted(own, key=lambda pod: pod.name))))
    return found


def _start_seconds(pods: Iterable[Pod]) -> float | None:
    """What a replica takes to start, from the youngest of these pods: models and nodes are today's there."""
    starts = sorted((pod.created, pod.start_seconds) for pod in pods if pod.start_seconds is not None)
    return median(seconds for _, seconds in starts[-LATEST:]) if starts else None


def service(obj: Object) -> SpeculativeInferenceService | None:
    """A service; None for one that this version cannot read, or that is being deleted."""
    if "deletionTimestamp" in obj["metadata"]:
        return None
    try:
        return SpeculativeInferenceService.model_validate(obj)
    except ValidationError as error:
        meta = obj["metadata"]
        log.warning("service %s/%s cannot be read: %s", meta["namespace"], meta["name"], error)
        return None


def pod(obj: Object) -> Pod | None:
    """A server pod; None for one that ended, or is about to."""
    meta, status = obj["metadata"], obj.get("status", {})
    owner = meta.get("labels", {}).get(names.LABEL_SERVICE)
    if not owner or "deletionTimestamp" in meta or status.get("phase") in ("Succeeded", "Failed"):
        return None
    created = datetime.fromisoformat(meta["creationTimestamp"])
    revision = meta["labels"].get(names.LABEL_REVISION, "")
    shown = {"name": meta["name"], "revision": revision}
    if not (is_true(obj, "Ready") and _is_address(status.get("podIP"))):
        problem = pod_problem(obj)
        return Pod(meta["namespace"], owner, created, None, **shown, problem=problem.message if problem else "")
    target = ScrapeTarget(meta["uid"], meta["namespace"], meta["name"], status["podIP"], revision=revision)
    return Pod(meta["namespace"], owner, created, target, _started_in(obj, created), **shown)


def _most_start(obj: Object) -> int:
    """Seconds: twice what its server may take to start."""
    containers = obj.get("spec", {}).get("containers", [])
    probes = [START, *({**START, **each.get("startupProbe", {})} for each in containers)]
    return int(2 * max(probe["periodSeconds"] * probe["failureThreshold"] for probe in probes))


def _started_in(obj: Object, created: datetime) -> float | None:
    """Seconds from a Ready pod's creation until it was Ready; None where the condition's time is that of a recovery:
    where containers began anew, or it came later than a server may start (its node was away for a while, say)."""
    # Those that others add begin anew by themselves; a pod of an earlier version may have another name for ours.
    status = obj.get("status", {})
    every = status.get("containerStatuses", [])
    containers = [each for each in every if each.get("name") in names.CONTAINERS] or every
    if any(container.get("restartCount") for container in containers):
        return None
    since = next((c.get("lastTransitionTime") for c in status["conditions"] if c["type"] == "Ready"), None)
    if not since:
        return None
    ready = moment(since)
    running = [container.get("state", {}).get("running", {}).get("startedAt") for container in containers]
    began = max((datetime.fromisoformat(at) for at in running if at), default=created)
    if (ready - began).total_seconds() > _most_start(obj):
        return None
    return (moment(by_the_api_server(obj, since)) - created).total_seconds()


def _is_address(text: object) -> bool:
    try:
        ipaddress.ip_address(str(text))
    except ValueError:
        return False
    return True
