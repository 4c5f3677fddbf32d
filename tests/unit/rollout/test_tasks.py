"""Where a task stands, by its result, its Job and the Job's pods."""

import json
from dataclasses import replace

import pytest

from tandem import names
from tandem.api.conditions import ConditionType, ServingReason
from tandem.children import Task
from tandem.rollout.observed import CacheClaim, Job, Live, Observed, Problem, TaskPod, TaskResult
from tandem.rollout.tasks import Stage, Step, TaskState, observe_task
from tandem.rollout.verdict import Verdict, parse_verdict

TASK = Task(
    "svc", names.FETCH, "0123456789", {"containers": []}, (ConditionType.MODELS_READY,), "downloads a", claim="cache"
)
CLAIM = CacheClaim(uid="claim-1", created="2026-01-01T00:00:00Z")
FOLDER = "/cache/models/" + "a" * 32


def verdict(status: str = "True", reason: str = "Fetched", **more: str) -> Verdict:
    check = {"type": "ModelsReady", "status": status, "reason": reason, "message": "7 bytes"}
    return parse_verdict(json.dumps({"checks": [check], "path": FOLDER.removeprefix("/cache/"), **more}))


def result(said: Verdict, created: str = "2026-01-02T00:00:00Z", refill: bool = False) -> TaskResult:
    return TaskResult(Live("ConfigMap", TASK.name, created), names.FETCH, said, claim="claim-1", refill=refill)


JOB = Job(Live("Job", TASK.name, "2026-01-01T00:00:01Z"), pod_digest=TASK.pod_digest, claim="claim-1")
DONE = TaskPod("p", started=True, succeeded=True, verdict=verdict())
OOM = "pod q, container fetch: exit code 137: OOMKilled"
KILLED = TaskPod("q", problem=Problem(ServingReason.CONTAINER_FAILS, OOM))
QUOTA = Problem(ServingReason.POD_NOT_MADE, f"Job {TASK.name} gets no pod: exceeded quota: cpu")
INTERRUPTED = replace(KILLED, verdict=verdict("Unknown", "Interrupted"))
ELSEWHERE = replace(TASK, pod={"nodeSelector": {"pool": "a"}})

# Why, what was observed, where the task stands, and what of the words for people.
ROWS: list[tuple[str, Observed, Stage, str]] = [
    ("nothing is there yet", Observed(), Stage.ABSENT, "kubectl describe job svc-fetch-0123456789"),
    ("a result", Observed(results=[result(verdict())]), Stage.DONE, ""),
    ("a result that is none", Observed(results=[result(parse_verdict("Killed"))]), Stage.BROKEN, "no verdict that"),
    ("a Job without a pod", Observed(jobs=[JOB]), Stage.RUNNING, "next; if it gets no pod"),
    ("its pod is refused", Observed(jobs=[replace(JOB, problem=QUOTA)]), Stage.RUNNING, "exceeded quota: cpu"),
    (
        "it is done, and a sidecar runs on",
        Observed(jobs=[replace(JOB, pods=[replace(DONE, held_by=("istio-proxy",))])]),
        Stage.DONE,
        "",
    ),
    ("it is done, and a sidecar failed", Observed(jobs=[replace(JOB, failed=True, pods=[DONE])]), Stage.DONE, ""),
    (
        "it failed, and a sidecar runs on: no pod is tried again",
        Observed(jobs=[replace(JOB, pods=[replace(KILLED, started=True, held_by=("istio-proxy",))])]),
        Stage.BROKEN,
        "OOMKilled; container istio-proxy runs on, so that the Job does not try again by itself; delete the Job",
    ),
    ("its pod works", Observed(jobs=[replace(JOB, pods=[TaskPod("p", started=True)])]), Stage.RUNNING, "downloads"),
    ("its pod cannot", Observed(jobs=[replace(JOB, pods=[KILLED])]), Stage.RUNNING, "OOMKilled"),
    ("its pod says why", Observed(jobs=[replace(JOB, pods=[INTERRUPTED])]), Stage.RUNNING, "7 bytes; trying again"),
    (
        "its pod reports progress",
        Observed(jobs=[replace(JOB, pods=[TaskPod("p", started=True)])], progress={"p": "1 of 2 GB"}),
        Stage.RUNNING,
        "1 of 2 GB",
    ),
    ("it is done", Observed(jobs=[replace(JOB, complete=True, pods=[KILLED, DONE])]), Stage.DONE, ""),
    ("it is done, and its pod is gone", Observed(jobs=[replace(JOB, complete=True)]), Stage.LOST, ""),
    ("it failed", Observed(jobs=[replace(JOB, failed=True, failure="too long")]), Stage.BROKEN, "failed: too long;"),
    ("its pods failed", Observed(jobs=[replace(JOB, failed=True, pods=[KILLED])]), Stage.BROKEN, "OOMKilled; delete"),
    ("a Job of another claim", Observed(jobs=[replace(JOB, claim="claim-0")]), Stage.LOST, ""),
    ("a result of another claim", Observed(results=[replace(result(verdict()), claim="claim-0")]), Stage.ABSENT, ""),
    (
        "pods miss what a result says, and a Job that is older did it",
        Observed(results=[result(verdict())], jobs=[JOB], gone={FOLDER: "2026-01-03T00:00:00Z"}),
        Stage.LOST,
        "",
    ),
    (
        "it was brought back an hour ago, and is gone again",
        Observed(results=[result(verdict(), refill=True)], gone={FOLDER: "2026-01-02T01:00:00Z"}),
        Stage.BROKEN,
        "find out what empties the volume; then delete the ConfigMap svc-fetch-0123456789",
    ),
]


