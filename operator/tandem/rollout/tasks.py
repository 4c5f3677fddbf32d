"""What is known of a task: where it stands, and what its verdict says."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tandem import names
from tandem.api.conditions import ConditionStatus, TaskReason
from tandem.children.task import VERDICT_KEY, Task
from tandem.render.v1.sources import CACHE
from tandem.rollout.lost import Loss, created, loss, of_claim
from tandem.rollout.observed import Object, Observed, is_true, label, pod_problem, termination_message

MISSES: tuple[str, ...] = (TaskReason.MODEL_GONE, TaskReason.ENGINE_GONE)
"""Reasons of verdicts that miss a folder of the cache volume; see `cached` in images/serving."""
MOST_CHARACTERS = 900
"""Of a message that more is said after; a condition's has 1024."""


class Check(BaseModel):
    """One condition that the task found; see `entrypoint.py preflight` in images/serving."""

    type: str
    status: ConditionStatus
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    message: str


class _Message(BaseModel):
    model_config = ConfigDict(extra="allow")

    checks: list[Check]


class _Fetched(BaseModel):
    """What a download's verdict adds; see images/fetcher. It comes from a pod: nothing else may be named."""

    path: Annotated[str, Field(pattern=r"^models/[0-9a-f]{16,64}(/[A-Za-z0-9][A-Za-z0-9._-]*)*$")]


class _Pinned(BaseModel):
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class Stage(Enum):
    """Where a task stands."""

    ABSENT = "Absent"
    RUNNING = "Running"
    DONE = "Done"
    BROKEN = "Broken"
    LOST = "Lost"


