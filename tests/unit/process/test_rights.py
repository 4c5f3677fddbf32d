"""A right that is missing stops what needs it and nothing else, says so, and heals when it is back.

The operator's own client and reconciler, against the fake API server of tests/bench/scale.
"""

import pytest

from bench.scale.__main__ import NAME, NAMESPACE
from support.api_server import Cluster
from tandem.api import PLURAL
from tandem.process.reconcile import Next

ENDPOINT, BUDGET, DEPLOYMENT = f"{NAME}-triton", f"{NAME}-server", f"{NAME}-server"


async def test_with_all_rights_nothing_is_said_of_them(cluster: Cluster) -> None:
    await cluster.bring_up()
    assert await cluster.reconcile() is Next.EVENT
    assert cluster.writes() == set()
    assert "RightsGranted" not in cluster.conditions()


@pytest.mark.parametrize("plural", ["poddisruptionbudgets", "services", "serviceaccounts"])
async def test_a_kind_that_may_be_read_by_name_alone_is_kept_as_it_should_be(cluster: Cluster, plural: str) -> None:
    await cluster.bring_up()
    cluster.server.revoked = {("list", plural)}
    assert await cluster.reconcile() is Next.EVENT
    assert cluster.conditions()["Ready"] == "True/ServersAnswer"
    assert cluster.conditions()["RightsGranted"] == "False/RightMissing"
    assert f"may not list {plural}" in cluster.message("RightsGranted")
    assert f"in namespace {NAMESPACE}: run helm upgrade" in cluster.message("RightsGranted")
    assert cluster.writes() == {f"{PLURAL}/status"}
    cluster.server.store.remove("services", NAMESPACE, ENDPOINT)
    cluster.server.store.remove("poddisruptionbudgets", NAMESPACE, BUDGET)
    await cluster.reconcile()
    assert cluster.has("services", ENDPOINT)
    assert cluster.has("poddisruptionbudgets", BUDGET)
    cluster.writes()
    await cluster.reconcile()
    assert cluster.writes() == set(), "nothing again and again"
    cluster.server.revoked = set()
    await cluster.reconcile()
    assert "RightsGranted" not in cluster.conditions()


async def test_a_child_that_may_not_be_written_leaves_the_others_repaired(cluster: Cluster) -> None:
    await cluster.bring_up()
    cluster.server.revoked = {("patch", "services")}
    cluster.server.store.remove("services", NAMESPACE, ENDPOINT)
    cluster.server.store.remove("poddisruptionbudgets", NAMESPACE, BUDGET)
    cluster.edit(replicas=2)
    assert await cluster.reconcile() is Next.RETRY
    assert cluster.has("poddisruptionbudgets", BUDGET)
    deployment = cluster.server.store.get("deployments", NAMESPACE, DEPLOYMENT)
    assert deployment
    assert deployment["spec"]["replicas"] == 2
    assert cluster.conditions()["Ready"] == cluster.conditions()["RightsGranted"] == "False/RightMissing"
    assert cluster.conditions()["Stalled"] == "True/RightMissing"
    assert "may not patch services in namespace" in cluster.message("RightsGranted")
    cluster.server.revoked = set()
    await cluster.reconcile()
    await cluster.reconcile()
    assert cluster.has("services", ENDPOINT)
    assert cluster.conditions()["Ready"] == "True/ServersAnswer"
    assert "RightsGranted" not in cluster.conditions()


@pytest.mark.parametrize("plural", ["configmaps", "jobs", "deployments", "pods"])
async def test_without_a_look_at_what_decides_nothing_is_begun_anew(cluster: Cluster, plural: str) -> None:
    await cluster.bring_up()
    before = cluster.others()
    cluster.server.revoked = {("list", plural)}
    cluster.edit(speculation={"decodingType": "DraftTarget", "maxDraftLen": 2})
    assert await cluster.reconcile() is Next.EVENT
    assert cluster.writes() == {f"{PLURAL}/status"}
    assert cluster.conditions()["Stalled"] == "True/RightMissing"
    assert f"may not list {plural}" in cluster.message("Stalled")
    assert cluster.conditions()["Ready"] == "Unknown/RightMissing", "its servers answer, or not, unseen"
    await cluster.reconcile()
    assert cluster.writes() == set()
    assert cluster.others() == before
    cluster.server.revoked = set()
    for _ in range(4):
        await cluster.reconcile()
    assert cluster.conditions()["Ready"] == "True/ServersAnswer"
    assert "Stalled" not in cluster.conditions()


async def test_what_is_refused_keeps_back_what_rests_on_it(cluster: Cluster) -> None:
    """Servers whose ConfigMap could not be made would wait for it, and the old ones be gone."""
    await cluster.bring_up()
    cluster.server.revoked = {("patch", "configmaps")}
    cluster.edit(speculation={"decodingType": "DraftTarget", "maxDraftLen": 2})
    cluster.server.store.remove("services", NAMESPACE, ENDPOINT)
    await cluster.reconcile()
    assert cluster.writes() == {f"{PLURAL}/status", "configmaps", "services"}
    assert "may not patch configmaps" in cluster.message("Ready")


async def test_kinds_that_are_not_asked_for_are_not_missed(cluster: Cluster) -> None:
    """The rights of an older chart do not name them, and the service wants none."""
    await cluster.bring_up()
    cluster.server.revoked = {("list", "networkpolicies"), ("list", "horizontalpodautoscalers")}
    assert await cluster.reconcile() is Next.EVENT
    assert cluster.writes() == set()


async def test_autoscalers_that_may_not_be_listed_are_left_alone(cluster: Cluster) -> None:
    """There may be one of the other kind, and two would fight over the replicas."""
    await cluster.bring_up()
    cluster.edit(autoscaling={"maxReplicas": 2})
    await cluster.reconcile()
    assert cluster.has("horizontalpodautoscalers", f"{NAME}-server")
    cluster.server.store.remove("horizontalpodautoscalers", NAMESPACE, f"{NAME}-server")
    cluster.writes()
    cluster.server.revoked = {("list", "horizontalpodautoscalers")}
    await cluster.reconcile()
    assert cluster.writes() == {f"{PLURAL}/status"}
    assert cluster.conditions()["ScalingActive"] == "False/RightMissing"
    assert "may not list horizontalpodautoscalers.autoscaling" in cluster.message("RightsGranted")
    assert cluster.conditions()["Ready"] == "True/ServersAnswer"
    cluster.server.revoked = set()
    await cluster.reconcile()
    assert cluster.has("horizontalpodautoscalers", f"{NAME}-server")
