"""Which revision the figures and conditions on speculation are of, and what of the status before is of it. Pure.

`status.judgedRevision` has it: a change of the revision, and so of the draft length or anything else that decides how
fast its pods are, resets what was known.
"""

from tandem.api.conditions import ConditionType
from tandem.api.types import SpeculativeInferenceService
from tandem.conditions.situation import Situation

JUDGED = (ConditionType.SPECULATION_ACTIVE, ConditionType.SPECULATION_BENEFICIAL)
"""Conditions that are of a revision, and stay while nothing else is known of it."""


def judged_revision(situation: Situation) -> str:
    """The revision whose pods the report is of, several while one takes the other's place; empty: none serves.

    Without pods that serve, or without a report, the one that was judged before, while that is to serve."""
    service, reading = situation.service, situation.reading
    if reading and reading.report and reading.report.serving:
        return " and ".join(reading.report.serving)
    before, live = service.status.judged_revision or "", situation.observed.live_revision
    return before if before == service.status.current_revision else live


def as_judged(situation: Situation) -> SpeculativeInferenceService:
    """The service without what its status has of another revision."""
    service = situation.service
    if (service.status.judged_revision or "") == judged_revision(situation):
        return service
    stays = [each for each in service.status.conditions if each.type not in JUDGED]
    status = service.status.model_copy(update={"conditions": stays, "speculation": None})
    return service.model_copy(update={"status": status})
