"""What keeps a pod from running: rows of a pod's manifest, the reason and the message."""

from typing import Any

import pytest
import yaml

from support.services import QUICKSTART, parse
from support.world import NOW, World, bring_up, job_pod, observed_of
from tandem import names
from tandem.cluster.problems import pod_problem
from tandem.conditions.ready import ServerCounts, status
from tandem.conditions.situation import Situation
from tandem.settings import Settings

ROWS: list[dict[str, Any]] = yaml.safe_load("""
- reason: the kubelet refused it
  status: {phase: Failed, reason: UnexpectedAdmissionError, message: "Allocate failed: no healthy devices present"}
  problem: "PodFailed: pod p: UnexpectedAdmissionError: Allocate failed: no healthy devices present"
- reason: it was evicted, and its container was killed
  status:
    phase: Failed
    reason: Evicted
    message: "The node was low on resource: ephemeral-storage. "
    containerStatuses: [{name: triton, state: {terminated: {exitCode: 137}}}]
  problem: "PodFailed: pod p: Evicted: The node was low on resource: ephemeral-storage."
- reason: its node is not heard of
  status: {phase: Running, reason: NodeLost, message: Node n is unresponsive}
  problem: "PodFailed: pod p: NodeLost: Node n is unresponsive"
- reason: the scheduler preempted it
  status:
    phase: Failed
    conditions: [{type: DisruptionTarget, status: "True", reason: PreemptionByScheduler, message: "for pod q"}]
  problem: "PodFailed: pod p: PreemptionByScheduler: for pod q"
- reason: no node has room
  status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", message: 0/3 nodes are available}]}
  problem: "PodUnschedulable: pod p cannot be scheduled: 0/3 nodes are available"
- reason: devices whose claim template is not there
  spec: {resourceClaims: [{name: gpus, resourceClaimTemplateName: four}]}
  status: {phase: Pending}
  problem: "PodUnschedulable: pod p waits for its resourceClaims: is there four?"
- reason: it is being made
  status: {phase: Pending, containerStatuses: [{name: triton, state: {waiting: {reason: ContainerCreating}}}]}
- reason: no such image
  status: {containerStatuses: [{name: triton, state: {waiting: {reason: ErrImagePull, message: not found}}}]}
  problem: "ContainerFails: pod p, container triton: ErrImagePull: not found"
- reason: a sidecar keeps it from requests
  status:
    phase: Running
    conditions: [{type: Ready, status: "False"}]
    containerStatuses: [{name: istio-proxy, ready: false}, {name: triton, ready: true}]
  problem: "PodNotReady: pod p answers, and gets no requests: container istio-proxy is not ready"
- reason: a load balancer's gate does
  spec: {readinessGates: [{conditionType: target-health}]}
  status: {phase: Running, containerStatuses: [{name: triton, ready: true}]}
  problem: "PodNotReady: pod p answers, and gets no requests: its readiness gate target-health is not True"
- reason: a server that never served says why in its log
  labels: {serving.tandem.dev/component: server}
  status:
    conditions: [{type: Ready, status: "False", lastTransitionTime: "2026-01-01T00:00:00Z"}]
    containerStatuses:
      - name: triton
        state: {terminated: {exitCode: 1, startedAt: "2026-01-01T00:00:00Z", message: "no CUDA, HF_TOKEN=hidden"}}
  problem: "ContainerFails: pod p, container triton: exit code 1: no CUDA, HF_TOKEN=[hidden]"
- reason: the log of one that served may hold prompts
  labels: {serving.tandem.dev/component: server}
  status:
    conditions: [{type: Ready, status: "False", lastTransitionTime: "2026-01-01T00:05:00Z"}]
    containerStatuses:
      - name: triton
        state: {waiting: {reason: CrashLoopBackOff, message: back-off}}
        lastState: {terminated: {exitCode: 139, startedAt: "2026-01-01T00:00:00Z", message: a prompt}}
  problem: "ContainerFails: pod p, container triton: CrashLoopBackOff: it had served, so that its log may hold
    prompts: see kubectl logs --previous"
- reason: that a container was killed is no log
  labels: {serving.tandem.dev/component: worker}
  status:
    conditions: [{type: Ready, status: "False", lastTransitionTime: "2026-01-01T00:05:00Z"}]
    containerStatuses:
      - name: triton
        state: {terminated: {exitCode: 137, reason: OOMKilled, startedAt: "2026-01-01T00:00:00Z", message: a prompt}}
  problem: "ContainerFails: pod p, container triton: exit code 137: OOMKilled: it had served, so that its log may hold
    prompts: see kubectl logs --previous"
- reason: its next start fails before any client
  labels: {serving.tandem.dev/component: server}
  status:
    conditions: [{type: Ready, status: "False", lastTransitionTime: "2026-01-01T00:05:00Z"}]
    containerStatuses:
      - name: triton
        state: {terminated: {exitCode: 1, startedAt: "2026-01-01T00:05:01Z", message: no CUDA}}
  problem: "ContainerFails: pod p, container triton: exit code 1: no CUDA"
- reason: what runs with it sees its requests, too
  labels: {serving.tandem.dev/component: server}
  status:
    conditions: [{type: Ready, status: "False", lastTransitionTime: "2026-01-01T00:05:00Z"}]
    containerStatuses:
      - name: istio-proxy
        state: {terminated: {exitCode: 1, startedAt: "2026-01-01T00:00:00Z", message: a prompt}}
  problem: "ContainerFails: pod p, container istio-proxy: exit code 1: it had served, so that its log may hold
    prompts: see kubectl logs --previous"
- reason: a Job's pod, Ready as it runs, has no clients
  labels: {serving.tandem.dev/component: preflight}
  status:
    conditions: [{type: Ready, status: "False", lastTransitionTime: "2026-01-01T00:05:00Z"}]
    containerStatuses:
      - name: task
        state: {terminated: {exitCode: 1, startedAt: "2026-01-01T00:00:00Z", message: no space left}}
  problem: "ContainerFails: pod p, container task: exit code 1: no space left"
- reason: it was killed, runs again, and does not answer yet
  status:
    conditions: [{type: Ready, status: "False"}]
    containerStatuses:
      - name: triton
        ready: false
        state: {running: {startedAt: "2026-01-01T00:06:00Z"}}
        lastState: {terminated: {exitCode: 137, reason: OOMKilled}}
  problem: "ContainerFails: pod p, container triton: starts again after exit code 137: OOMKilled"
- reason: it ended well, and runs again
  status:
    conditions: [{type: Ready, status: "False"}]
    containerStatuses:
      - name: triton
        ready: false
        state: {running: {startedAt: "2026-01-01T00:06:00Z"}}
        lastState: {terminated: {exitCode: 0, reason: Completed}}
- reason: it was killed, and answers again
  status:
    conditions: [{type: Ready, status: "True"}]
    containerStatuses:
      - {name: triton, ready: true, state: {running: {}}, lastState: {terminated: {exitCode: 137}}}
- reason: it serves
  status:
    conditions: [{type: Ready, status: "True"}]
    containerStatuses: [{name: triton, ready: true}]
""")


