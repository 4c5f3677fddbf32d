"""Kubernetes Events: what a user must know, when it changes."""

import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tandem import counters
from tandem.api import API_VERSION, KIND
from tandem.api.conditions import AS_SPECIFIED, STAGES, ConditionType, EventReason, ServingReason
from tandem.api.types import SpeculativeInferenceService
from tandem.children.foreign import described
from tandem.cluster.client import Api
from tandem.cluster.kinds import EVENT
from tandem.cluster.lease import Leadership
from tandem.conditions.engine_health import Failure
from tandem.errors import Refused, Transient
from tandem.rollout.plan import Action, Apply
from tandem.times import seconds

log = logging.getLogger(__name__)

WATCHED_TYPES = (ConditionType.READY, ConditionType.STALLED)
WARNED_TYPES = tuple(each for each in ConditionType if each.warns)
OF_PODS = (ServingReason.SERVERS_ANSWER, ServingReason.ROLLING_OUT, ServingReason.REPLICAS_NOT_READY)
"""Reasons of Ready where it follows the server pods."""
NEW_SECONDS = 1800.0
"""An operator that starts writes no Event for a failure that is older. Shorter than the hour for which an API server
keeps Events: a failure that has one is counted."""
MOST_MESSAGE = 1024


async def record_transitions(
    api: Api, leadership: Leadership, service: SpeculativeInferenceService, status: dict[str, Any]
) -> None:
    """Write an Event for each flip of Ready, each stage of a start, each new reason to be Stalled, and each condition
    that warns and becomes False, unless the specification asks for that. Never fails the caller.

    While `PodsHealthy` is False, flips of Ready that pods cause have its Event: a failure that comes again and again
    has one.
    """
    before = {c.type: (c.status, c.reason) for c in service.status.conditions}
    for condition in status["conditions"]:
        kind, now = condition["type"], (condition["status"], condition["reason"])
        warned = kind in WARNED_TYPES and condition["status"] == "False" and condition["reason"] not in AS_SPECIFIED
        stage = kind == ConditionType.RECONCILING and condition["reason"] in STAGES
        if kind == ConditionType.READY:
            if not _ready_flips(before, status):
                continue
        elif not (kind in WATCHED_TYPES or warned or stage) or before.get(kind) == now:
            continue
        good = stage or (kind == ConditionType.READY and condition["status"] == "True")
        severity = "Normal" if good else "Warning"
        flipped_off = kind == ConditionType.READY and condition["status"] == "False"
        reason = EventReason.NOT_READY if flipped_off else condition["reason"]
        try:
            leadership.check()
            await api.create(EVENT, _event(service, _Said(severity, reason, condition["message"]), api.now()))
        except (Transient, Refused) as error:
            log.warning("no event for %s/%s: %s", service.namespace, service.name, error)


async def record_reverts(
    api: Api, leadership: Leadership, service: SpeculativeInferenceService, actions: Sequence[Action]
) -> None:
    """Write an Event for each child in which the `actions`, which were carried out, undid what others had written.
    Never fails the caller."""
    for action in actions:
        live = action.live if isinstance(action, Apply) else None
        if not (live and (written := described(live.manifest))):
            continue
        message = f"{live.kind} {live.name}: {written}, which was undone"
        try:
            leadership.check()
            await api.create(EVENT, _event(service, _Said("Normal", EventReason.EDIT_REVERTED, message), api.now()))
        except (Transient, Refused) as error:
            log.warning("no event for %s/%s: %s", service.namespace, service.name, error)


def _ready_flips(before: Mapping[str, tuple[str, str]], status: Mapping[str, Any]) -> bool:
    """Whether Ready has an Event: it flips, not for pods whose failure has one; or that is over, and it is True. To
    be False for another reason is progress."""
    now = {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}
    (is_ready, reason), (was_ready, _) = now[ConditionType.READY], before.get(ConditionType.READY, ("False", ""))
    if ConditionType.PODS_HEALTHY in now and reason in OF_PODS:
        return False
    return is_ready != was_ready or (is_ready == "True" and ConditionType.PODS_HEALTHY in before)


class FailureEvents:
    """Writes an Event for each failure of an engine, and counts it: once, whichever operator saw it first.

    The Event's name follows from the failure, so that the API server keeps a second one from being made.
    """

    def __init__(self, api: Api, leadership: Leadership) -> None:
        self._api = api
        self._leadership = leadership
        self._known: dict[tuple[str, str], frozenset[str]] = {}
        """Failures that need no Event any more, by service: of those that pods still show."""

    async def record(self, service: SpeculativeInferenceService, shown: Sequence[Failure], now: str) -> None:
        """Record those of `shown`, all that the service's pods show, that are new.

        Raises:
            Transient: something was in the way; call again.
        """
        key = service.namespace, service.name
        known = self._known.get(key, frozenset())
        for failure in shown:
            if (
                failure.run not in known
                and seconds(failure.at, now) < NEW_SECONDS
                and await self._is_first(service, failure)
            ):
                counters.ENGINE_FAILURES.labels(*key, failure.engine.reason).inc()
        self._known[key] = frozenset(failure.run for failure in shown)
        if not shown:
            del self._known[key]

    def forget(self, namespace: str, name: str) -> None:
        """The service is gone."""
        self._known.pop((namespace, name), None)

    async def _is_first(self, service: SpeculativeInferenceService, failure: Failure) -> bool:
        """Write the Event; False where it is there already."""
        said = _Said("Warning", EventReason.ENGINE_FAILED, failure.description, failure.run)
        event = _event(service, said, self._api.now())
        self._leadership.check()
        try:
            return await self._api.create_once(EVENT, event)
        except Refused as error:
            log.warning("no event for %s/%s: %s", service.namespace, service.name, error)
            return True


class _Said(NamedTuple):
    severity: str
    reason: str
    message: str
    suffix: str = ""
    """Makes the Event's name; without it, no two are the same."""


def _event(service: SpeculativeInferenceService, said: _Said, now: str) -> dict[str, Any]:
    name = f"{service.name}.{said.suffix or uuid.uuid4().hex[:16]}"
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": name, "namespace": service.namespace},
        "type": said.severity,
        "reason": said.reason,
        "message": said.message[:MOST_MESSAGE],
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": service.name,
            "namespace": service.namespace,
            "uid": service.uid,
        },
        "source": {"component": "tandem"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
