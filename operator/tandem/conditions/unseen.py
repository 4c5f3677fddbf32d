"""The status of a service that the operator cannot look at, or not act on: as before, with Ready Unknown. Pure.

A status that nobody updates would show servers as Ready long after they are gone.
"""

import re
from collections.abc import Sequence
from typing import Any

from tandem.api.conditions import ConditionType, ServingReason
from tandem.api.types import SpeculativeInferenceService
from tandem.conditions.finding import Finding
from tandem.conditions.ready import ServerCounts, available, condition
from tandem.errors import TandemError, Transient
from tandem.rollout.observed import Observed
from tandem.rollout.redaction import redacted


def stalled_status(
    service: SpeculativeInferenceService, observed: Observed, missing: Sequence[Finding], now: str
) -> dict[str, Any]:
    """Of a service whose children may not all be read: Stalled by the `missing` rights, and with its pods as they
    are, where those may be read."""
    stalled = [Finding(ConditionType.STALLED, "True", each.reason, each.message) for each in missing]
    ready = [Finding(ConditionType.READY, "Unknown", each.reason, each.message) for each in missing[:1]]
    findings, counts = [*ready, *stalled, *missing], dict[str, int]()
    if "Pod" not in observed.unread:
        servers = ServerCounts.of(observed, service.status.update_revision)
        findings.append(available(servers))
        counts = {
            "replicas": min(servers.replicas, service.spec.replicas),
            "readyReplicas": servers.ready,
            "updatedReplicas": servers.updated,
        }
    return {**_as_before(service, findings, now), **counts}


def failed_status(service: SpeculativeInferenceService, error: Exception, now: str) -> dict[str, Any]:
    """Of a service that `error` keeps from being reconciled. The other conditions are of the last time."""
    reason = ServingReason.RECONCILE_FAILED
    message = _settled(service, redacted(_described(error)))
    findings = [Finding(ConditionType.READY, "Unknown", reason, message)]
    if not isinstance(error, Transient):
        findings.append(Finding(ConditionType.STALLED, "True", reason, message))
    return _as_before(service, findings, now)


def _described(error: Exception) -> str:
    if isinstance(error, TandemError):
        return f"the operator cannot look at this service, or not act on it, and tries again: {error}"
    return (
        "the operator fails at this service, by a defect, and tries again: see its log, and report it"
        f" ({type(error).__name__}: {error})"
    )


def _settled(service: SpeculativeInferenceService, message: str) -> str:
    """The message that is shown, where only numbers differ: else each try would be a write, and that a try."""
    shown = next((c.message for c in service.status.conditions if c.type == ConditionType.READY), "")
    return shown if _without_numbers(shown) == _without_numbers(message[: len(shown)]) and shown else message


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "0", text)


def _as_before(service: SpeculativeInferenceService, findings: Sequence[Finding], now: str) -> dict[str, Any]:
    status = service.status
    new = {ConditionType.RECONCILING, ConditionType.STALLED, *(each.type for each in findings)}
    stays = [each.model_dump(by_alias=True) for each in status.conditions if each.type not in new]
    return {
        **status.model_dump(by_alias=True, exclude_unset=True),
        "observedGeneration": service.generation,
        "conditions": [*stays, *(condition(service, finding, now) for finding in findings)],
    }