@pytest.mark.parametrize("row", ROWS, ids=[row["reason"] for row in ROWS])
def test_a_pod(row: dict[str, Any]) -> None:
    metadata = {"name": "p", "labels": row.get("labels", {})}
    found = pod_problem({"metadata": metadata, "spec": row.get("spec", {}), "status": row["status"]})
    assert (f"{found.reason}: {found.message}" if found else None) == row.get("problem"), row["reason"]


def server(number: int, at: str, **state: Any) -> dict[str, Any]:
    labels = {names.LABEL_COMPONENT: names.SERVER, names.LABEL_REVISION: "r1"}
    return {"metadata": {"name": f"p{number}", "labels": labels, "creationTimestamp": at}, "status": state}


REFUSED = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy devices"}
ANSWERS = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def test_pods_that_all_failed_are_counted_with_the_words_of_the_last() -> None:
    """They end at once, and their ReplicaSet makes another: 40 pods, and each new one "is starting"."""
    pods = [server(number, f"2026-01-01T00:00:{number:02}Z", **REFUSED) for number in range(40)]
    starting = server(40, "2026-01-01T00:00:40Z", phase="Pending")
    found = ServerCounts.of(observed_of(*pods, starting), "r1").problem
    assert found
    assert found.message == "40 server pods failed: pod p39: UnexpectedAdmissionError: no healthy devices"
    later = server(41, "2026-01-01T00:00:41Z", **ANSWERS)
    assert ServerCounts.of(observed_of(*pods, later), "r1").problem is None, "the next one answers"


