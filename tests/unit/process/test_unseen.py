"""Whatever ends a reconcile early is in the status: nothing stays Ready because nobody could look, or act.

The ways out of `Reconciler.reconcile` are: the service is gone; its spec is not understood; what decides may not be
read (test_rights.py); something raises, at any request or in any computation; and the end.
"""

import itertools
from typing import Any

import pytest
from aiohttp import web

from bench.scale.__main__ import NAME, NAMESPACE, SERVICE
from support.api_server import KEY, Cluster
from tandem.api import PLURAL
from tandem.api.conditions import ConditionType
from tandem.process.reconcile import LASTING_FAILURES, Next

SERVER, ENDPOINT = f"{NAME}-server", f"{NAME}-triton"
NEWER: list[tuple[str, dict[str, Any]]] = [
    ("spec.speculation.decodingType", {"speculation": {"decodingType": "Newest"}}),
    ("spec.runtime.mode", {"runtime": {"mode": "Fast", "profile": "reference"}}),
    ("spec.rollout.strategy", {"rollout": {"strategy": "Canary"}}),
    ("spec.target", {"target": "hf://a/b"}),
]
"""What a newer definition may take, by where it is."""


def status(cluster: Cluster) -> dict[str, Any]:
    found = cluster.server.store.get(PLURAL, *KEY)
    assert found
    return dict(found["status"], generation=found["metadata"]["generation"])


def events(cluster: Cluster) -> list[str]:
    """Reasons of the Events."""
    store = cluster.server.store
    found = [store.get(plural, NAMESPACE, one.name) for plural, one in store.all() if plural == "events"]
    return [event["reason"] for event in found if event]


@pytest.mark.parametrize(("where", "spec"), NEWER, ids=[row[0] for row in NEWER])
async def test_a_spec_that_is_not_understood_is_a_condition(
    cluster: Cluster, where: str, spec: dict[str, Any]
) -> None:
    await cluster.bring_up()
    before = cluster.others()
    cluster.edit(**spec)
    assert await cluster.reconcile() is Next.UPGRADED
    assert (cluster.writes(), cluster.others()) == ({f"{PLURAL}/status"}, before), "what runs is left alone"
    for kind in ("Ready", "SpecAccepted"):
        assert cluster.conditions()[kind] == "False/SpecNotUnderstood"
    assert cluster.conditions()["Stalled"] == "True/SpecNotUnderstood"
    assert cluster.conditions()["Available"] == "True/ServersAnswer"
    assert cluster.message("SpecAccepted").startswith(f"{where}: Input should be")
    assert ": upgrade the operator, or write what it knows; meanwhile revision " in cluster.message("SpecAccepted")
    shown = status(cluster)
    assert (shown["observedGeneration"], shown["readyReplicas"]) == (shown["generation"], 1)
    await cluster.reconcile()
    assert cluster.writes() == set()
    assert (events(cluster).count("SpecNotUnderstood"), events(cluster).count("NotReady")) == (1, 1)


async def test_a_new_service_that_is_not_understood_is_a_condition(cluster: Cluster) -> None:
    spec = {**SERVICE["spec"], "speculation": {"decodingType": "Newest"}}
    cluster.server.store.put(PLURAL, {**SERVICE, "metadata": dict(SERVICE["metadata"]), "spec": spec})
    assert await cluster.reconcile() is Next.UPGRADED
    assert cluster.writes() == {f"{PLURAL}/status"}
    assert cluster.conditions()["Ready"] == "False/SpecNotUnderstood"
    assert cluster.message("Ready").endswith("meanwhile no server is started")
    assert cluster.conditions()["Available"] == "False/NoServers"


@pytest.mark.parametrize(
    "spec", [{"speculation": {"decodingType": "Newest"}}, {"runtime": {"mode": "BLS", "profile": "no"}}]
)
async def test_what_is_lost_of_what_served_comes_back(cluster: Cluster, spec: dict[str, Any]) -> None:
    """Also of a spec that is refused: what runs is what was accepted last."""
    await cluster.bring_up()
    store = cluster.server.store
    served = store.get("deployments", NAMESPACE, SERVER)
    assert served
    cluster.edit(**spec)
    await cluster.reconcile()
    lost = [
        ("deployments", SERVER),
        ("services", ENDPOINT),
        ("serviceaccounts", SERVER),
        ("poddisruptionbudgets", SERVER),
    ]
    for plural, name in (*lost, ("pods", f"{SERVER}-0")):
        store.remove(plural, NAMESPACE, name)
    await cluster.reconcile()
    assert [child for child in lost if not cluster.has(*child)] == []
    again = store.get("deployments", NAMESPACE, SERVER)
    assert again and again["spec"] == served["spec"]
    await cluster.reconcile()
    assert status(cluster)["readyReplicas"] == 1
    assert cluster.conditions()["Ready"].startswith("False/")


async def test_servers_of_which_nothing_is_known_are_not_made_again_and_it_says_so(cluster: Cluster) -> None:
    await cluster.bring_up()
    cluster.edit(speculation={"decodingType": "Newest"})
    store = cluster.server.store
    for one in store.listed("configmaps", NAMESPACE, NAME):
        store.remove("configmaps", NAMESPACE, one.name)
    for plural, name in (("deployments", SERVER), ("pods", f"{SERVER}-0")):
        store.remove(plural, NAMESPACE, name)
    await cluster.reconcile()
    assert not cluster.has("deployments", SERVER)
    assert "has no ConfigMap that this operator can read, so that lost servers are not" in cluster.message("Ready")
    assert (status(cluster)["readyReplicas"], cluster.conditions()["Available"]) == (0, "False/NoServers")


