"""Which services there are, and which pods serve them: kept up by watches, so that a round asks nobody."""

import asyncio
import ipaddress
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from tandem import names
from tandem.api.types import SpeculativeInferenceService
from tandem.cluster.client import Api
from tandem.cluster.kinds import POD, SERVICES_KIND
from tandem.cluster.reflector import Reflector
from tandem.observed import Object, is_true
from tandem.telemetry.figures import Replicas
from tandem.telemetry.source import Target

log = logging.getLogger(__name__)

SERVER_PODS = f"{names.LABEL_MANAGED_BY}={names.FIELD_MANAGER},{names.LABEL_COMPONENT}={names.SERVER}"
"""Where a replica is a group, its leader is its server: it alone publishes metrics."""


@dataclass(frozen=True)
class Pod:
    """A server pod that is not on its way out."""

    namespace: str
    service: str
    target: Target | None
    """None while it is not Ready: its metrics say nothing about serving yet."""


@dataclass(frozen=True)
class Known:
    """A service and what serves it."""

    service: SpeculativeInferenceService
    targets: tuple[Target, ...]
    """Its Ready pods."""
    replicas: Replicas


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
        replicas = Replicas(len(targets), len(own) - len(targets), known.spec.replicas)
        found.append(Known(known, targets, replicas))
    return found


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
    ready = is_true(obj, "Ready") and _is_address(status.get("podIP"))
    target = Target(meta["uid"], meta["namespace"], meta["name"], status["podIP"]) if ready else None
    return Pod(meta["namespace"], owner, target)


def _is_address(text: object) -> bool:
    try:
        ipaddress.ip_address(str(text))
    except ValueError:
        return False
    return True
