"""Faults from the first day: the operator killed, doubled, cut off from its API server, its watches ended."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.core import Cluster

from .conftest import REPOSITORY, AuditLog, Namespace, OperatorProcess, wait_established, wait_for

Audit = Callable[[], AuditLog]


def pods_created(listening: AuditLog, namespace: Namespace) -> int:
    """Server pods that the ReplicaSet controller made."""
    return sum(
        entry["verb"] == "create"
        and entry.get("objectRef", {}).get("resource") == "pods"
        and entry["objectRef"].get("namespace") == namespace.name
        and "replicaset" in entry["user"]["username"]
        and entry["stage"] == "ResponseComplete"
        and entry["responseStatus"]["code"] == 201
        for entry in listening.entries()
    )


# A bring-up takes about two seconds: these fall before, between and after its writes.
MOMENTS = [0.0, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 2.0]


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_any_moment_it_comes_to_the_same_end(
    operator: OperatorProcess, namespace: Namespace, audit: Audit, moment: float
) -> None:
    listening = audit()
    namespace.apply()
    time.sleep(moment)
    operator.kill()
    operator.start()
    namespace.wait("Ready", "True")
    assert {name.split("/")[1].rsplit("-", 1)[0] for name in namespace.children() if "ConfigMap" in name} == {
        "svc",
        "svc-preflight",
    }
    assert {name for name in namespace.children() if "ConfigMap" not in name} == {
        "Deployment/svc-server",
        "PodDisruptionBudget/svc-server",
        "Service/svc-triton",
        "ServiceAccount/svc-server",
    }
    assert pods_created(listening, namespace) == len(namespace.server_pods()) == 1


def test_killed_when_all_is_well_nothing_is_written(
    operator: OperatorProcess, namespace: Namespace, audit: Audit
) -> None:
    namespace.apply()
    namespace.wait_settled()
    pods = namespace.server_pods()
    listening = audit()
    operator.kill()
    operator.start().wait_ready()
    time.sleep(3)
    assert listening.operator_writes(namespace) == []
    assert namespace.server_pods() == pods


def test_edits_made_while_it_was_away_are_found(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply()
    namespace.wait("Ready", "True")
    operator.kill()
    namespace.run("delete", "service", "svc-triton")
    namespace.apply(speculation__maxDraftLen=2)
    operator.start()
    namespace.wait("Ready", "True")
    assert namespace.get("service", "svc-triton")


def test_a_service_deleted_while_it_was_away_leaves_nothing(operator: OperatorProcess, namespace: Namespace) -> None:
    """No finalizer: deletion needs no operator."""
    namespace.apply()
    namespace.wait("Ready", "True")
    operator.kill()
    namespace.run("delete", "sis", "svc", "--timeout=90s")
    wait_for("all children to go", lambda: not namespace.children() and not namespace.server_pods())


def test_two_operators_one_writes_and_the_other_takes_over(
    operator: OperatorProcess, cluster: Cluster, namespace: Namespace, tmp_path: Path
) -> None:
    second = OperatorProcess(cluster, tmp_path).start("operator-1").wait_ready()

    def told_apart() -> list[OperatorProcess] | None:
        said = {says(each): each for each in (operator, second)}
        return [said[word] for word in sorted(said)] if said.keys() == {"ok: leader", "ok: standby"} else None

    try:
        # Whichever leads: where the machine stands still for as long as the Lease lasts, the other may take it.
        leader, standby = wait_for("one leader and one that stands by", told_apart, log=second.log)
        leader.kill()
        namespace.apply()
        namespace.wait("Ready", "True")
        wait_for("the other to lead", lambda: says(standby) == "ok: leader", log=standby.log)
    finally:
        second.stop()


def says(operator: OperatorProcess) -> str:
    """What an operator says of itself when it is ready."""
    return operator.probe("/readyz")[1].strip()


def test_a_clean_stop_hands_over_at_once(operator: OperatorProcess, cluster: Cluster, tmp_path: Path) -> None:
    wait_for("it to lead", lambda: says(operator) == "ok: leader", log=operator.log)
    assert operator.stop() == 0
    lease = cluster.reader.get("lease", "tandem-operator")
    assert lease is not None
    assert not lease["spec"].get("holderIdentity"), "it is given back: nobody need wait until it expires"
    second = OperatorProcess(cluster, tmp_path).start("operator-1")
    try:
        wait_for("the Lease", lambda: says(second) == "ok: leader", log=second.log)
        wait_for("leadership in the log", lambda: "holds the Lease" in second.log.read_text())
    finally:
        second.stop()


def test_a_crd_that_goes_and_comes_back(operator: OperatorProcess, cluster: Cluster, namespace: Namespace) -> None:
    """The watch of a kind that is gone answers 404, which ends kopf for good: it is started again."""
    namespace.apply()
    namespace.wait("Ready", "True")
    pid = operator.usage.pid
    crd = "speculativeinferenceservices.serving.tandem.dev"
    cluster.kubectl.run("delete", "crd", crd)
    wait_for("the truth", lambda: operator.probe("/readyz")[0] == 503, log=operator.log)
    cluster.kubectl.run("apply", "-f", str(REPOSITORY / "crds"))
    wait_established(cluster, crd)
    operator.wait_ready()
    namespace.apply()
    namespace.wait("Ready", "True")
    assert operator.usage.pid == pid
