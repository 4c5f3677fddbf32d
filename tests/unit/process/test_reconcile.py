"""One reconcile: from what is observed to the status, and when the service is looked at again."""

from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from bench.scale.__main__ import NAME, NAMESPACE, SERVICE
from support.admission import QUEUE
from support.api_server import KEY, Cluster
from tandem import names
from tandem.api import PLURAL
from tandem.children.foreign import foreign
from tandem.errors import NotLeader, Transient
from tandem.process.reconcile import Key, Next
from tandem.process.reverts import MOST

SERVER = f"{NAME}-server"


def deployment(cluster: Cluster) -> dict[str, Any]:
    found = cluster.server.store.get("deployments", NAMESPACE, SERVER)
    assert found
    return found


async def test_from_nothing_to_ready_and_then_nothing(cluster: Cluster) -> None:
    await cluster.bring_up()
    assert await cluster.reconcile() is Next.EVENT
    assert cluster.writes() == set()
    assert cluster.has("deployments", SERVER)


async def test_a_service_that_is_gone_asks_for_nothing(cluster: Cluster) -> None:
    assert await cluster.reconciler.reconcile(Key(NAMESPACE, "gone")) is Next.EVENT
    assert cluster.writes() == set()


@pytest.mark.parametrize("again", [False, True])
async def test_what_goes_with_its_service_is_not_made_again(cluster: Cluster, again: bool) -> None:
    """The service is deleted between its being read and its children's, and the garbage collector is fast; there may
    be another one of its name already."""
    await cluster.bring_up()
    store = cluster.server.store

    def collected(request: web.Request) -> None:
        if request.path.endswith("/serviceaccounts") and cluster.has("serviceaccounts", SERVER):
            store.remove("serviceaccounts", NAMESPACE, SERVER)
            store.remove(PLURAL, *KEY)
            if again:
                store.put(PLURAL, {**SERVICE, "metadata": {**SERVICE["metadata"], "uid": "another"}})

    cluster.server.instead = collected
    with pytest.raises(Transient):
        await cluster.reconcile()
    assert cluster.writes() == set()
    await cluster.reconcile()
    assert cluster.has("serviceaccounts", SERVER) == again


async def test_an_edit_is_acted_on_and_shown_at_once(cluster: Cluster) -> None:
    await cluster.bring_up()
    cluster.edit(replicas=3)
    await cluster.reconcile()
    assert deployment(cluster)["spec"]["replicas"] == 3
    service = cluster.server.store.get(PLURAL, *KEY)
    assert service and service["status"]["observedGeneration"] == service["metadata"]["generation"]


async def test_drift_is_repaired(cluster: Cluster) -> None:
    """`kubectl edit` takes the field over."""
    await cluster.bring_up()
    found = deployment(cluster)
    found["spec"]["replicas"] = 9
    cluster.server.store.put("deployments", found)
    await cluster.reconcile()
    assert deployment(cluster)["spec"]["replicas"] == 1
    await cluster.reconcile()
    cluster.writes()
    await cluster.reconcile()
    assert cluster.writes() == set()


def set_paused(cluster: Cluster) -> None:
    """As `kubectl rollout pause`."""
    found = deployment(cluster)
    found["spec"]["paused"] = True
    written = {"manager": "kubectl-rollout", "operation": "Update", "fieldsV1": {"f:spec": {"f:paused": {}}}}
    found["metadata"]["managedFields"].append(written)
    cluster.server.store.put("deployments", found)


async def test_what_is_written_again_and_again_is_a_condition(cluster: Cluster) -> None:
    await cluster.bring_up()
    for _ in range(MOST):
        set_paused(cluster)
        await cluster.reconcile()
        assert foreign(deployment(cluster)) == {}
        assert "ChildrenKept" not in cluster.conditions()
    store = cluster.server.store
    events = [store.get("events", NAMESPACE, one.name) for plural, one in store.all() if plural == "events"]
    messages = [event["message"] for event in events if event and event["reason"] == "EditReverted"]
    assert messages == [f"Deployment {SERVER}: kubectl-rollout wrote spec.paused, which was undone"] * MOST
    set_paused(cluster)
    cluster.writes()
    assert await cluster.reconcile() is Next.LATER, "no event marks the end of the pause"
    assert cluster.writes() == {f"{PLURAL}/status"}
    assert cluster.conditions()["ChildrenKept"] == "False/WrittenByOthers"
    assert f"Deployment {SERVER}: kubectl-rollout wrote spec.paused, again" in cluster.message("ChildrenKept")
    assert cluster.conditions()["Ready"] == "True/ServersAnswer"
    await cluster.reconcile()
    assert cluster.writes() == set()
    cluster.edit(replicas=2)
    await cluster.reconcile()
    assert deployment(cluster)["spec"]["replicas"] == 2, "what the user asks for is done"
    await cluster.reconcile()
    assert "ChildrenKept" not in cluster.conditions()


