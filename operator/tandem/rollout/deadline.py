"""Whether the rollout of a revision goes on, and what serves when it was given up. Pure: the clock is an argument.

A revision is given up at the deadline, or for its accepted length (`speculation.minAcceptedLength`).

As a Deployment's progressDeadlineSeconds, and the same for a LeaderWorkerSet, which has none: a rollout makes
progress when the workload changes and whenever one more of its servers answers. Once it was complete there is no
deadline: servers that fail later are started again.
"""

from collections.abc import Mapping

from tandem.api.types import SpeculativeInferenceService
from tandem.rollout.observed import Observed
from tandem.times import moment, seconds


def overdue(service: SpeculativeInferenceService, digest: str, observed: Observed, now: str) -> bool:
    """Whether the revision `digest` is being rolled out, and no further server has answered for too long.

    `now`: by the API server's clock, as the times that it is compared with.
    """
    if service.status.current_revision == digest or observed.live_revision != digest:
        return False
    ready = [server for server in observed.replicas if server.revision == digest and server.ready]
    if len(ready) >= service.spec.replicas:
        return False
    times = [observed.workloads[-1].applied, *(server.ready_since for server in ready)]
    progress = max(filter(None, times), key=moment, default=None)
    return progress is not None and seconds(progress, now) >= service.spec.rollout.progress_deadline_seconds


def gave_way(service: SpeculativeInferenceService, digest: str, known: Mapping[str, object]) -> str | None:
    """Revision that serves instead of `digest`, which was given up; None where that serves as asked.

    `known`: the revisions that can be rendered. The status remembers what was given up: the deadline and the accepted
    length are read there before anything is done about it, so that an operator that dies in between comes to the same
    end.
    """
    status, minimum = service.status, service.spec.speculation.min_accepted_length
    if status.failed_revision != digest or status.current_revision == digest or status.current_revision not in known:
        return None
    if status.failed_accepted_length is None:
        return status.current_revision if can_give_way(service, digest, known) else None
    return status.current_revision if minimum is not None and status.failed_accepted_length < minimum else None


def can_give_way(service: SpeculativeInferenceService, digest: str, known: Mapping[str, object]) -> bool:
    """Whether there is a revision to go back to at the deadline, and the user wants that."""
    current = service.status.current_revision
    return service.spec.rollout.strategy == "Replace" and current != digest and current in known


def previous(service: SpeculativeInferenceService, digest: str, known: Mapping[str, object]) -> str | None:
    """The revision to go back to where the accepted length of `digest` is too short; None where there is none, or
    `digest` was seen to keep the minimum since its rollout."""
    status = service.status
    last = status.fallback_revision if status.current_revision == digest else status.current_revision
    return last if last != digest and last in known else None