def test_it_is_a_condition_with_its_reason_and_goes_when_it_is_over(settings: Settings) -> None:
    world, service = World(settings), parse(QUICKSTART)
    bring_up(world, service)
    labels = world.pods[0]["metadata"]["labels"]
    for state, shown in ((REFUSED, "PodFailed"), (ANSWERS, None)):
        pod = {"kind": "Pod", "metadata": {"name": "p", "labels": labels}, "status": state}
        world.pods = [pod]
        decision, _ = world.step(service)
        found = status(Situation(service, decision, world.observed(), NOW))["conditions"]
        assert [c["reason"] for c in found if c["type"] == "PodsHealthy"] == ([shown] if shown else [])
        (available,) = [c for c in found if c["type"] == "Available"]
        assert ("no healthy devices" in available["message"]) is bool(shown)


DIED = {"exitCode": 137, "reason": "OOMKilled", "startedAt": "2025-12-31T23:50:00Z"}
AGAIN: list[tuple[str, bool, dict[str, Any], str, str | None]] = [
    # reason, ready, how it ended, when it was started again (now is 00:00), whether PodsHealthy shows it
    ("it does not answer yet", False, DIED, "2025-12-31T23:00:00Z", "starts again after exit code 137: OOMKilled"),
    (
        "it answers, and ran for longer before",
        True,
        {**DIED, "finishedAt": "2025-12-31T23:55:00Z"},
        "2025-12-31T23:55:10Z",
        "started again after exit code 137: OOMKilled",
    ),
    ("for as long as before", True, {**DIED, "finishedAt": "2025-12-31T23:55:00Z"}, "2025-12-31T23:55:00Z", None),
    ("after days, ten minutes", True, {**DIED, "finishedAt": "2026-01-31T00:00:00Z"}, "2025-12-31T23:50:00Z", None),
    ("it ended well", True, {**DIED, "exitCode": 0, "finishedAt": "2025-12-31T23:55:00Z"}, NOW, None),
]


@pytest.mark.parametrize(("reason", "ready", "ended", "since", "shown"), AGAIN, ids=[row[0] for row in AGAIN])
def test_a_failure_is_shown_until_its_container_is_well_again(
    settings: Settings, reason: str, ready: bool, ended: dict[str, Any], since: str, shown: str | None
) -> None:
    """A loop of failures is one problem, not a start between any two."""
    world, service = World(settings), parse(QUICKSTART)
    bring_up(world, service)
    container = {
        "name": "triton",
        "ready": ready,
        "state": {"running": {"startedAt": since}},
        "lastState": {"terminated": ended},
    }
    conditions = [{"type": "Ready", "status": str(ready)}]
    status_of_pod = {"phase": "Running", "conditions": conditions, "containerStatuses": [container]}
    labels = world.pods[0]["metadata"]["labels"]
    world.pods = [{"kind": "Pod", "metadata": {"name": "p", "labels": labels}, "status": status_of_pod}]
    decision, _ = world.step(service)
    found = {c["type"]: c for c in status(Situation(service, decision, world.observed(), NOW))["conditions"]}
    assert (found["Available"]["status"] == "True") is ready
    assert ("PodsHealthy" in found) is bool(shown), reason
    if shown:
        assert shown in found["PodsHealthy"]["message"]
    if not ready:
        assert shown in found["Available"]["message"], "not that it is starting"


def test_of_a_job_the_last_pod_counts_and_one_that_is_done_does_not(settings: Settings) -> None:
    world, service = World(settings), parse(QUICKSTART)
    world.step(service)
    (name,) = world.jobs()
    pod = job_pod(world.objects["Job", name], "", "Pending")
    pod["status"] = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource"}
    pod["metadata"]["creationTimestamp"] = NOW
    world.pods = [pod]
    decision, _ = world.step(service)
    found = status(Situation(service, decision, world.observed(), NOW))["conditions"]
    (healthy,) = [c for c in found if c["type"] == "PodsHealthy"]
    assert (healthy["reason"], "OutOfcpu" in healthy["message"]) == ("PodFailed", True)
    assert "OutOfcpu" in next(c["message"] for c in found if c["type"] == "Ready")
    again = job_pod(world.objects["Job", name], "", "Running")
    again["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    world.pods = [again, pod]
    decision, _ = world.step(service)
    found = status(Situation(service, decision, world.observed(), NOW))["conditions"]
    assert "PodsHealthy" not in [c["type"] for c in found]
