"""Services and pods as the API server gives them, and what a round sees of them."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from tandem.metrics.telemetry.figures import Replicas
from tandem.metrics.telemetry.source import ScrapeTarget
from tandem.metrics_server.inventory import join, pod, service

SERVICE = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: llama, namespace: team-a, uid: s1}
spec:
  runtime: {mode: BLS, profile: reference}
  target: {model: {uri: file:///opt/reference/pair/target}}
  speculation: {decodingType: None}
  replicas: 3
"""
POD = """
apiVersion: v1
kind: Pod
metadata:
  name: llama-server-0
  namespace: team-a
  uid: p1
  creationTimestamp: "2026-11-22T08:00:00Z"
  labels: {serving.tandem.dev/service: llama, serving.tandem.dev/component: server}
status: {phase: Running, podIP: 10.0.0.7, conditions: [{type: Ready, status: "True"}]}
"""


def edited(text: str, **changes: Any) -> dict[str, Any]:
    raw: dict[str, Any] = copy.deepcopy(yaml.safe_load(text))
    for path, value in changes.items():
        *parents, last = path.split("__")
        node = raw
        for parent in parents:
            node = node[parent]
        node[last] = value
    return raw


READY = ScrapeTarget("p1", "team-a", "llama-server-0", "10.0.0.7")
PENDING = {"status__conditions": [{"type": "Ready", "status": "False"}]}
PODS: list[tuple[str, dict[str, Any], tuple[ScrapeTarget, ...], int]] = [
    # why, what differs, pods that are read, pods that are on their way
    ("Ready", {}, (READY,), 0),
    ("loading its models", PENDING, (), 1),
    ("not placed yet", {"status": {"phase": "Pending"}}, (), 1),
    ("on its way out: its load goes elsewhere", {"metadata__deletionTimestamp": "2026-11-21T22:00:00Z"}, (), 0),
    ("evicted", {"status__phase": "Failed"}, (), 0),
    ("of another service", {"metadata__labels": {"serving.tandem.dev/service": "other"}}, (), 0),
    ("of no service", {"metadata__labels": {}}, (), 0),
    ("of a namesake in another namespace", {"metadata__namespace": "team-b"}, (), 0),
    ("an address that is a name", {"status__podIP": "evil.example.com"}, (), 1),
    ("IPv6", {"status__podIP": "fd00::7"}, (ScrapeTarget("p1", "team-a", "llama-server-0", "fd00::7"),), 0),
]


@pytest.mark.parametrize(("changes", "targets", "pending"), [p[1:] for p in PODS], ids=[p[0] for p in PODS])
def test_pods_of_a_service(changes: dict[str, Any], targets: tuple[ScrapeTarget, ...], pending: int) -> None:
    read, taken = service(yaml.safe_load(SERVICE)), pod(edited(POD, **changes))
    assert read is not None
    (known,) = join([read], [taken] if taken else [])
    assert known.targets == targets
    assert known.replicas == Replicas(len(targets), pending, 3)


def test_all_pods_of_a_service_by_name_and_what_keeps_one_from_being_ready() -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": "no node has a GPU"}
    waits = {"metadata__name": "llama-server-9", "status": {"phase": "Pending", "conditions": [condition]}}
    labels = {"serving.tandem.dev/service": "llama", "serving.tandem.dev/revision": "abc"}
    read = service(yaml.safe_load(SERVICE))
    assert read is not None
    pods = [pod(edited(POD, **waits)), pod(edited(POD, metadata__labels=labels))]
    (known,) = join([read], [each for each in pods if each])
    assert [(each.name, each.revision, each.problem) for each in known.pods] == [
        ("llama-server-0", "abc", ""),
        ("llama-server-9", "", "pod llama-server-9 cannot be scheduled: no node has a GPU"),
    ]


@pytest.mark.parametrize(
    "changes",
    [{"spec__replicas": "many"}, {"metadata__deletionTimestamp": "2026-11-21T22:00:00Z"}],
    ids=["one of a newer operator, that this one cannot read", "one that goes"],
)
def test_services_that_are_left_out(changes: dict[str, Any]) -> None:
    assert service(edited(SERVICE, **changes)) is None


def started(minute: int, seconds: int, **changes: Any) -> dict[str, Any]:
    """A pod that was created at a minute past eight and Ready so many seconds later."""
    at = datetime(2026, 11, 22, 8, minute, tzinfo=UTC)
    ready = (at + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": ready}
    created = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return edited(POD, metadata__creationTimestamp=created, status__conditions=[condition], **changes)


def running(minute: int) -> dict[str, Any]:
    """A container that began so many minutes past eight."""
    at = datetime(2026, 11, 22, 8, tzinfo=UTC) + timedelta(minutes=minute)
    return {"restartCount": 0, "state": {"running": {"startedAt": at.strftime("%Y-%m-%dT%H:%M:%SZ")}}}


@pytest.mark.parametrize(
    ("pods", "expected", "reason"),
    [
        ([], None, "no pod"),
        ([edited(POD)], None, "Ready, nobody says since when"),
        ([edited(POD, **PENDING)], None, "the first one still loads"),
        ([started(0, 90)], 90, "one"),
        ([started(0, 90), started(1, 110), started(2, 600)], 110, "the one that waited for a node is no rule"),
        (
            [started(i, 300 if i < 5 else 60) for i in range(10)],
            60,
            "the five youngest: engines are cached now",
        ),
        (
            [started(0, 90), started(1, 5000, status__containerStatuses=[{"restartCount": 1}])],
            90,
            "one that crashed was Ready before",
        ),
        (
            [started(0, 90), started(1, 5 * 86400, status__containerStatuses=[running(2)])],
            90,
            "its node was away for a while, five days later",
        ),
        ([started(0, 86400 + 90, status__containerStatuses=[running(24 * 60)])], 86490, "it waited a day for a GPU"),
        ([started(0, 3 * 3600)], None, "longer than it may start, twice over"),
        (
            [started(0, 3 * 3600, spec={"containers": [{}, {"startupProbe": {"failureThreshold": 2160}}]})],
            3 * 3600,
            "as long as its rollout's deadline lets it",
        ),
    ],
)
def test_what_a_replica_takes_to_start(pods: list[dict[str, Any]], expected: float | None, reason: str) -> None:
    read = service(yaml.safe_load(SERVICE))
    assert read is not None
    (known,) = join([read], [taken for each in pods if (taken := pod(each))])
    assert known.replicas.start_seconds == expected, reason
