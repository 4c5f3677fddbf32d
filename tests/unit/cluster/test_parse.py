"""Manifests of children become values."""

import json
from typing import Any

import pytest

from support.services import QUICKSTART, parse
from support.world import GOOD, HUB, World, applied, bring_up, fetched, job_pod, observed_of, server_pod
from tandem import children, names
from tandem.cluster import parse as parsed
from tandem.cluster.pods import ended_well
from tandem.render import LATEST, Record, render
from tandem.rollout.observed import ChildCondition
from tandem.settings import Settings

FIRST, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def configmap(name: str, component: str, data: dict[str, str], created: str = FIRST, **labels: str) -> dict[str, Any]:
    meta = {"name": name, "creationTimestamp": created, "labels": {names.LABEL_COMPONENT: component, **labels}}
    return {"kind": "ConfigMap", "metadata": meta, "data": data}


def test_what_the_operator_applied_is_read_back(settings: Settings) -> None:
    """A whole service, from the manifests that its own builders made."""
    world = World(settings)
    decision = bring_up(world, parse(QUICKSTART))
    observed = world.observed()
    (stored,) = observed.revisions
    assert decision.revision and stored.digest == decision.revision.digest
    assert stored.record and render(stored.record) == decision.revision
    (result,) = observed.results
    assert (result.component, result.verdict.text) == (names.PREFLIGHT, GOOD)
    assert observed.live_revision == stored.digest
    assert observed.workloads[0].current
    assert [(server.ready, server.revision) for server in observed.servers] == [(True, stored.digest)]
    assert {live.kind for live in observed.others} == {"ServiceAccount", "Service", "PodDisruptionBudget"}


def test_revisions_and_results_come_newest_first() -> None:
    old, new = (configmap(f"svc-{at[:10]}", names.REVISION, {}, at) for at in (FIRST, LATER))
    assert [each.live.created for each in parsed.revisions([old, new])] == [LATER, FIRST]
    fetch = configmap("svc-fetch-1", names.result(names.FETCH), {"verdict.json": fetched()}, LATER)
    check = configmap("svc-preflight-1", names.result(names.PREFLIGHT), {"verdict.json": GOOD}, FIRST)
    assert [each.component for each in parsed.results([check, old, fetch])] == [names.FETCH, names.PREFLIGHT]


@pytest.mark.parametrize("data", [{}, {"record.json": "{}"}, {"record.json": '{"renderer": "v9"}'}])
def test_a_record_that_cannot_be_read_is_none(data: dict[str, str]) -> None:
    (stored,) = parsed.revisions([configmap("svc-1", names.REVISION, data, **{names.LABEL_REVISION: "1"})])
    assert (stored.record, stored.digest) == (None, "1")


def test_a_record_of_a_newer_renderer_is_none(settings: Settings) -> None:
    profile = settings.profile("reference")
    assert profile
    record = Record(renderer="v9", serving_image="s", profile=profile, spec=parse(QUICKSTART).spec)
    data = {"record.json": record.model_dump_json(by_alias=True)}
    (stored,) = parsed.revisions([configmap("svc-1", names.REVISION, data)])
    assert stored.record is None
    data = {"record.json": record.model_copy(update={"renderer": LATEST}).model_dump_json(by_alias=True)}
    (stored,) = parsed.revisions([configmap("svc-1", names.REVISION, data)])
    assert stored.record is not None


@pytest.mark.parametrize("data", [{}, {"verdict.json": "Killed"}])
def test_a_result_without_a_verdict_says_why(data: dict[str, str]) -> None:
    (result,) = parsed.results([configmap("svc-fetch-1", names.result(names.FETCH), data)])
    assert result.verdict.error


def test_labels_of_results_and_jobs() -> None:
    labels = {names.LABEL_CLAIM: "c", names.LABEL_REFILL: "true"}
    (result,) = parsed.results([configmap("svc-fetch-1", names.result(names.FETCH), {}, **labels)])
    assert (result.claim, result.refill) == ("c", True)
    job = {"kind": "Job", "metadata": {"name": "j", "uid": "u", "labels": {**labels, names.LABEL_POD: "d"}}}
    (seen,) = observed_of(job).jobs
    assert (seen.claim, seen.refill, seen.pod_digest) == ("c", True, "d")
    (bare,) = observed_of({"kind": "Job", "metadata": {"name": "j"}}).jobs
    assert (bare.claim, bare.refill, bare.pod_digest) == ("", False, "")


