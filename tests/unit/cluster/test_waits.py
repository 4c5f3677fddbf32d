"""Why pods wait, where their own manifests do not have it: Events and claims, read when they are needed."""

from typing import Any

import pytest
import yaml

from support.fake_api import FakeApi
from tandem.cluster.waits import Waits, waits
from tandem.errors import Forbidden

OLD, YOUNG = "2026-01-01T00:00:00Z", "2026-01-01T00:00:50Z"
NOW = "2026-01-01T00:01:00Z"

# The pod (or Job), what is in the cluster beside it, and what is found.
ROWS: list[dict[str, Any]] = yaml.safe_load("""
- reason: the volume is used on another node
  pod: &creating
    status:
      phase: Pending
      conditions: [{type: PodScheduled, status: "True"}]
      containerStatuses: [{name: triton, state: {waiting: {reason: ContainerCreating}}}]
  events:
    - {type: Normal, reason: Scheduled, message: assigned, at: 1}
    - {type: Warning, reason: FailedAttachVolume, message: Multi-Attach error for "pvc-1", at: 2}
    - {type: Warning, reason: FailedMount, message: "timed out waiting", at: 3}
  found: 'VolumeNotMounted: pod p waits in ContainerCreating: FailedAttachVolume: Multi-Attach error for "pvc-1"'
- reason: a ConfigMap that is not there
  pod: *creating
  events: [{type: Warning, reason: FailedMount, message: configmap "company-ca" not found, at: 1}]
  found: 'VolumeNotMounted: pod p waits in ContainerCreating: FailedMount: configmap "company-ca" not found'
- reason: no network
  pod: *creating
  events: [{type: Warning, reason: FailedCreatePodSandBox, message: no IP addresses, at: 1}]
  found: "PodNotStarted: pod p waits in ContainerCreating: FailedCreatePodSandBox: no IP addresses"
- reason: that is over, and the image is pulled
  pod: *creating
  events:
    - {type: Warning, reason: FailedMount, message: not yet, at: 1}
    - {type: Normal, reason: Pulling, message: pulling, at: 2}
- reason: it was seen again after that, as newer Events count
  pod: *creating
  events:
    - type: Warning
      reason: FailedMount
      message: again
      eventTime: "2026-01-01T00:00:01.0Z"
      series: {lastObservedTime: "2026-01-01T00:00:05.0Z"}
    - {type: Normal, reason: Pulled, message: pulled, at: 3}
  found: "VolumeNotMounted: pod p waits in ContainerCreating: FailedMount: again"
- reason: a newer Event that was seen once
  pod: *creating
  events:
    - {type: Warning, reason: FailedMount, message: once, eventTime: "2026-01-01T00:00:05.0Z"}
    - {type: Normal, reason: Pulled, message: pulled, at: 3}
  found: "VolumeNotMounted: pod p waits in ContainerCreating: FailedMount: once"
- reason: it is new, and has no status
  pod: {}
- reason: it runs
  pod: {status: {phase: Running}}
  any: false
- reason: nothing is said
  pod: *creating
- reason: an init container that runs is no wait
  pod:
    status:
      phase: Pending
      conditions: [{type: PodScheduled, status: "True"}]
      initContainerStatuses: [{name: tandem, state: {running: {}}}]
  events: [{type: Warning, reason: FailedMount, message: old, at: 1}]
  any: false
- reason: a storage class that has no such access mode
  pod: &unscheduled
    spec: {volumes: [{name: tmp, emptyDir: {}}, {name: cache, persistentVolumeClaim: {claimName: tandem-cache}}]}
    status:
      phase: Pending
      conditions:
        - {type: PodScheduled, status: "False", message: pod has unbound immediate PersistentVolumeClaims}
  claim: {spec: {storageClassName: standard, accessModes: [ReadWriteMany]}, status: {phase: Pending}}
  events: [{type: Warning, reason: ProvisioningFailed, message: "only ReadWriteOnce is supported", at: 1, of: claim}]
  found: >-
    ClaimPending: pod p waits for PersistentVolumeClaim tandem-cache, which is Pending (storage class standard; access
    mode ReadWriteMany): only ReadWriteOnce is supported
- reason: no class, and no default one
  pod: *unscheduled
  claim: {spec: {accessModes: [ReadWriteMany]}, status: {phase: Pending}}
  events: [{type: Normal, reason: FailedBinding, message: no persistent volumes available, at: 1, of: claim}]
  found: >-
    ClaimPending: pod p waits for PersistentVolumeClaim tandem-cache, which is Pending (no storage class, so the
    cluster's default must make it; access mode ReadWriteMany): no persistent volumes available
- reason: a volume of the pod's own
  pod:
    spec: {volumes: [{name: scratch, ephemeral: {}}]}
    status: {phase: Pending}
  claim: {name: p-scratch, spec: {storageClassName: fast, accessModes: [ReadWriteOnce]}, status: {phase: Pending}}
  found: >-
    ClaimPending: pod p waits for PersistentVolumeClaim p-scratch, which is Pending (storage class fast; access mode
    ReadWriteOnce)
- reason: its volume is lost
  pod: *unscheduled
  claim: {spec: {storageClassName: s, accessModes: [ReadWriteMany]}, status: {phase: Lost}}
  found: >-
    ClaimPending: pod p waits for PersistentVolumeClaim tandem-cache, which is Lost (storage class s; access mode
    ReadWriteMany)
- reason: the claim waits for the pod, which waits for a GPU; the scheduler says so
  pod:
    spec: {volumes: [{name: cache, persistentVolumeClaim: {claimName: tandem-cache}}]}
    status:
      phase: Pending
      conditions: [{type: PodScheduled, status: "False", message: "0/2 nodes: Insufficient nvidia.com/gpu"}]
  claim: {spec: {storageClassName: local}, status: {phase: Pending}}
  events: [{type: Normal, reason: WaitForFirstConsumer, message: waiting for first consumer, at: 1, of: claim}]
- reason: the claim cannot be made, whatever else the pod waits for
  pod:
    spec: {volumes: [{name: cache, persistentVolumeClaim: {claimName: tandem-cache}}]}
    status:
      phase: Pending
      conditions: [{type: PodScheduled, status: "False", message: "0/2 nodes: Insufficient nvidia.com/gpu"}]
  claim: {spec: {storageClassName: local, accessModes: [ReadWriteOnce]}}
  events:
    - {type: Warning, reason: ProvisioningFailed, message: no space, at: 1, of: claim}
    - {type: Normal, reason: WaitForFirstConsumer, message: waiting for first consumer, at: 2, of: claim}
  found: >-
    ClaimPending: pod p waits for PersistentVolumeClaim tandem-cache, which is Pending (storage class local; access
    mode ReadWriteOnce): no space
- reason: the claim is bound
  pod: *unscheduled
  claim: {status: {phase: Bound}}
- reason: the claim is not there, as the scheduler says
  pod: *unscheduled
- reason: a quota lets a Job have no pod
  job: {}
  events:
    - {type: Warning, reason: FailedCreate, message: "exceeded quota: limits.cpu", at: 1, of: job}
  found: "PodNotMade: Job j gets no pod: exceeded quota: limits.cpu"
- reason: a Job that failed
  job: {conditions: [{type: Failed, status: "True"}]}
  any: false
- reason: a Job that is over
  job: {conditions: [{type: Complete, status: "True"}]}
  any: false
""")


