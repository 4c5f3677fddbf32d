"""A condition without its times."""

from dataclasses import dataclass

from tandem.api.types import ConditionStatus


@dataclass(frozen=True)
class Finding:
    """A condition without its times."""

    type: str
    status: ConditionStatus
    reason: str
    message: str
