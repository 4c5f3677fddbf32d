"""The preflight's verdict: where it stands, and what it said."""

import json
from dataclasses import dataclass
from enum import Enum

from pydantic import BaseModel, ValidationError

from tandem import names
from tandem.api.types import ConditionStatus
from tandem.build.configmap import VERDICT_KEY
from tandem.observed import Object, Observed, is_true, label, pod_problem, termination_message
from tandem.render import Revision


class Check(BaseModel):
    """One condition that the preflight found; see `entrypoint.py preflight` in images/serving."""

    type: str
    status: ConditionStatus
    reason: str
    message: str


class _Message(BaseModel):
    checks: list[Check]


class Stage(Enum):
    """Where the preflight stands."""

    ABSENT = "Absent"
    RUNNING = "Running"
    DONE = "Done"
    BROKEN = "Broken"
    LOST = "Lost"


@dataclass(frozen=True)
class Preflight:
    """`verdict` is the termination message (DONE); `checks` what it says; `detail` is for people."""

    stage: Stage
    verdict: str = ""
    checks: tuple[Check, ...] = ()
    detail: str = ""

    @property
    def passed(self) -> bool:
        """Whether every check said True."""
        return self.stage is Stage.DONE and all(check.status == "True" for check in self.checks)


def observe_preflight(observed: Observed, service: str, revision: Revision) -> Preflight:
    """Read the preflight of `revision` from its result, else from its Job and the Job's pods."""
    name = names.preflight(service, revision.preflight_digest)
    if result := observed.child("ConfigMap", name):
        return _parse(result["data"][VERDICT_KEY], name)
    job = observed.child("Job", name)
    if job is None:
        return Preflight(Stage.ABSENT)
    pods = [pod for pod in observed.pods if label(pod, "batch.kubernetes.io/job-name") == name]
    if is_true(job, "Failed"):
        return Preflight(Stage.BROKEN, detail=_failure(name, job, pods))
    if is_true(job, "Complete"):
        return _completed(name, pods)
    problems = [problem for pod in pods if (problem := pod_problem(pod))]
    return Preflight(Stage.RUNNING, detail=problems[0] if problems else f"Job {name} checks the models")


def _completed(name: str, pods: list[Object]) -> Preflight:
    messages = [m for pod in pods if (m := termination_message(pod, names.CONTAINER)) is not None]
    if not messages:
        # The Job is done and its pod, with the verdict, is gone: nothing to read, so it runs again.
        return Preflight(Stage.LOST)
    return _parse(messages[0], name)


def _parse(text: str, name: str) -> Preflight:
    try:
        checks = _Message.model_validate(json.loads(text)).checks
    except (json.JSONDecodeError, ValidationError) as error:
        detail = f"{name} gave no verdict that this operator can read ({error}): delete it to try again"
        return Preflight(Stage.BROKEN, detail=detail)
    return Preflight(Stage.DONE, verdict=text, checks=tuple(checks))


def _failure(name: str, job: Object, pods: list[Object]) -> str:
    problems = [problem for pod in pods if (problem := pod_problem(pod))]
    reason = (
        problems[0]
        if problems
        else next((str(c.get("message", "")) for c in job["status"]["conditions"] if c["type"] == "Failed"), "")
    )
    return f"Job {name} failed: {reason}; delete the Job to try again"