def fake(row: dict[str, Any]) -> FakeApi:
    claim = dict(row.get("claim", {}))
    objects: list[dict[str, Any]] = []
    if claim:
        name = claim.pop("name", "tandem-cache")
        objects.append({**claim, "kind": "PersistentVolumeClaim", "metadata": {"name": name, "uid": "claim"}})
    for number, event in enumerate(reversed(row.get("events", []))):
        times = {"lastTimestamp": f"2026-01-01T00:00:0{event['at']}Z"} if "at" in event else {}
        about = {"involvedObject": {"uid": event.get("of", "pod")}}
        objects.append({"kind": "Event", "metadata": {"name": f"e{number}"}, **event, **times, **about})
    return FakeApi(objects)


async def found(row: dict[str, Any], api: FakeApi, at: str = OLD) -> Waits:
    pods = [{**row["pod"], "metadata": {"name": "p", "uid": "pod", "creationTimestamp": at}}] if "pod" in row else []
    meta = {"name": "j", "uid": "job", "creationTimestamp": at}
    jobs = [{"metadata": meta, "status": row["job"]}] if "job" in row else []
    return await waits(api, "ns", pods, jobs, NOW)  # type: ignore[arg-type]


@pytest.mark.parametrize("row", ROWS, ids=[row["reason"] for row in ROWS])
async def test_what_is_found(row: dict[str, Any]) -> None:
    seen = await found(row, fake(row))
    texts = [f"{problem.reason}: {problem.message}" for problem in seen.problems.values()]
    assert texts == ([row["found"].strip()] if "found" in row else []), row["reason"]
    assert seen.any is row.get("any", True), "it is looked at again, for nothing else reports it"


async def test_nothing_is_asked_before_our_patience_is_over() -> None:
    api = fake(ROWS[0])
    assert (await found(ROWS[0], api, YOUNG)).problems == {}
    assert api.requests == []


async def test_an_older_chart_that_does_not_let_events_be_read_breaks_nothing() -> None:
    why = Forbidden("me", "list", "events", "", "ns")
    seen = await found(ROWS[0], FakeApi([], {("list", "Event"): why}))
    assert seen == Waits(any=True, problems={})


async def test_of_many_pods_a_few_are_asked_about() -> None:
    api = FakeApi()
    meta = {"name": "p", "uid": "pod", "creationTimestamp": OLD}
    await waits(api, "ns", [{**ROWS[0]["pod"], "metadata": meta}] * 40, [], NOW)  # type: ignore[arg-type]
    assert len(api.requests) == 4