async def test_its_servers_follow_its_replicas(cluster: Cluster) -> None:
    """An autoscaler goes on to write them."""
    await cluster.bring_up()
    cluster.edit(speculation={"decodingType": "Newest"}, replicas=3)
    await cluster.reconcile()
    await cluster.reconcile()
    assert status(cluster)["readyReplicas"] == 3


async def test_a_status_that_is_not_understood_keeps_no_edit_from_being_acted_on(cluster: Cluster) -> None:
    await cluster.bring_up()
    service = cluster.server.store.get(PLURAL, *KEY)
    assert service
    service["status"]["speculation"] = {"speedupSource": "Oracle", "observedAt": "2026-01-01T00:00:00Z"}
    cluster.server.store.put(PLURAL, service)
    cluster.edit(replicas=2)
    await cluster.reconcile()
    await cluster.reconcile()
    assert (status(cluster)["readyReplicas"], cluster.conditions()["Ready"]) == (2, "True/ServersAnswer")


def refuse(cluster: Cluster, path: str, code: int) -> None:
    """Requests whose path ends so are answered with that code, and with another number each time."""
    count = itertools.count()

    def answer(request: web.Request) -> web.Response | None:
        if not request.path.endswith(path):
            return None
        message = {"kind": "Status", "reason": "X", "message": f"no, for the {next(count)}. time"}
        return web.json_response(message, status=code)

    cluster.server.instead = answer


READ = ["/deployments", "/pods", "/configmaps", "/services", "/leaderworkersets"]


@pytest.mark.parametrize("path", READ)
async def test_what_cannot_be_read_for_good_is_a_condition(cluster: Cluster, path: str) -> None:
    await cluster.bring_up()
    refuse(cluster, path, 400)
    with pytest.raises(Exception, match="400"):
        await cluster.reconcile()
    assert cluster.conditions()["Ready"] == "Unknown/ReconcileFailed"
    assert cluster.conditions()["Stalled"] == "True/ReconcileFailed"
    assert "no, for the" in cluster.message("Ready")
    assert status(cluster)["observedGeneration"] == status(cluster)["generation"]
    cluster.writes()
    with pytest.raises(Exception, match="400"):
        await cluster.reconcile()
    assert cluster.writes() == set(), "that a number differs is no news"
    cluster.server.instead = lambda _: None
    await cluster.reconcile()
    assert cluster.conditions()["Ready"] == "True/ServersAnswer"
    assert "Stalled" not in cluster.conditions()


@pytest.mark.parametrize("path", [*READ, f"/{SERVER}"])
async def test_what_is_away_for_long_is_a_condition(cluster: Cluster, path: str) -> None:
    """A conversion webhook that is away answers like an API server that is. `/SERVER`: a write."""
    await cluster.bring_up()
    cluster.edit(replicas=2)
    refuse(cluster, path, 503)
    for _ in range(LASTING_FAILURES):
        assert cluster.conditions()["Ready"] == "True/ServersAnswer", "it may be well in a moment"
        with pytest.raises(Exception, match="503"):
            await cluster.reconcile()
    assert cluster.conditions()["Ready"] == "Unknown/ReconcileFailed"
    assert "Stalled" not in cluster.conditions(), "nobody need act"
    cluster.server.instead = lambda _: None
    await cluster.reconcile()
    await cluster.reconcile()
    assert cluster.conditions()["Ready"] == "True/ServersAnswer"


PARTS = ["decide", "plan", "autoscaling", "routing", "status", "benchmark", "is_there", "execute", "observe"]


@pytest.mark.parametrize("part", PARTS)
async def test_a_defect_is_a_condition(cluster: Cluster, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise KeyError("metadata")

    await cluster.bring_up()
    cluster.server.store.remove("services", NAMESPACE, ENDPOINT)
    monkeypatch.setattr(f"tandem.process.reconcile.{part}", fails)
    with pytest.raises(KeyError):
        await cluster.reconcile()
    assert cluster.conditions()["Ready"] == "Unknown/ReconcileFailed"
    assert "KeyError: 'metadata'" in cluster.message("Stalled")
    kinds = set(cluster.conditions())
    assert kinds >= {ConditionType.AVAILABLE, ConditionType.SPEC_ACCEPTED}, "those of before"


async def test_a_status_that_is_refused_is_a_condition(cluster: Cluster) -> None:
    """The definition of an older chart does not know a value that this operator writes."""
    await cluster.bring_up()
    cluster.edit(replicas=2)
    first = iter([True])

    def answer(request: web.Request) -> web.Response | None:
        if request.path.endswith("/status") and next(first, False):
            return web.json_response({"kind": "Status", "message": "no such value"}, status=422)
        return None

    cluster.server.instead = answer
    with pytest.raises(Exception, match="no such value"):
        await cluster.reconcile()
    assert cluster.conditions()["Ready"] == "Unknown/ReconcileFailed"