def test_a_job_has_the_pods_of_its_uid_alone() -> None:
    """One that was deleted, to try again, leaves its pods for a while."""
    job = {"kind": "Job", "metadata": {"name": "j", "uid": "new"}}
    other = {"kind": "Job", "metadata": {"name": "j", "uid": "old"}}
    pods = [job_pod(other, "old"), job_pod(job, GOOD), job_pod(job, "Killed", "Failed"), job_pod(job, "", "Pending")]
    (seen,) = observed_of(job, *pods).jobs
    assert [(pod.started, pod.succeeded) for pod in seen.pods] == [(True, True), (False, False), (False, False)]
    assert [bool(pod.verdict and pod.verdict.checks) for pod in seen.pods] == [True, False, False]


@pytest.mark.parametrize(("kind", "complete", "failed"), [("Complete", True, False), ("Failed", False, True)])
def test_how_a_job_ended(kind: str, complete: bool, failed: bool) -> None:
    ended = {"type": kind, "status": "True", "message": "too long"}
    job = {"kind": "Job", "metadata": {"name": "j"}, "status": {"conditions": [ended]}}
    (seen,) = observed_of(job).jobs
    assert (seen.complete, seen.failed, seen.failure) == (complete, failed, "too long" if failed else "")


def test_the_verdict_is_that_of_our_container() -> None:
    """A webhook may put one of its own before it."""
    job = {"kind": "Job", "metadata": {"name": "j", "uid": "u"}}
    pod = job_pod(job, GOOD)
    proxy = {"name": "istio-proxy", "state": {"terminated": {"exitCode": 0, "message": "bye"}}}
    pod["status"]["containerStatuses"].insert(0, proxy)
    (seen,) = observed_of(job, pod).jobs
    assert seen.pods[0].verdict and seen.pods[0].verdict.text == GOOD
    pod["status"]["containerStatuses"] = [proxy]
    (seen,) = observed_of(job, pod).jobs
    assert seen.pods[0].verdict is None


PROXY = {"name": "a-proxy", "state": {"running": {}}}
PROXY_FAILED = {"name": "a-proxy", "state": {"terminated": {"exitCode": 1}}}
SIDECARS: list[tuple[str, str, int | None, dict[str, Any], tuple[bool, tuple[str, ...], bool]]] = [
    # phase, exit code of ours, the other container; did it succeed, what holds it, is there a verdict
    ("it runs on", "Running", 0, PROXY, (True, ("a-proxy",), True)),
    ("it runs on, and ours failed", "Running", 1, PROXY, (False, ("a-proxy",), True)),
    ("it failed, and with it the pod", "Failed", 0, PROXY_FAILED, (True, (), True)),
    ("ours works", "Running", None, PROXY, (False, (), False)),
]


@pytest.mark.parametrize(("reason", "phase", "code", "other", "wanted"), SIDECARS, ids=[row[0] for row in SIDECARS])
def test_what_a_pod_of_a_task_did_is_what_our_container_did(
    reason: str, phase: str, code: int | None, other: dict[str, Any], wanted: tuple[bool, tuple[str, ...], bool]
) -> None:
    job = {"kind": "Job", "metadata": {"name": "j", "uid": "u"}}
    pod = job_pod(job, GOOD, phase)
    state = {"running": {}} if code is None else {"terminated": {"exitCode": code, "message": GOOD}}
    pod["status"]["containerStatuses"] = [other, {"name": names.CONTAINER, "state": state}]
    (seen,) = observed_of(job, pod).jobs[0].pods
    assert (seen.succeeded, seen.held_by, seen.verdict is not None) == wanted, reason


def test_a_folder_is_missed_by_our_container_alone() -> None:
    gone = f"/cache/models/{'a' * 32} is gone from the cache volume"
    state = {"terminated": {"exitCode": 1, "message": gone, "finishedAt": FIRST}}
    missed = [
        observed_of(
            {"metadata": {"name": "p"}, "status": {"containerStatuses": [{"name": name, "state": state}]}}
        ).gone
        for name in ("proxy", names.CONTAINER)
    ]
    assert [bool(each) for each in missed] == [False, True]


def test_a_folder_is_missed_at_the_start_of_the_container_that_missed_it() -> None:
    """Its end, which may come after the folder was filled again, would count as another loss."""
    gone = f"/cache/models/{'a' * 32} is gone from the cache volume"
    end = {"exitCode": 1, "message": gone, "startedAt": FIRST, "finishedAt": LATER}
    container = {"name": names.CONTAINER, "state": {"terminated": end}}
    pod = {"metadata": {"name": "p"}, "status": {"containerStatuses": [container]}}
    assert observed_of(pod).gone == {f"/cache/models/{'a' * 32}": FIRST}


WORKLOADS = [
    ("Deployment", 1, True),
    ("Deployment", 0, False),
    ("Deployment", None, False),
    ("LeaderWorkerSet", 1, True),
    ("LeaderWorkerSet", None, True),  # before 0.9 it does not say
]