@pytest.mark.parametrize(("reason", "observed", "stage", "words"), ROWS, ids=[row[0] for row in ROWS])
def test_where_a_task_stands(reason: str, observed: Observed, stage: Stage, words: str) -> None:
    state = observe_task(replace(observed, claim=CLAIM), TASK)
    assert state.stage is stage, reason
    assert words in state.detail


def test_without_a_claim_what_was_done_in_one_is_lost() -> None:
    done = replace(JOB, complete=True, pods=[DONE])
    assert observe_task(Observed(results=[result(verdict())]), TASK).stage is Stage.ABSENT
    assert observe_task(Observed(jobs=[done]), TASK).stage is Stage.LOST
    assert observe_task(Observed(results=[result(verdict())]), replace(TASK, claim="")).stage is Stage.DONE


@pytest.mark.parametrize(
    ("job", "lost"),
    [(JOB, True), (replace(JOB, failed=True), True), (replace(JOB, pods=[TaskPod("p", started=True)]), False)],
    ids=["it has not begun", "it failed", "it works"],
)
def test_a_job_of_another_pod_is_made_anew_unless_it_works(job: Job, lost: bool) -> None:
    state = observe_task(Observed(jobs=[job], claim=CLAIM), ELSEWHERE)
    assert (state.stage is Stage.LOST) is lost


@pytest.mark.parametrize(
    ("task", "said", "kept"),
    [
        (TASK, verdict(), True),
        (TASK, verdict("Unknown"), True),
        (TASK, verdict("False"), True),
        (TASK, verdict("False", "ModelGone"), False),
        (replace(TASK, refusal_is_final=False), verdict("False"), False),
    ],
    ids=["passed", "not known", "refused for good", "a folder is gone", "refused until a token changes"],
)
def test_which_verdicts_are_kept(task: Task, said: Verdict, kept: bool) -> None:
    job = replace(JOB, complete=True, pods=[replace(DONE, verdict=said)])
    step = Step(task, observe_task(Observed(jobs=[job], claim=CLAIM), task))
    assert step.is_kept is kept
    assert not Step(task, replace(step.state, stale=result(said))).is_kept, "a stale result has its name"


def test_a_refusal_that_may_change_says_how_to_try_again() -> None:
    job = replace(JOB, complete=True, pods=[replace(DONE, verdict=verdict("False"))])
    state = observe_task(Observed(jobs=[job], claim=CLAIM), replace(TASK, refusal_is_final=False))
    (check,) = state.checks
    assert check.message.endswith(f"delete the Job {TASK.name} to try again")
    assert state.failed


def test_what_passed_is_not_to_be_tried_again() -> None:
    job = replace(JOB, complete=True, pods=[replace(DONE, verdict=verdict("True"))])
    (check,) = observe_task(Observed(jobs=[job], claim=CLAIM), replace(TASK, refusal_is_final=False)).checks
    assert "try again" not in check.message


def test_a_folder_counts_once_the_task_has_passed() -> None:
    step = Step(TASK, TaskState(Stage.DONE, folder=FOLDER))
    assert step.folder == FOLDER
    assert Step(TASK, replace(step.state, stage=Stage.BROKEN)).folder == ""


@pytest.mark.parametrize("path", ["../../etc", "models/", "models/zz", "/etc"])
def test_a_verdict_names_no_folder_outside_the_models(path: str) -> None:
    assert verdict(path=path).folder == ""
    assert verdict(revision="main").commit == ""
    assert verdict(revision="0" * 40).commit == "0" * 40
