"""Why pods wait: what stands in no pod's manifest, read where one has waited for a while.

A pod in ContainerCreating has no reason; the kubelet and the attach controller write Events. A Job whose pods are
refused has none either. The scheduler names no claim that it waits for.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tandem.api.conditions import ServingReason
from tandem.api.wire import Object
from tandem.cluster.client import Api
from tandem.cluster.kinds import CACHE_CLAIM
from tandem.cluster.manifests import condition, created, is_true, job_uid, uid
from tandem.errors import Forbidden
from tandem.rollout.observed import Problem
from tandem.times import seconds

PATIENCE_SECONDS = 20.0
"""A volume is made and attached, and a pod created, in less as a rule."""
MOST_ASKED = 4
"""Pods and Jobs that are asked about in one reconcile: status shows one of them."""
_VOLUME = ("FailedAttachVolume", "FailedMount", "FailedMapVolume")
_BEGUN = ("Pulling", "Pulled", "Created", "Started")
"""The kubelet's Events from then on when all volumes are mounted."""
_OF_CLAIMS = ("persistentvolumeclaim", "persistent volume", "volume node affinity")
"""Words of the scheduler where it waits for a claim."""


@dataclass(frozen=True)
class Waits:
    """Whether anything waits, and what is known of it: by UID of the pod or Job."""

    any: bool
    problems: Mapping[str, Problem]


async def waits(api: Api, namespace: str, pods: Sequence[Object], jobs: Sequence[Object], now: str) -> Waits:
    """What `pods` and `jobs` of a service wait for at `now`, the API server's time. Events that may not be read are
    left out."""
    with_pods = {job_uid(pod) for pod in pods}
    waiting = [pod for pod in pods if _not_begun(pod)]
    podless = [job for job in jobs if uid(job) not in with_pods and not _over(job)]
    asked = [_of_pod(api, namespace, pod) for pod in _long(waiting, now)]
    asked += [_of_job(api, namespace, job) for job in _long(podless, now)]
    answers = await asyncio.gather(*asked)
    return Waits(bool(waiting or podless), {owner: problem for owner, problem in answers if problem})


def _long(objects: Iterable[Object], now: str) -> list[Object]:
    """The oldest of those that are older than our patience."""
    aged = sorted((each for each in objects if _age(each, now) >= PATIENCE_SECONDS), key=created)
    return aged[:MOST_ASKED]


def _age(obj: Object, now: str) -> float:
    return seconds(at, now) if (at := created(obj)) else 0.0


def _over(job: Object) -> bool:
    return is_true(job, "Complete") or is_true(job, "Failed")


def _not_begun(pod: Object) -> bool:
    """Whether no container of it was started, and it is neither over nor on its way out."""
    status = pod.get("status", {})
    if status.get("phase", "Pending") != "Pending" or "deletionTimestamp" in pod["metadata"]:
        return False
    containers = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    reasons = {each.get("state", {}).get("waiting", {}).get("reason") for each in containers}
    return reasons <= {"ContainerCreating", "PodInitializing"}


async def _of_pod(api: Api, namespace: str, pod: Object) -> tuple[str, Problem | None]:
    if is_true(pod, "PodScheduled"):
        return uid(pod), _not_set_up(pod, await _events(api, namespace, pod))
    return uid(pod), await _unbound(api, namespace, pod)


def _not_set_up(pod: Object, events: Sequence[Object]) -> Problem | None:
    """By the Warnings since the kubelet got further, the attach controller's first: the kubelet waits for it."""
    last = max((index for index, each in enumerate(events) if each.get("reason") in _BEGUN), default=-1)
    warnings = [each for each in events[last + 1 :] if each.get("type") == "Warning"]
    if not warnings:
        return None
    event = next((each for each in warnings if each["reason"] == "FailedAttachVolume"), warnings[-1])
    reason = ServingReason.VOLUME_NOT_MOUNTED if event["reason"] in _VOLUME else ServingReason.POD_NOT_STARTED
    where = f"pod {pod['metadata']['name']} waits in ContainerCreating"
    return Problem(reason, f"{where}: {event['reason']}: {event.get('message', '')}")


async def _unbound(api: Api, namespace: str, pod: Object) -> Problem | None:
    """The first claim of the pod that has no volume, where the scheduler waits for one."""
    said = str((condition(pod, "PodScheduled") or {}).get("message", "")).lower()
    for name in _claims(pod):
        claim = await _claim(api, namespace, name)
        if claim is None or claim.get("status", {}).get("phase") == "Bound":
            continue
        events = await _events(api, namespace, claim)
        warned = [each for each in events if each.get("type") == "Warning"]
        # With WaitForFirstConsumer a claim waits for the pod; then the scheduler says what the pod waits for.
        if warned or not said or any(words in said for words in _OF_CLAIMS):
            return Problem(ServingReason.CLAIM_PENDING, _of_claim(pod, claim, (warned or events)[-1:]))
    return None


def _claims(pod: Object) -> list[str]:
    found = []
    for volume in pod.get("spec", {}).get("volumes", []):
        if claim := volume.get("persistentVolumeClaim"):
            found.append(str(claim["claimName"]))
        elif "ephemeral" in volume:
            found.append(f"{pod['metadata']['name']}-{volume['name']}")
    return found


def _of_claim(pod: Object, claim: Object, events: Sequence[Object]) -> str:
    spec, phase = claim.get("spec", {}), claim.get("status", {}).get("phase", "Pending")
    storage = spec.get("storageClassName")
    kind = f"storage class {storage}" if storage else "no storage class, so the cluster's default must make it"
    modes = ", ".join(spec.get("accessModes", []))
    why = "".join(f": {each.get('message', '')}" for each in events)
    return (
        f"pod {pod['metadata']['name']} waits for PersistentVolumeClaim {claim['metadata']['name']}, which is {phase}"
        f" ({kind}; access mode {modes}){why}"
    )


async def _claim(api: Api, namespace: str, name: str) -> Object | None:
    try:
        return await api.get(CACHE_CLAIM, namespace, name)
    except Forbidden:
        return None


async def _of_job(api: Api, namespace: str, job: Object) -> tuple[str, Problem | None]:
    warned = [each for each in await _events(api, namespace, job) if each.get("type") == "Warning"]
    if not warned:
        return uid(job), None
    message = f"Job {job['metadata']['name']} gets no pod: {warned[-1].get('message', '')}"
    return uid(job), Problem(ServingReason.POD_NOT_MADE, message)


async def _events(api: Api, namespace: str, obj: Object) -> list[Object]:
    """The object's Events, the newest last; none where the operator may not read them."""
    try:
        return sorted(await api.events(namespace, uid(obj)), key=_seen)
    except Forbidden:
        return []


def _seen(event: Object) -> str:
    """When it was last seen. Both forms are RFC 3339 in UTC; one has parts of seconds."""
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or created(event)
    )
