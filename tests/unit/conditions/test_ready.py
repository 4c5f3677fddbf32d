"""Status: truthful counts, transition times, and the words of the kubelet in front of the user."""

from dataclasses import replace
from typing import Any

import pytest

from support.services import QUICKSTART, parse
from support.world import World, bring_up, observed_of
from tandem import names
from tandem.api.conditions import ConditionStatus
from tandem.api.types import SpeculativeInferenceService
from tandem.cluster.problems import pod_problem
from tandem.conditions.ready import ServerCounts, status
from tandem.conditions.situation import Situation
from tandem.errors import Refused
from tandem.rollout.decide import decide
from tandem.rollout.observed import Observed
from tandem.rollout.tasks import MOST_CHARACTERS, Stage, Step, TaskState
from tandem.rollout.verdict import Check
from tandem.settings import Settings

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"


def pod(revision: str = "r1", ready: bool = True, **status_fields: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "labels": {names.LABEL_COMPONENT: names.SERVER, names.LABEL_REVISION: revision},
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}], **status_fields},
    }


def terminating(**kwargs: Any) -> dict[str, Any]:
    made = pod(**kwargs)
    made["metadata"]["deletionTimestamp"] = NOW
    return made


@pytest.mark.parametrize(
    ("pods", "counts", "reason"),
    [
        ([], (0, 0, 0, 0), "nothing runs"),
        ([pod()], (1, 1, 1, 1), "one server of the wanted revision"),
        ([pod(ready=False)], (1, 0, 1, 0), "it does not answer yet"),
        ([pod("r0"), pod()], (2, 2, 1, 1), "an old one still serves beside it"),
        ([terminating(), pod()], (1, 1, 1, 1), "one that stops does not count"),
        ([pod(phase="Failed"), pod()], (1, 1, 1, 1), "nor one that was evicted"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rollout_counts(pods: list[dict[str, Any]], counts: tuple[int, ...], reason: str) -> None:
    rollout = ServerCounts.of(observed_of(*pods), "r1")
    assert (rollout.replicas, rollout.ready, rollout.updated, rollout.updated_ready) == counts, reason


def waiting(reason: str, message: str = "", last: str = "", killed: str = "Error") -> dict[str, Any]:
    container: dict[str, Any] = {"name": "triton", "state": {"waiting": {"reason": reason, "message": message}}}
    if last or killed != "Error":
        container["lastState"] = {"terminated": {"reason": killed, "message": last}}
    return pod(ready=False, containerStatuses=[container])


KILLED = {"exitCode": 137, "reason": "OOMKilled", "message": "line 7\n"}


@pytest.mark.parametrize(
    ("seen", "problem"),
    [
        (waiting("ContainerCreating"), None),
        (waiting("ImagePullBackOff", "no such image"), "ImagePullBackOff: no such image"),
        (waiting("CrashLoopBackOff", "back-off", last="model not found"), "CrashLoopBackOff: model not found"),
        (waiting("CrashLoopBackOff", "back-off"), "CrashLoopBackOff: back-off"),
        (waiting("CrashLoopBackOff", "back-off", killed="OOMKilled"), "CrashLoopBackOff: OOMKilled"),
        # 2 KiB of its log, and a condition has half of it.
        (
            waiting("CrashLoopBackOff", last="Loading.\n" * 200 + "cannot serve: no config"),
            "\ncannot serve: no config",
        ),
        (
            pod(ready=False, conditions=[{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}]),
            "pod p cannot be scheduled: 0/1 nodes",
        ),
    ],
)
def test_what_keeps_a_pod_from_running_is_said(seen: dict[str, Any], problem: str | None) -> None:
    found = ServerCounts.of(observed_of(seen), "r1").problem
    message = found.message if found else ""
    assert message.endswith(problem or "")
    assert bool(found) == bool(problem)
    assert len(message) < MOST_CHARACTERS


def test_what_ended_a_job_s_container_is_said() -> None:
    container = {"name": "t", "state": {"terminated": KILLED}}
    told = pod_problem(pod(phase="Failed", containerStatuses=[container]))
    assert told
    assert told.message == "pod p, container t: exit code 137: OOMKilled: line 7"


QUOTA = 'pods "quickstart-server-5d-" is forbidden: exceeded quota: gpus, requested: nvidia.com/gpu=4'


@pytest.mark.parametrize(
    ("pods", "failure", "problem", "available"),
    [
        ([], "True", QUOTA, f"there are no server pods: {QUOTA}"),
        ([pod("r0")], "True", QUOTA, "1 of 1 server pods answer"),
        ([waiting("ErrImagePull", "gone")], "True", "gone", "gone"),
        ([], "False", None, "there are no server pods"),
    ],
    ids=["none can be made", "none of the new revision", "one that was made says more", "they are being made"],
)
def test_why_pods_are_not_made_is_said(
    pods: list[dict[str, Any]],
    failure: str,
    problem: str | None,
    available: str,
    service: SpeculativeInferenceService,
    settings: Settings,
) -> None:
    told = {"type": "ReplicaFailure", "status": failure, "message": QUOTA}
    deployment = {
        "kind": "Deployment",
        "metadata": {"name": "quickstart-server", "generation": 1},
        "spec": {"template": {"metadata": {}}},
        "status": {"conditions": [told]},
    }
    found = ServerCounts.of(observed_of(deployment, *pods), "r1").problem
    assert (found.message if found else "").endswith(problem or "")
    assert bool(found) == bool(problem)
    observed = observed_of(*pods)
    decision = decide(service, settings, observed)
    shown = status(Situation(service, decision, observed_of(deployment, *pods), NOW))
    assert conditions(shown)["Available"]["message"].endswith(available)


def conditions(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {c["type"]: c for c in found["conditions"]}


def test_the_transition_time_moves_only_when_the_status_flips(
    service: SpeculativeInferenceService, settings: Settings
) -> None:
    observed = Observed()
    first = status(Situation(service, decide(service, settings, observed), observed, NOW))
    again = service.model_copy(update={"status": type(service.status).model_validate(first)})
    second = status(Situation(again, decide(again, settings, observed), observed, LATER))
    assert second == first, "an unchanged status is the same to the byte, so that nothing is written"
    refused = parse(QUICKSTART, runtime__profile="nope").model_copy(update={"status": again.status})
    third = conditions(status(Situation(refused, decide(refused, settings, observed), observed, LATER)))
    assert third["SpecAccepted"]["lastTransitionTime"] == LATER
    assert third["Ready"]["lastTransitionTime"] == NOW, "it was False and is False, for another reason"
    assert third["Ready"]["reason"] == "UnknownProfile"


def test_a_refusal_of_the_api_server_stalls_with_its_words(
    service: SpeculativeInferenceService, settings: Settings
) -> None:
    observed = Observed()
    decision = decide(service, settings, observed)
    found = conditions(status(Situation(service, decision, observed, NOW, refused=Refused(422, "name taken by X"))))
    assert found["Stalled"]["message"] == found["Ready"]["message"] == "name taken by X"


def test_models_are_checked_at_no_replicas(settings: Settings) -> None:
    service = parse(QUICKSTART, replicas=0)
    observed = Observed()
    decision = decide(service, settings, observed)
    found = conditions(status(Situation(service, decision, observed, NOW)))
    assert found["Ready"]["reason"] == "PreflightRunning"


def test_no_replicas_are_ready_and_no_revision_that_serves(settings: Settings) -> None:
    """What never answered is nothing to roll back to."""
    world, service = World(settings), parse(QUICKSTART, replicas=0)
    decision = bring_up(world, service)
    found = status(Situation(service, decision, world.observed(), NOW))
    assert conditions(found)["Ready"] | {"lastTransitionTime": NOW} == {
        "type": "Ready",
        "status": "True",
        "reason": "ScaledToZero",
        "message": "spec.replicas is 0: no server runs, as asked",
        "observedGeneration": 3,
        "lastTransitionTime": NOW,
    }
    assert not conditions(found).keys() & {"Reconciling", "Stalled"}
    assert "currentRevision" not in found


SHORT: list[tuple[str, list[str], bool, tuple[str, str]]] = [
    # reason, revisions of pods that do not answer beside one that does, whether it was rolled out, Ready
    ("a further replica does not answer yet", ["same"], True, ("False", "ReplicasNotReady")),
    ("it is not made yet", [], True, ("False", "ReplicasNotReady")),
    ("its first rollout", ["same"], False, ("False", "RollingOut")),
    ("a pod of another revision is left", ["other"], True, ("False", "RollingOut")),
]


@pytest.mark.parametrize(("reason", "others", "rolled_out", "ready"), SHORT, ids=[row[0] for row in SHORT])
def test_a_replica_that_is_missing_is_no_rollout(
    settings: Settings, reason: str, others: list[str], rolled_out: bool, ready: tuple[str, str]
) -> None:
    world, service = World(settings), parse(QUICKSTART)
    decision = bring_up(world, service)
    assert decision.revision
    before = type(service.status)(current_revision=decision.revision.digest if rolled_out else None)
    service = service.model_copy(update={"status": before, "spec": service.spec.model_copy(update={"replicas": 2})})
    digest = decision.revision.digest
    world.pods = [pod(digest), *(pod(digest if each == "same" else "r0", ready=False) for each in others)]
    found = conditions(status(Situation(service, decision, world.observed(), NOW)))
    assert (found["Ready"]["status"], found["Ready"]["reason"]) == ready, reason
    assert found["Reconciling"]["reason"] == ready[1]
    assert found["Available"]["status"] == "True", "one answers"


def test_a_selector_for_scale_is_always_there(service: SpeculativeInferenceService, settings: Settings) -> None:
    observed = Observed()
    found = status(Situation(service, decide(service, settings, observed), observed, NOW))
    assert found["selector"] == "serving.tandem.dev/service=quickstart,serving.tandem.dev/component=server"


@pytest.mark.parametrize(
    ("wanted", "pods", "told"),
    [(1, [pod("r0"), pod(ready=False)], 1), (2, [pod()], 1), (2, [pod()] * 3, 2), (0, [pod()], 0)],
    ids=["a rollout's extra pod", "one is not made yet", "scaled down", "scaled to zero"],
)
def test_an_autoscaler_is_told_of_no_more_replicas_than_are_wanted(
    settings: Settings, wanted: int, pods: list[dict[str, Any]], told: int
) -> None:
    """Kubernetes' own asks for those of the status where the metric is near them: one too many would stay."""
    service, observed = parse(QUICKSTART, replicas=wanted), observed_of(*pods)
    found = status(Situation(service, decide(service, settings, observed), observed, NOW))
    assert found["replicas"] == told
    assert f"of {len(pods)} server pods" in conditions(found)["Available"]["message"], "all are counted here"


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [("Unknown", "RollingOut"), ("False", "PreflightFailed")],
    ids=["what a check could not find out holds nothing up", "what it found wrong does"],
)
def test_a_check_that_is_unknown(
    service: SpeculativeInferenceService, settings: Settings, verdict: ConditionStatus, reason: str
) -> None:
    observed = Observed()
    before = decide(service, settings, observed)
    check = Check(type="PairCompatible", status=verdict, reason="Odd", message="")
    steps = [Step(step.task, TaskState(Stage.DONE, checks=(check,))) for step in before.steps]
    found = conditions(status(Situation(service, replace(before, steps=tuple(steps)), observed, NOW)))
    assert found["PairCompatible"]["status"] == verdict
    assert found["Ready"]["reason"] == reason
