"""A condition without its times."""

from dataclasses import dataclass

from tandem.api.conditions import ConditionStatus, ConditionType, ExternalReason, Reason


@dataclass(frozen=True)
class Finding:
    """A condition without its times."""

    type: ConditionType
    status: ConditionStatus
    reason: Reason | ExternalReason
    message: str
