"""Whether what a task put into the cache volume is still there. Pure.

A result is true of one claim, by UID: a claim that was made anew is empty. Within a claim pods report which folder is
gone: servers, preflights and builds look before they start (images/serving, `cached`).
"""

import re
from dataclasses import dataclass

from tandem.api.conditions import TaskReason
from tandem.api.folders import CACHE
from tandem.rollout.observed import CacheClaim, Job, Observed, TaskResult
from tandem.times import seconds

AGAIN_SECONDS = 24 * 3600
"""What is gone is brought back by itself; what is gone again within this time is not: something empties the volume.
"""
_GONE = re.compile(rf"({CACHE}/(?:models|engines)/[0-9a-f]+)\S* is gone from the cache volume")


@dataclass(frozen=True)
class Loss:
    """Why a result that stands counts no more; `message` says what is lost."""

    reason: TaskReason
    message: str
    reported: bool = False
    """Whether pods reported it."""
    again: bool = False
    """Whether it is not to be brought back by itself."""


def of_claim(done: Job | TaskResult, claim: CacheClaim | None) -> bool:
    """Whether a Job or result is of this claim. One that names none (made before the claim, or by an operator that
    did not note it) is, unless it is older than the claim."""
    if done.claim or claim is None:
        return done.claim == (claim.uid if claim else "")
    return done.live.created >= claim.created


def loss(observed: Observed, claim: str, folder: str, result: TaskResult | None, job: Job | None) -> Loss | None:
    """Why `result`, which says that `folder` is in the claim of that name, is not true; None where it may be.

    `result` None: whether pods miss the folder, whatever says that it is there. `job`: one of the same name.
    """
    if result and (observed.claim is None or not of_claim(result, observed.claim)):
        return Loss(TaskReason.CACHE_REPLACED, _replaced(observed.claim, claim))
    if not folder:
        return None
    reported, at = missed(observed, folder), result.live.created if result else ""
    if reported > at:
        message = f"{_key(folder)} is gone from the volume of claim {claim}, a pod reported at {reported}"
        again = result is not None and result.refill and seconds(at, reported) < AGAIN_SECONDS
        return Loss(TaskReason.GONE_FROM_CACHE, message, reported=True, again=again)
    if result and job and job.live.created > at:  # begun when a pod reported it, which may be gone itself by now
        message = f"{_key(folder)} was gone from the volume of claim {claim}"
        return Loss(TaskReason.GONE_FROM_CACHE, message, reported=True)
    return None


def missed(observed: Observed, folder: str) -> str:
    """When a pod that does not serve last missed the folder; empty: none did."""
    return observed.gone.get(_key(folder), "")


def gone_folders(message: str) -> list[str]:
    """Folders (`/cache/models/KEY`, `/cache/engines/KEY`) that a pod's termination message misses."""
    return _GONE.findall(message)


def _replaced(claim: CacheClaim | None, name: str) -> str:
    if claim is None:
        return f"the claim {name} that models and engines were in is gone"
    return f"the claim {name} was made again at {claim.created}, without the models and engines of the one before"


def _key(folder: str) -> str:
    return "/".join(folder.split("/")[:4])
