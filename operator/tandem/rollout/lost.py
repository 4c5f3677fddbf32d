"""Whether what a task put into the cache volume is still there. Pure.

A result is true of one claim, by UID: a claim that was made anew is empty. Within a claim pods report which folder is
gone: servers, preflights and builds look before they start (images/serving, `cached`).
"""

import re
from dataclasses import dataclass
from datetime import datetime

from tandem import names
from tandem.api.conditions import TaskReason
from tandem.render.v1.sources import CACHE
from tandem.rollout.observed import Object, Observed, label

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


def created(obj: Object | None) -> str:
    """When the object was made, RFC 3339 in UTC; empty where there is none."""
    return str(obj["metadata"].get("creationTimestamp", "")) if obj else ""


def uid(claim: Object | None) -> str:
    """Value of `names.LABEL_CLAIM`."""
    return str(claim["metadata"].get("uid", "")) if claim else ""


def of_claim(obj: Object, claim: Object | None) -> bool:
    """Whether a Job or result is of this claim. One that names none (made before the claim, or by an operator that
    did not note it) is, unless it is older than the claim."""
    made_for = label(obj, names.LABEL_CLAIM)
    if made_for or claim is None:
        return made_for == uid(claim)
    return created(obj) >= created(claim)


def loss(observed: Observed, claim: str, folder: str, result: Object | None, job: Object | None) -> Loss | None:
    """Why `result`, which says that `folder` is in the claim of that name, is not true; None where it may be.

    `result` None: whether pods miss the folder, whoever said that it is there. `job`: one of the same name.
    """
    if result and (observed.cache is None or not of_claim(result, observed.cache)):
        return Loss(TaskReason.CACHE_REPLACED, _replaced(observed.cache, claim))
    if not folder:
        return None
    reported, at = missed(observed, folder), created(result)
    if reported > at:
        message = f"{_key(folder)} is gone from the volume of claim {claim}, a pod reported at {reported}"
        again = (
            bool(result)
            and label(result or {}, names.LABEL_REFILL) == "true"
            and _seconds(at, reported) < AGAIN_SECONDS
        )
        return Loss(TaskReason.GONE_FROM_CACHE, message, reported=True, again=again)
    if result and created(job) > at:  # begun when a pod reported it, which may be gone itself by now
        return Loss(
            TaskReason.GONE_FROM_CACHE, f"{_key(folder)} was gone from the volume of claim {claim}", reported=True
        )
    return None


def missed(observed: Observed, folder: str) -> str:
    """When a pod that does not serve last missed the folder; empty: none did."""
    return gone(observed).get(_key(folder), "")


def gone(observed: Observed) -> dict[str, str]:
    """Folders (`/cache/models/KEY`, `/cache/engines/KEY`) that pods which do not serve missed, and when they last did
    (RFC 3339 in UTC)."""
    found: dict[str, str] = {}
    for pod in observed.pods:
        for status in pod.get("status", {}).get("containerStatuses", []):
            if status.get("ready"):
                continue  # it found them in the end
            for state in (status.get("lastState", {}), status.get("state", {})):
                ended = state.get("terminated") or {}
                for folder in _GONE.findall(str(ended.get("message", ""))):
                    found[folder] = max(found.get(folder, ""), str(ended.get("finishedAt", "")))
    return found


def _replaced(claim: Object | None, name: str) -> str:
    if claim is None:
        return f"the claim {name} that models and engines were in is gone"
    return f"the claim {name} was made again at {created(claim)}, without the models and engines of the one before"


def _key(folder: str) -> str:
    return "/".join(folder.split("/")[:4])


def _seconds(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
