"""Kubernetes Events: what a user must know, when it changes."""

import logging
import uuid
from datetime import UTC, datetime
from typing import Any

from tandem.api import API_VERSION, KIND
from tandem.api.types import SpeculativeInferenceService
from tandem.cluster.client import Api
from tandem.cluster.kinds import EVENT
from tandem.cluster.lease import Leadership
from tandem.errors import Refused, Transient
from tandem.verdicts import AS_ASKED

log = logging.getLogger(__name__)

WATCHED_CONDITIONS = ("Ready", "Stalled")
WARNED_CONDITIONS = ("SpeculationActive", "SpeculationBeneficial", "ObjectivesReachable", "RightsGranted")
"""Those that are told when they become False."""


async def record_transitions(
    api: Api, leadership: Leadership, service: SpeculativeInferenceService, status: dict[str, Any]
) -> None:
    """Write an Event for each flip of Ready, each new reason to be Stalled, and each of `WARNED_CONDITIONS` that
    becomes False, unless that was asked for. Never fails the caller."""
    before = {c.type: (c.status, c.reason) for c in service.status.conditions}
    for condition in status["conditions"]:
        kind, now = condition["type"], (condition["status"], condition["reason"])
        warned = kind in WARNED_CONDITIONS and condition["status"] == "False" and condition["reason"] not in AS_ASKED
        if not (kind in WATCHED_CONDITIONS or warned) or before.get(kind) == now:
            continue
        if kind == "Ready" and before.get(kind, ("False", ""))[0] == condition["status"]:
            continue  # Ready is False for another reason now: progress, not news
        severity = "Normal" if kind == "Ready" and condition["status"] == "True" else "Warning"
        try:
            leadership.check()
            await api.create(EVENT, _event(service, severity, condition))
        except (Transient, Refused) as error:
            log.warning("no event for %s/%s: %s", service.namespace, service.name, error)


def _event(service: SpeculativeInferenceService, severity: str, condition: dict[str, Any]) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    flipped_off = condition["type"] == "Ready" and condition["status"] == "False"
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": f"{service.name}.{uuid.uuid4().hex[:16]}", "namespace": service.namespace},
        "type": severity,
        "reason": "NotReady" if flipped_off else condition["reason"],
        "message": condition["message"],
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