async def test_while_servers_are_on_their_way_it_looks_again(cluster: Cluster) -> None:
    """Time alone may end a rollout, and no event says when."""
    await cluster.bring_up()
    for pod in cluster.server.store.listed("pods", NAMESPACE, NAME):
        found = cluster.server.store.get("pods", NAMESPACE, pod.name)
        assert found
        found["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
        cluster.server.store.put("pods", found)
    assert await cluster.reconcile() is Next.LATER
    assert cluster.conditions()["Reconciling"] == "True/ReplicasNotReady"


async def test_while_a_claim_is_awaited_it_looks_again(cluster: Cluster) -> None:
    """Claims are not watched."""
    cached = {"model": {"uri": "hf://org/target"}}
    await cluster.bring_up()
    cluster.edit(target=cached, storage={"cache": {"claimName": "mine"}})
    assert await cluster.reconcile() is Next.LATER
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "mine", "namespace": NAMESPACE},
    }
    cluster.server.store.put("persistentvolumeclaims", {**claim, "spec": {"accessModes": ["ReadWriteMany"]}})
    assert await cluster.reconcile() is Next.EVENT


@pytest.mark.parametrize(
    ("ours", "reason"),
    [(False, "CacheNotManagedByTandem"), (True, "CacheNotShareable")],
)
async def test_another_claim_is_looked_for_where_this_one_is_refused(
    cluster: Cluster, ours: bool, reason: str
) -> None:
    """The message asks for it, and claims are not watched."""
    labels = {names.LABEL_MANAGED_BY: names.FIELD_MANAGER} if ours else {}
    meta = {"name": names.CACHE_CLAIM, "namespace": NAMESPACE, "labels": labels}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta}
    store = cluster.server.store
    store.put("persistentvolumeclaims", {**claim, "spec": {"accessModes": ["ReadWriteOnce"]}})
    await cluster.bring_up()
    cluster.edit(target={"model": {"uri": "hf://org/target"}}, replicas=2)
    assert await cluster.reconcile() is Next.RETRY
    assert cluster.conditions()["SpecAccepted"] == f"False/{reason}"
    store.remove("persistentvolumeclaims", NAMESPACE, names.CACHE_CLAIM)
    await cluster.reconcile()
    assert cluster.conditions()["SpecAccepted"].startswith("True/")


async def test_progress_of_downloads_is_asked_for_again_soon(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tandem.cluster.observe import observe

    async def observed(*arguments: Any) -> Any:
        found = await observe(*arguments)
        return found and (found[0], replace(found[1], progress={"p": "1 of 2 GB"}))

    await cluster.bring_up()
    monkeypatch.setattr("tandem.process.reconcile.observe", observed)
    assert await cluster.reconcile() is Next.SOON


async def test_what_is_refused_is_tried_again(cluster: Cluster) -> None:
    await cluster.bring_up()
    cluster.server.revoked = {("patch", "deployments")}
    cluster.edit(replicas=2)
    assert await cluster.reconcile() is Next.RETRY
    assert cluster.conditions()["Stalled"] == "True/RightMissing"


async def test_an_upgrade_of_the_cluster_is_looked_for(cluster: Cluster) -> None:
    """An HPA to zero waits for it, and no event marks it."""
    await cluster.bring_up()
    shown = {"major": "1", "minor": "36"}
    cluster.server.instead = lambda request: web.json_response(shown) if request.path == "/version" else None
    cluster.edit(autoscaling={"minReplicas": 0, "maxReplicas": 2, "metrics": [QUEUE]})
    assert await cluster.reconcile() is Next.RETRY
    assert cluster.conditions()["SpecAccepted"] == "False/KubernetesTooOld"
    assert "needs Kubernetes 1.37 or newer" in cluster.message("SpecAccepted")
    assert "and this is 1.36: write source: KEDA" in cluster.message("SpecAccepted")
    assert cluster.has("deployments", SERVER), "what runs is left alone"
    shown["minor"] = "37+"
    await cluster.reconcile()
    assert cluster.conditions()["SpecAccepted"].startswith("True/")
    assert cluster.has("horizontalpodautoscalers", SERVER)


async def test_the_version_is_asked_for_where_something_depends_on_it(cluster: Cluster) -> None:
    await cluster.bring_up()
    asked = list[str]()
    cluster.server.instead = lambda request: asked.append(request.path)
    cluster.edit(autoscaling={"maxReplicas": 2, "metrics": [QUEUE]})
    await cluster.reconcile()
    assert asked
    assert "/version" not in asked


async def test_who_does_not_lead_writes_nothing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> None:
        raise NotLeader("the lease is another's")

    await cluster.bring_up()
    cluster.edit(replicas=2)
    monkeypatch.setattr(cluster.reconciler._leadership, "check", lost)
    with pytest.raises(NotLeader):
        await cluster.reconcile()
    assert cluster.writes() == set()


async def test_the_claim_that_is_made_is_everybodys(cluster: Cluster) -> None:
    await cluster.bring_up()
    cluster.edit(target={"model": {"uri": "hf://org/target"}})
    await cluster.reconcile()
    claim = cluster.server.store.get("persistentvolumeclaims", NAMESPACE, names.CACHE_CLAIM)
    assert claim
    assert "ownerReferences" not in claim["metadata"], "deleting one service loses no download of another"
