"""Where a task stands: its result, its Job, and what their verdict says. Pure."""

from dataclasses import dataclass, replace
from enum import Enum

from tandem.api.conditions import TaskReason
from tandem.children import Task
from tandem.rollout.lost import Loss, loss, of_claim
from tandem.rollout.observed import Job, Observed, TaskPod, TaskResult
from tandem.rollout.verdict import Check, Verdict

MISSES: tuple[str, ...] = (TaskReason.MODEL_GONE, TaskReason.ENGINE_GONE)
"""Reasons of verdicts that miss a folder of the cache volume; see `cached` in images/serving."""
MOST_CHARACTERS = 900
"""Of a message that is followed by what to do; a condition's has 1024."""


class Stage(Enum):
    """Where a task stands."""

    ABSENT = "Absent"
    RUNNING = "Running"
    DONE = "Done"
    BROKEN = "Broken"
    LOST = "Lost"


@dataclass(frozen=True)
class TaskState:
    """Where a task stands, and what its verdict says (DONE); `detail` is for people."""

    stage: Stage
    verdict: str = ""
    """The termination message."""
    checks: tuple[Check, ...] = ()
    folder: str = ""
    """Where a download put the model, in the containers; empty: the verdict names none."""
    detail: str = ""
    loss: Loss | None = None
    """Why a result that stands, or what pods look for, makes it to be done again."""
    stale: TaskResult | None = None
    """That result; it goes when the task is done again, since till then it names the content that is wanted."""
    refill: bool = False
    """Whether this is the second time, after pods reported that what the first one brought is gone."""

    @property
    def passed(self) -> bool:
        """Whether no check is False. One that is Unknown holds nothing up."""
        return self.stage is Stage.DONE and all(check.status != "False" for check in self.checks)

    @property
    def failed(self) -> bool:
        """Whether it ended otherwise: nothing goes on by itself."""
        return self.stage is Stage.BROKEN or (self.stage is Stage.DONE and not self.passed)

    @property
    def misses(self) -> bool:
        """Whether the verdict is that a folder is gone, which is brought back: that is not its last word."""
        return any(check.reason in MISSES for check in self.checks)


@dataclass(frozen=True)
class Step:
    """A task of the way to the servers, and where it stands."""

    task: Task
    state: TaskState

    @property
    def passed(self) -> bool:
        """Whether the next task may begin."""
        return self.state.passed

    @property
    def is_final(self) -> bool:
        """Whether the verdict is to be kept."""
        kept = self.state.passed or (self.task.refusal_is_final and not self.state.misses)
        return self.state.stage is Stage.DONE and kept

    @property
    def is_kept(self) -> bool:
        """Whether its result stands, or may be made: none can while one that is not true any more has its name."""
        return self.is_final and self.state.stale is None

    @property
    def folder(self) -> str:
        """Where the model is that a download put into the cache volume; empty before that."""
        return self.state.folder if self.passed else ""


def observe_task(observed: Observed, task: Task) -> TaskState:
    """Where `task` stands by its result while that is true, else by its Job and the Job's pods."""
    result, job = observed.result(task.name), observed.job(task.name)
    recorded = _of_verdict(result.verdict, task.name) if result else None
    folder = (recorded and recorded.folder) or task.folder
    lost = loss(observed, task.claim, folder, result, job) if task.claim else None
    if result and lost and lost.again:
        return TaskState(Stage.BROKEN, loss=lost, detail=f"{_again(result)}; then delete the ConfigMap {task.name}")
    if result and recorded and not lost:
        return replace(recorded, refill=result.refill)
    # A Job that is older did what is lost.
    older = lost and result and job and job.live.created <= result.live.created
    state = TaskState(Stage.LOST) if older else _of_job(observed, task, job)
    if state.stage is Stage.DONE and not task.refusal_is_final:
        again = f"{task.name} and the ConfigMap of that name, which names what was lost," if result else task.name
        state = replace(state, checks=tuple(_to_try_again(check, again) for check in state.checks))
    refill = job.refill if job else bool(result and lost and lost.reported)
    return replace(state, loss=lost, stale=result, refill=refill)


def _again(result: TaskResult) -> str:
    at = result.live.created
    return f"it was brought back at {at} already: find out what empties the volume"


def _of_job(observed: Observed, task: Task, job: Job | None) -> TaskState:
    if job is None:
        return TaskState(Stage.ABSENT, detail=_next(task))
    if task.claim and (not of_claim(job, observed.claim) or (observed.claim is None and job.complete)):
        return TaskState(Stage.LOST)
    if _outdated(job, task) and (job.failed or not any(pod.started for pod in job.pods)):
        return TaskState(Stage.LOST)
    # Containers that others add may run on, or end with an error: neither says anything of the work.
    verdicts = [pod.verdict for pod in job.pods if pod.succeeded and pod.verdict]
    if verdicts:
        return _of_verdict(verdicts[0], task.name)
    if job.complete:
        # The pod is gone, and the verdict with it: it runs again.
        return TaskState(Stage.LOST)
    if job.failed or any(pod.held_by for pod in job.pods):
        return TaskState(Stage.BROKEN, detail=_failure(job))
    return TaskState(Stage.RUNNING, detail=_running(observed, task, job))


def _outdated(job: Job, task: Task) -> bool:
    """Whether the spec asks for another pod by now: other nodes, a pull secret. Where a pod works on it that changes
    nothing; one that cannot begin, or that failed, would not come to know."""
    return bool(job.pod_digest) and job.pod_digest != task.pod_digest


def _running(observed: Observed, task: Task, job: Job) -> str:
    progress = [text for pod in job.pods if (text := observed.progress.get(pod.name))]
    problems = [f"{message}; trying again" if (message := _verdict_message(pod)) else _words(pod) for pod in job.pods]
    waiting = f"Job {task.name} {task.title}" if job.pods else _next(task)
    refused = job.problem.message if job.problem else ""
    return next(filter(None, [*progress, *problems, refused]), waiting)


def _words(pod: TaskPod) -> str:
    return pod.problem.message if pod.problem else ""


def _next(task: Task) -> str:
    """No pod yet, or a quota or an admission webhook that lets none be made, which no Job reports."""
    return f"Job {task.name} {task.title} next; if it gets no pod, see kubectl describe job {task.name}"


def _to_try_again(check: Check, job: str) -> Check:
    """What to do about it may be outside the spec, such as a token's rights: no event reports when it is done."""
    if check.status == "True":
        return check
    message = f"{check.message[:MOST_CHARACTERS]}; unless you edit this service, delete the Job {job} to try again"
    return check.model_copy(update={"message": message})


def _of_verdict(verdict: Verdict, name: str) -> TaskState:
    if verdict.error:
        detail = f"{name} reported no verdict that this operator can read ({verdict.error}): delete it to try again"
        return TaskState(Stage.BROKEN, detail=detail)
    return TaskState(Stage.DONE, verdict=verdict.text, checks=verdict.checks, folder=verdict.folder)


def _failure(job: Job) -> str:
    problems = [_verdict_message(pod) or _words(pod) for pod in job.pods if pod.problem]
    held = sorted({name for pod in job.pods for name in pod.held_by})
    hold = f"; container {', '.join(held)} runs on, so that the Job does not try again by itself" if held else ""
    why = problems[-1] if problems else job.failure
    return f"Job {job.live.name} failed: {why}{hold}; delete the Job to try again"


def _verdict_message(pod: TaskPod) -> str:
    """What the verdict of a pod that failed says; empty when it left none."""
    checks = pod.verdict.checks if pod.verdict else ()
    return next((check.message for check in checks if check.status != "True"), "")
