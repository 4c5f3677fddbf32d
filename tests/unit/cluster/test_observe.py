"""One service and what is its own, as the API server answers."""

from typing import Any

import pytest
import yaml

from support.fake_api import FakeApi
from support.services import QUICKSTART
from tandem import names
from tandem.cluster.observe import observe
from tandem.errors import Forbidden, Refused
from tandem.rollout.observed import Observed
from tandem.settings import Settings

SERVICE: dict[str, Any] = yaml.safe_load(QUICKSTART)
OURS = [{"uid": "uid-1", "controller": True}]
CLAIM = {"kind": "PersistentVolumeClaim", "metadata": {"name": names.CACHE_CLAIM, "uid": "c"}}


def child(kind: str, name: str, **metadata: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name, "ownerReferences": OURS, **metadata}, "spec": {}}


def service(**spec: Any) -> dict[str, Any]:
    return {**SERVICE, "spec": {**SERVICE["spec"], **spec}}


async def seen(api: FakeApi, settings: Settings) -> Observed:
    found = await observe(api, settings, "default", "quickstart")  # type: ignore[arg-type]
    assert found
    assert found[0].name == "quickstart"
    return found[1]


async def test_what_others_own_is_not_the_services(settings: Settings) -> None:
    theirs = child("Service", "theirs", ownerReferences=[{"uid": "uid-2", "controller": True}])
    orphan = child("ServiceAccount", "orphan", ownerReferences=[])
    pod = child("Pod", "p", ownerReferences=[], labels={names.LABEL_COMPONENT: names.SERVER})
    api = FakeApi([SERVICE, child("Service", "ours"), theirs, orphan, pod])
    observed = await seen(api, settings)
    assert [live.name for live in observed.others] == ["ours"]
    assert [server.name for server in observed.servers] == ["p"], "owned by the workload's own children"
    assert observed.service.manifest == SERVICE
    assert api.lists == {("default", f"{names.LABEL_SERVICE}=quickstart,{names.LABEL_MANAGED_BY}=tandem")}


@pytest.mark.parametrize(
    "objects", [[], [{**SERVICE, "metadata": {**SERVICE["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}]]
)
async def test_a_service_that_is_gone_or_goes_is_none(objects: list[dict[str, Any]], settings: Settings) -> None:
    assert await observe(FakeApi(objects), settings, "default", "quickstart") is None  # type: ignore[arg-type]


async def test_the_children_of_a_service_that_is_not_understood_are_read(settings: Settings) -> None:
    api = FakeApi([service(runtime={"mode": "Fast"}), child("Service", "ours")])
    observed = await seen(api, settings)
    assert observed.not_understood.startswith("spec.runtime.mode: Input should be 'LLMAPI' or 'BLS'")
    assert [live.name for live in observed.others] == ["ours"]
    assert ("get", "PersistentVolumeClaim") not in api.requests, "what is asked for is not known"


async def test_kinds_that_may_not_be_read_are_named_with_why(settings: Settings) -> None:
    why = Forbidden("me", "list", "jobs", "batch", "default")
    observed = await seen(FakeApi([SERVICE], {("list", "Job"): why}), settings)
    assert observed.unread == {"Job": why}
    assert observed.jobs == []


@pytest.mark.parametrize("kind", ["LeaderWorkerSet", "ScaledObject"])
async def test_an_optional_kind_may_be_missing(kind: str, settings: Settings) -> None:
    observed = await seen(FakeApi([SERVICE], {("list", kind): Refused(404, "no such kind")}), settings)
    assert observed.unread == {}


@pytest.mark.parametrize(("kind", "status"), [("Job", 404), ("LeaderWorkerSet", 400)])
async def test_other_refusals_are_raised(kind: str, status: int, settings: Settings) -> None:
    with pytest.raises(Refused):
        await seen(FakeApi([SERVICE], {("list", kind): Refused(status, "no")}), settings)


HUB = {"target": {"model": {"uri": "hf://org/target"}}}


async def test_the_claim_of_a_service_that_caches(settings: Settings) -> None:
    observed = await seen(FakeApi([service(**HUB), CLAIM]), settings)
    assert observed.claim_name == names.CACHE_CLAIM
    assert observed.claim and observed.claim.uid == "c"
    why = Forbidden("me", "get", "persistentvolumeclaims", "", "default")
    observed = await seen(FakeApi([service(**HUB)], {("get", "PersistentVolumeClaim"): why}), settings)
    assert observed.claim is None
    assert observed.unread == {"PersistentVolumeClaim": why}


async def test_the_claim_of_a_service_that_does_not_is_not_asked_for(settings: Settings) -> None:
    api = FakeApi([SERVICE, CLAIM])
    observed = await seen(api, settings)
    assert (observed.claim, observed.claim_name) == (None, "")
    assert ("get", "PersistentVolumeClaim") not in api.requests


PVC = {"target": {"model": {"uri": "pvc://models/target"}}, "draft": {"model": {"uri": "pvc://models/draft"}}}


@pytest.mark.parametrize(("replicas", "asked"), [(1, False), (2, True)])
async def test_claims_of_models_are_asked_for_where_pods_may_be_on_several_nodes(
    replicas: int, asked: bool, settings: Settings
) -> None:
    models = {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "models"},
        "spec": {"accessModes": ["ReadWriteOnce"]},
    }
    api = FakeApi([service(**PVC, replicas=replicas), models])
    observed = await seen(api, settings)
    assert observed.source_claims == ({"models": ("ReadWriteOnce",)} if asked else {})
    assert api.requests.count(("get", "PersistentVolumeClaim")) == asked


async def test_what_a_pod_waits_for_is_its_problem(settings: Settings) -> None:
    """Read from Events once it has waited; and the service is looked at again, since no event ends it."""
    container = {"name": names.CONTAINER, "state": {"waiting": {"reason": "ContainerCreating"}}}
    conditions = [{"type": "PodScheduled", "status": "True"}]
    pod = child(
        "Pod", "p", uid="pod", creationTimestamp="2026-01-01T00:00:00Z", labels={names.LABEL_COMPONENT: "server"}
    )
    pod["status"] = {"phase": "Pending", "conditions": conditions, "containerStatuses": [container]}
    event = {"kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"uid": "pod"}, "type": "Warning"}
    observed = await seen(
        FakeApi([SERVICE, pod, {**event, "reason": "FailedMount", "message": "no such claim"}]), settings
    )
    assert observed.waits
    (server,) = observed.servers
    assert server.problem
    assert (server.problem.reason, "no such claim" in server.problem.message) == ("VolumeNotMounted", True)


async def test_pods_are_asked_how_far_they_are(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    async def progress(pods: list[dict[str, Any]]) -> dict[str, str]:
        return {pod["metadata"]["name"]: "1 of 2 GB" for pod in pods}

    monkeypatch.setattr("tandem.cluster.observe.progress", progress)
    assert (await seen(FakeApi([SERVICE, child("Pod", "p"), child("Job", "j")]), settings)).progress == {
        "p": "1 of 2 GB"
    }
