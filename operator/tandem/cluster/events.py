"""Kubernetes Events: what a user must know, when it changes."""

import logging
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tandem import counters
from tandem.api import API_VERSION, KIND
from tandem.api.conditions import AS_SPECIFIED, STAGES, ConditionType, EventReason, ServingReason
from tandem.api.types import SpeculativeInferenceService
from tandem.cluster.client import Api
from tandem.cluster.kinds import EVENT
from tandem.cluster.lease import Leadership
from tandem.conditions.engine_health import Failure, seconds
from tandem.errors import Refused, Transient

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
            await api.create(EVENT, _event(service, severity, reason, condition["message"]))
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
        event = _event(service, "Warning", EventReason.ENGINE_FAILED, failure.description, suffix=failure.run)
        self._leadership.check()
        try:
            return await self._api.create_once(EVENT, event)
        except Refused as error:
            log.warning("no event for %s/%s: %s", service.namespace, service.name, error)
            return True


def _event(
    service: SpeculativeInferenceService, severity: str, reason: str, message: str, suffix: str = ""
) -> dict[str, Any]:
    """`suffix` makes the Event's name; without it, no two are the same."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": f"{service.name}.{suffix or uuid.uuid4().hex[:16]}", "namespace": service.namespace},
        "type": severity,
        "reason": reason,
        "message": message[:MOST_MESSAGE],
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
