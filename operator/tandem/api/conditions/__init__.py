"""The registry of conditions: every type, every reason, what it means and what to do.

Statuses and Events are made from it, and docs/reference/conditions.md is generated from it. Imports nothing of
Tandem; every package may import it.
"""

from tandem.api.conditions.acceptance import AcceptanceReason
from tandem.api.conditions.registry import (
    AS_SPECIFIED,
    ConditionStatus,
    ConditionType,
    EventReason,
    ExternalReason,
    Reason,
    ServingReason,
    Shown,
)
from tandem.api.conditions.spec import SpecReason
from tandem.api.conditions.tasks import TaskReason

__all__ = [
    "AS_SPECIFIED",
    "REASONS",
    "STAGES",
    "AcceptanceReason",
    "ConditionStatus",
    "ConditionType",
    "EventReason",
    "ExternalReason",
    "Reason",
    "ServingReason",
    "Shown",
    "SpecReason",
    "TaskReason",
]

REASONS: tuple[Reason, ...] = (*SpecReason, *TaskReason, *ServingReason, *AcceptanceReason, *EventReason)
"""All of them. A word is there once."""
STAGES: tuple[Reason, ...] = (
    TaskReason.FETCH_RUNNING,
    TaskReason.BUILD_RUNNING,
    TaskReason.PREFLIGHT_RUNNING,
    ServingReason.ROLLING_OUT,
)
"""Reasons of `Reconciling` while a service gets on: each is an Event when it begins."""