@pytest.mark.parametrize(("kind", "acted_on", "current"), WORKLOADS)
def test_whether_a_workload_is_current(kind: str, acted_on: int | None, current: bool) -> None:
    template = {"metadata": {"labels": {names.LABEL_REVISION: "r"}}}
    spec = {"template": template} if kind == "Deployment" else {"leaderWorkerTemplate": {"leaderTemplate": template}}
    workload = applied({"kind": kind, "metadata": {"name": "w"}, "spec": spec})
    (ours,) = workload["metadata"]["managedFields"]
    workload["metadata"]["managedFields"] = [{**ours, "subresource": "status", "time": LATER}, ours]
    workload["status"] = {} if acted_on is None else {"observedGeneration": acted_on}
    (seen,) = observed_of(workload).workloads
    assert (seen.current, seen.revision, seen.applied) == (current, "r", FIRST)


def test_workloads_come_oldest_first() -> None:
    spec: dict[str, Any] = {"template": {"metadata": {}}}
    made = [applied({"kind": "Deployment", "metadata": {"name": at}, "spec": spec}, at) for at in (LATER, FIRST)]
    assert [each.live.name for each in observed_of(*made).workloads] == [FIRST, LATER]


def test_the_conditions_of_an_autoscaler() -> None:
    said = {"type": "ScalingActive", "status": "False", "message": "no metrics"}
    scaler = {"kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}, "status": {"conditions": [said]}}
    (seen,) = observed_of(scaler).autoscalers
    assert seen.conditions == [ChildCondition("ScalingActive", "False", "", "no metrics")]
    (new,) = observed_of({"kind": "ScaledObject", "metadata": {"name": "a"}}).autoscalers
    assert new.conditions == []


def test_a_claim() -> None:
    service = parse(QUICKSTART, **HUB)
    ours = parsed.claim(applied(children.cache_claim(service)))
    assert (ours.made_by_us, ours.access_modes, ours.created) == (True, ("ReadWriteMany",), FIRST)
    theirs = parsed.claim({"kind": "PersistentVolumeClaim", "metadata": {"name": "c", "deletionTimestamp": LATER}})
    assert (theirs.made_by_us, theirs.access_modes, theirs.deleting) == (False, (), True)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({}, (True, False, False)),
        ({"metadata": {"deletionTimestamp": LATER}}, (True, True, False)),
        ({"status": {"phase": "Failed"}}, (True, False, True)),
        ({"status": {"phase": "Succeeded"}}, (True, False, True)),
        ({"status": {"conditions": []}}, (False, False, False)),
    ],
    ids=["it serves", "it is deleted", "it was evicted", "its node was shut down", "it is new"],
)
def test_a_server(change: dict[str, Any], wanted: tuple[bool, bool, bool]) -> None:
    pod = server_pod("p", {names.LABEL_COMPONENT: names.SERVER, names.LABEL_REVISION: "r"}, ready=True)
    pod = {**pod, **{part: {**pod[part], **fields} for part, fields in change.items()}}
    (seen,) = observed_of(pod).servers
    assert (seen.ready, seen.deleting, seen.ended) == wanted
    assert seen.ready_since == "", "unknown"
    assert not seen.worker
    pod["metadata"]["labels"] = {names.LABEL_COMPONENT: names.WORKER}
    assert observed_of(pod).servers[0].worker


def test_pods_of_other_components_are_no_servers() -> None:
    assert observed_of(server_pod("p", {names.LABEL_COMPONENT: names.FETCH}, ready=True)).servers == []


def test_a_benchmark_is_known_by_its_name() -> None:
    data = {"result.json": json.dumps({})}
    found = {"kind": "ConfigMap", "metadata": {"name": "quickstart-benchmark"}, "data": data}
    assert observed_of(found).benchmark == data
    assert observed_of({**found, "data": None}).benchmark == {}
    assert observed_of(found, service="other").benchmark is None


ENDS: list[tuple[str, dict[str, Any], bool]] = [
    ("it ended without an error", {"terminated": {"exitCode": 0}}, True),
    ("it failed", {"terminated": {"exitCode": 1}}, False),
    ("it runs", {"running": {}}, False),
]


@pytest.mark.parametrize(("reason", "state", "well"), ENDS, ids=[row[0] for row in ENDS])
def test_how_our_container_ended(reason: str, state: dict[str, Any], well: bool) -> None:
    beside = {"name": "istio-proxy", "state": {"terminated": {"exitCode": 0 if not well else 1}}}
    ours = {"name": names.CONTAINER, "state": state}
    pod = {"metadata": {"name": "p"}, "status": {"containerStatuses": [beside, ours]}}
    assert ended_well(pod) is well, reason
    assert not ended_well({"metadata": {"name": "p"}})