@dataclass(frozen=True)
class Outcome:
    """`verdict` is the termination message (DONE), `checks` and `data` what it says; `detail` is for people."""

    stage: Stage
    verdict: str = ""
    checks: tuple[Check, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    detail: str = ""
    loss: Loss | None = None
    """Why a result that stands, or what pods look for, makes it to be done again."""
    stale: Object | None = None
    """That result; it goes when the task is done again, since till then it tells which content is wanted."""
    refill: bool = False
    """Whether this is the second time, after pods reported that what the first one brought is gone."""

    @property
    def passed(self) -> bool:
        """Whether no check said False. What could not be found out (Unknown) holds nothing up."""
        return self.stage is Stage.DONE and all(check.status != "False" for check in self.checks)

    @property
    def failed(self) -> bool:
        """Whether it ended otherwise: nothing goes on by itself."""
        return self.stage is Stage.BROKEN or (self.stage is Stage.DONE and not self.passed)

    def is_final(self, task: Task) -> bool:
        """Whether the verdict is to be kept."""
        return self.stage is Stage.DONE and (self.passed or (task.refusal_is_final and not self.misses))

    @property
    def misses(self) -> bool:
        """Whether the verdict is that a folder is gone, which is brought back: that is not its last word."""
        return any(check.reason in MISSES for check in self.checks)


def cached_folder(outcome: Outcome) -> str | None:
    """Folder of a download that passed, in the containers; None when the verdict names none."""
    try:
        return f"{CACHE}/{_Fetched.model_validate(outcome.data).path}"
    except ValidationError:
        return None


def fetched_folder(result: Object) -> str | None:
    """The same of a download's result; None of another task's."""
    return cached_folder(_parse(result["data"][VERDICT_KEY], ""))


def pinned(observed: Observed, name: str) -> str:
    """The revision that the download's result of that name is of, whether it is still true or not; empty: none.

    A branch may have moved on since: what is fetched again is what was there.
    """
    result = observed.child("ConfigMap", name)
    try:
        return _Pinned.model_validate(_parse(result["data"][VERDICT_KEY], name).data).revision if result else ""
    except ValidationError:
        return ""


def observe_task(observed: Observed, service: str, task: Task) -> Outcome:
    """Read where `task` stands from its result while that is true, else from its Job and the Job's pods."""
    name = task.name(service)
    result, job = observed.child("ConfigMap", name), observed.child("Job", name)
    recorded = _parse(result["data"][VERDICT_KEY], name) if result else None
    folder = (recorded and cached_folder(recorded)) or task.folder
    lost = loss(observed, task.claim, folder, result, job) if task.claim else None
    if result and lost and lost.again:
        return Outcome(Stage.BROKEN, loss=lost, detail=f"{_again(result)}; then delete the ConfigMap {name}")
    if result and recorded and not lost:
        return replace(recorded, refill=label(result, names.LABEL_REFILL) == "true")
    # A Job that is older did what is lost.
    older = lost and result and job and created(job) <= created(result)
    outcome = Outcome(Stage.LOST) if older else _of_job(observed, task, name, job)
    if outcome.stage is Stage.DONE and not task.refusal_is_final:
        again = f"{name} and the ConfigMap of that name, which names what was lost," if result else name
        outcome = replace(outcome, checks=tuple(_to_try_again(check, again) for check in outcome.checks))
    refill = label(job, names.LABEL_REFILL) == "true" if job else bool(result and lost and lost.reported)
    return replace(outcome, loss=lost, stale=result, refill=refill)


def _again(result: Object) -> str:
    return f"it was brought back at {created(result)} already: find out what empties the volume"


def _of_job(observed: Observed, task: Task, name: str, job: Object | None) -> Outcome:
    if job is None:
        return Outcome(Stage.ABSENT, detail=_next(name, task))
    if task.claim and (not of_claim(job, observed.cache) or (observed.cache is None and is_true(job, "Complete"))):
        return Outcome(Stage.LOST)
    # By uid: a Job that was deleted, to try again, leaves its pods for a while.
    uid = job["metadata"]["uid"]
    pods = [pod for pod in observed.pods if label(pod, "batch.kubernetes.io/controller-uid") == uid]
    if _outdated(job, task) and (is_true(job, "Failed") or not any(map(_begun, pods))):
        return Outcome(Stage.LOST)
    if is_true(job, "Failed"):
        return Outcome(Stage.BROKEN, detail=_failure(name, job, pods))
    if is_true(job, "Complete"):
        return _completed(name, pods)
    return Outcome(Stage.RUNNING, detail=_running(observed, name, task, pods))


def _outdated(job: Object, task: Task) -> bool:
    """Whether the spec asks for another pod by now: other nodes, a pull secret. Where a pod works on it that changes
    nothing; one that cannot begin, or that failed, would not come to know."""
    made = label(job, names.LABEL_POD)
    return bool(made) and made != task.pod_digest


def _begun(pod: Object) -> bool:
    return pod.get("status", {}).get("phase", "Pending") not in ("Pending", "Failed")


def _running(observed: Observed, name: str, task: Task, pods: list[Object]) -> str:
    progress = [text for pod in pods if (text := observed.progress.get(str(pod["metadata"]["name"])))]
    problems = [f"{said}; trying again" if (said := _said(pod)) else pod_problem(pod) for pod in pods]
    return next(filter(None, [*progress, *problems]), f"Job {name} {task.title}" if pods else _next(name, task))


def _next(name: str, task: Task) -> str:
    """Where there is no pod yet, and where a quota or an admission webhook lets none be made, which no Job tells."""
    return f"Job {name} {task.title} next; if it gets no pod, see kubectl describe job {name}"


def _completed(name: str, pods: list[Object]) -> Outcome:
    # Of those before it, which failed and were tried again, the verdict is not the Job's.
    succeeded = [pod for pod in pods if pod.get("status", {}).get("phase") == "Succeeded"]
    messages = [m for pod in succeeded if (m := termination_message(pod)) is not None]
    if not messages:
        # The Job is done and its pod, with the verdict, is gone: nothing to read, so it runs again.
        return Outcome(Stage.LOST)
    return _parse(messages[0], name)


def _to_try_again(check: Check, job: str) -> Check:
    """What to do about it may be outside the spec, such as a token's rights: nothing tells us when it is done."""
    if check.status == "True":
        return check
    said = f"{check.message[:MOST_CHARACTERS]}; unless you edit this service, delete the Job {job} to try again"
    return check.model_copy(update={"message": said})


def _parse(text: str, name: str) -> Outcome:
    try:
        message = _Message.model_validate(json.loads(text))
    except (ValueError, RecursionError) as error:
        detail = f"{name} reported no verdict that this operator can read ({error}): delete it to try again"
        return Outcome(Stage.BROKEN, detail=detail)
    return Outcome(Stage.DONE, verdict=text, checks=tuple(message.checks), data=message.model_extra or {})


def _failure(name: str, job: Object, pods: list[Object]) -> str:
    problems = [_said(pod) or problem for pod in pods if (problem := pod_problem(pod))]
    reason = (
        problems[-1]
        if problems
        else next((str(c.get("message", "")) for c in job["status"]["conditions"] if c["type"] == "Failed"), "")
    )
    return f"Job {name} failed: {reason}; delete the Job to try again"


def _said(pod: Object) -> str:
    """What the verdict of a pod that failed says; empty when it left none."""
    outcome = _parse(termination_message(pod) or "", "")
    return next((check.message for check in outcome.checks if check.status != "True"), "")
