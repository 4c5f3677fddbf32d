"""A plan is carried out in order, and what somebody else made under a name of ours is never changed."""

from typing import Any

import pytest

from support.fake_api import FakeApi
from support.services import QUICKSTART, parse
from support.world import GOOD, HUB, World, applied, fetched
from tandem import children as children_of
from tandem import names
from tandem.api import KIND
from tandem.children.secret import PRIVATE_KEY, PUBLIC_KEY
from tandem.cluster.apply import NEVER, apply_status, execute
from tandem.cluster.kinds import Kind
from tandem.errors import KindMissing, NameTaken, NotLeader, Refused, Transient
from tandem.rollout.observed import Live
from tandem.rollout.plan import Action, Apply, CreateKeys, Delete
from tandem.settings import Settings

SERVICE = parse(
    QUICKSTART,
    **HUB,
    serving={"access": {"from": [{"podSelector": {}}]}},
    autoscaling={"minReplicas": 1, "maxReplicas": 2, "objectives": {"queueLength": 4}},
)
OWNER = [{"kind": "SpeculativeInferenceService", "name": "other", "uid": "uid-2", "controller": True}]
OURS = {names.LABEL_SERVICE: "quickstart", names.LABEL_MANAGED_BY: names.FIELD_MANAGER}
FOREIGN: dict[str, dict[str, Any]] = {
    "nobody's": {},
    "another service's": {"ownerReferences": OWNER},
    "another service's, labelled as ours": {"ownerReferences": OWNER, "labels": OURS},
    "nobody's, labelled as ours": {"labels": OURS},
}


def children(settings: Settings) -> list[dict[str, Any]]:
    """All that is applied from nothing to servers, in order."""
    world, made = World(settings), list[dict[str, Any]]()
    for message in (fetched(), GOOD, None):
        decision, _ = world.step(SERVICE)
        desired = decision.desired
        made += desired.all
        for name in world.jobs() if message else ():
            world.finish(name, message)
        if message == fetched():
            made += world.step(SERVICE)[0].desired.in_order
            world.pods = []
    return [child for child in made if "ownerReferences" in child["metadata"]]


class Taken:
    """An API server on which everything is there already, made by somebody else."""

    def __init__(self, metadata: dict[str, Any]) -> None:
        self.metadata = metadata

    async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        return {"kind": kind.kind, "metadata": {"name": name, "namespace": namespace, "uid": "u", **self.metadata}}


@pytest.mark.parametrize("metadata", FOREIGN.values(), ids=FOREIGN)
async def test_every_child_is_looked_at_before_it_is_touched(settings: Settings, metadata: dict[str, Any]) -> None:
    seen = set()
    for child in children(settings):
        kind, name = child["kind"], child["metadata"]["name"]
        (refused,) = await execute(Taken(metadata), [Apply(child, None)], lambda: None)  # type: ignore[arg-type]
        assert isinstance(refused, NameTaken) and f"{kind} '{name}' exists and belongs to" in str(refused)
        owner = "uid-2" if "ownerReferences" in metadata else "no SpeculativeInferenceService"
        assert f"belongs to {owner}" in str(refused)
        seen.add(kind)
    assert seen == {
        *("ServiceAccount", "NetworkPolicy", "ConfigMap", "Service", "Job"),
        *("PodDisruptionBudget", "Deployment", "HorizontalPodAutoscaler"),
    }


def test_what_pods_use_is_made_before_them(settings: Settings) -> None:
    """So that a name that is taken, which keeps back what comes after it, keeps the pods from being made."""
    order = [(child["kind"], child["metadata"]["name"]) for child in children(settings)]
    for child in children(settings):
        if child["kind"] not in ("Job", "Deployment"):
            continue
        pod = child["spec"]["template"]["spec"]
        used = [("ConfigMap", volume["configMap"]["name"]) for volume in pod["volumes"] if "configMap" in volume]
        for each in (*used, ("ServiceAccount", pod["serviceAccountName"])):
            assert order.index(each) < order.index((child["kind"], child["metadata"]["name"]))


# --- a plan is carried out --------------------------------------------------------------------------
OWNED = {"ownerReferences": [{"uid": "uid-1", "controller": True}]}


def manifest(kind: str, name: str = "a") -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name, "namespace": "default", **OWNED}, "spec": {}}


async def carried_out(api: FakeApi, *actions: Action) -> list[Refused]:
    return await execute(api, actions, lambda: None)  # type: ignore[arg-type]


async def test_a_plan_is_carried_out_in_order() -> None:
    api = FakeApi()
    live = Live("Job", "j", manifest=manifest("Job", "j"))
    keys = CreateKeys(manifest("Secret"))
    assert await carried_out(api, keys, Apply(manifest("ConfigMap"), None), Delete(live)) == []
    writes = [request for request in api.requests if request[0] != "get"]
    assert writes == [("create", "Secret"), ("apply", "ConfigMap"), ("delete", "Job")]
    assert api.bodies[0]["data"].keys() == {PRIVATE_KEY, PUBLIC_KEY}
    assert api.bodies[2] is live.manifest


async def test_what_is_changed_is_named_as_it_was_read() -> None:
    """So that an object that was made anew or changed meanwhile is not taken for it."""
    there = manifest("Deployment")
    there["metadata"] |= {"uid": "uid-7", "resourceVersion": "70"}
    for api, live in ((FakeApi(), Live("Deployment", "a", manifest=there)), (FakeApi([there]), None)):
        await carried_out(api, Apply(manifest("Deployment"), live))
        assert api.requests[-1] == ("apply", "Deployment")
        assert api.bodies[0]["metadata"] == there["metadata"]


