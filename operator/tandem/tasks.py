"""What is known of a task: where it stands, and what its verdict says."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from tandem.api.types import ConditionStatus
from tandem.build.task import VERDICT_KEY, Task
from tandem.observed import Object, Observed, is_true, label, pod_problem, termination_message


class Check(BaseModel):
    """One condition that the task found; see `entrypoint.py preflight` in images/serving."""

    type: str
    status: ConditionStatus
    reason: str
    message: str


class _Message(BaseModel):
    model_config = ConfigDict(extra="allow")

    checks: list[Check]


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
    recorded: bool = False
    """Whether the verdict is in its ConfigMap already."""

    @property
    def passed(self) -> bool:
        """Whether no check said False. What could not be found out (Unknown) holds nothing up."""
        return self.stage is Stage.DONE and all(check.status != "False" for check in self.checks)

    @property
    def failed(self) -> bool:
        """Whether it ended otherwise: nothing goes on by itself."""
        return self.stage is Stage.BROKEN or (self.stage is Stage.DONE and not self.passed)


def observe_task(observed: Observed, service: str, task: Task) -> Outcome:
    """Read where `task` stands from its result, else from its Job and the Job's pods."""
    name = task.name(service)
    if result := observed.child("ConfigMap", name):
        return _parse(result["data"][VERDICT_KEY], name, recorded=True)
    job = observed.child("Job", name)
    if job is None:
        return Outcome(Stage.ABSENT, detail=f"Job {name} {task.title} next")
    pods = [pod for pod in observed.pods if label(pod, "batch.kubernetes.io/job-name") == name]
    if is_true(job, "Failed"):
        return Outcome(Stage.BROKEN, detail=_failure(name, job, pods))
    if is_true(job, "Complete"):
        return _completed(name, pods)
    return Outcome(Stage.RUNNING, detail=_running(observed, name, task, pods))


def _running(observed: Observed, name: str, task: Task, pods: list[Object]) -> str:
    progress = [text for pod in pods if (text := observed.progress.get(str(pod["metadata"]["name"])))]
    problems = [f"{said}; trying again" if (said := _said(pod)) else pod_problem(pod) for pod in pods]
    return next(filter(None, [*progress, *problems]), f"Job {name} {task.title}")


def _completed(name: str, pods: list[Object]) -> Outcome:
    messages = [m for pod in pods if (m := termination_message(pod)) is not None]
    if not messages:
        # The Job is done and its pod, with the verdict, is gone: nothing to read, so it runs again.
        return Outcome(Stage.LOST)
    return _parse(messages[0], name)


def _parse(text: str, name: str, *, recorded: bool = False) -> Outcome:
    try:
        message = _Message.model_validate(json.loads(text))
    except (json.JSONDecodeError, ValidationError) as error:
        detail = f"{name} gave no verdict that this operator can read ({error}): delete it to try again"
        return Outcome(Stage.BROKEN, detail=detail)
    return Outcome(
        Stage.DONE, verdict=text, checks=tuple(message.checks), data=message.model_extra or {}, recorded=recorded
    )


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