async def test_what_another_makes_meanwhile_is_not_taken_over() -> None:
    api = FakeApi()
    await carried_out(api, Apply(manifest("Service"), None))
    assert api.bodies[0]["metadata"] == {**manifest("Service")["metadata"], "resourceVersion": NEVER}


async def test_what_changed_meanwhile_is_no_refusal() -> None:
    """A status would show one: what is known is that the plan is too old."""
    api = FakeApi(refusals={("apply", "Deployment"): Transient("409: the object has been modified")})
    with pytest.raises(Transient):
        await carried_out(api, Apply(manifest("Deployment"), None))


async def test_what_is_there_as_it_should_be_is_not_written() -> None:
    """Made a moment ago, or of a kind that may be read by name alone."""
    api = FakeApi([applied(manifest("Service"))])
    await carried_out(api, Apply(manifest("Service"), None))
    assert api.requests == [("get", "Service")]


async def test_what_is_refused_keeps_back_what_may_rest_on_it() -> None:
    no = Refused(422, "no")
    wanted = [Apply(manifest(kind), None) for kind in ("ConfigMap", "Service", "Deployment", "PodDisruptionBudget")]
    api = FakeApi(refusals={("apply", "ConfigMap"): no})
    assert await carried_out(api, *wanted) == [no]
    tried = [kind for verb, kind in api.requests if verb == "apply"]
    assert tried == ["ConfigMap", "Service", "PodDisruptionBudget"]
    api = FakeApi(refusals={("apply", "Service"): no})
    assert await carried_out(api, *wanted) == [no]
    assert ("apply", "Deployment") in api.requests, "pods come up without it"


@pytest.mark.parametrize(
    ("kind", "message", "missing"),
    [
        ("LeaderWorkerSet", "404 page not found", True),
        ("ScaledObject", "the server could not find the requested resource", True),
        ("LeaderWorkerSet", 'namespaces "default" not found', False),
        ("Deployment", "404 page not found", False),
    ],
)
async def test_a_kind_that_is_not_installed_says_what_to_do(kind: str, message: str, missing: bool) -> None:
    api = FakeApi(refusals={("apply", kind): Refused(404, message)})
    (refused,) = await carried_out(api, Apply(manifest(kind), None))
    assert isinstance(refused, KindMissing) is missing
    assert ("install https://" in str(refused)) is missing


async def test_what_all_services_share_is_made_once_and_left_alone() -> None:
    shared = children_of.cache_claim(SERVICE)
    for there in ([], [{**shared, "spec": {"other": True}}]):
        api = FakeApi(there)
        assert await carried_out(api, Apply(shared, None)) == []
        assert (("create", "PersistentVolumeClaim") in api.requests) is (not there)


async def test_our_own_that_lost_its_owner_is_taken_back() -> None:
    """Somebody removed the reference: it is nobody else's."""
    wanted = manifest("Service")
    wanted["metadata"]["labels"] = OURS
    there = applied(wanted)
    del there["metadata"]["ownerReferences"]
    there["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    api = FakeApi([there])
    assert await carried_out(api, Apply(wanted, None)) == []
    assert ("apply", "Service") in api.requests


async def test_nothing_is_written_without_the_right_to() -> None:
    def lost() -> None:
        raise NotLeader("the lease is another's")

    api = FakeApi()
    live = Live("Job", "j", manifest=manifest("Job", "j"))
    for action in (Apply(manifest("ConfigMap"), None), Delete(live), CreateKeys(manifest("Secret"))):
        with pytest.raises(NotLeader):
            await execute(api, [action], lost)  # type: ignore[arg-type]
    assert {verb for verb, _ in api.requests} <= {"get"}


async def test_what_others_wrote_is_made_ours_first_so_that_applying_removes_it() -> None:
    """Bound to the version that came of it; and again where only a name was known."""
    wanted = {**manifest("Deployment"), "spec": {"replicas": 1}}
    there = applied(wanted)
    there["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    written = {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:paused": {}}}}
    there["metadata"]["managedFields"].append(written)
    for live in (Live("Deployment", "a", manifest=there), None):
        api = FakeApi([there])
        assert await carried_out(api, Apply(wanted, live)) == []
        assert api.requests[-2:] == [("own", "Deployment"), ("apply", "Deployment")]
        assert api.bodies[-1]["metadata"]["resourceVersion"] == "8"


# --- the status -------------------------------------------------------------------------------------
async def test_a_status_is_written_where_it_differs() -> None:
    shown = {"url": "u", "replicas": 1}
    meta = {"name": "quickstart", "namespace": "default", "uid": "uid-1", "resourceVersion": "7"}
    entry = {"manager": names.FIELD_MANAGER, "operation": "Apply", "subresource": "status"}
    entry["fieldsV1"] = {"f:status": {"f:url": {}, "f:replicas": {}}}  # type: ignore[assignment]
    there = {"kind": KIND, "metadata": {**meta, "managedFields": [entry]}, "status": shown}
    live = Live(KIND, "quickstart", manifest=there)
    for wanted, written in ((shown, False), ({**shown, "replicas": 2}, True)):
        api = FakeApi()
        assert await apply_status(api, live, wanted, lambda: None) is written  # type: ignore[arg-type]
        assert [body["status"] for body in api.bodies] == ([wanted] if written else [])
        assert [body["metadata"] for body in api.bodies] == ([meta] if written else [])
