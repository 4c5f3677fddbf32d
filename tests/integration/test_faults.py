"""Faults from the first day: the operator killed, doubled, cut off from its API server, its watches ended."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.core import Cluster

from .conftest import REPOSITORY, AuditLog, Namespace, OperatorProcess, wait_for

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
    namespace.wait("Ready", "True", 40)
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
    namespace.wait("Ready", "True")
    pods = namespace.server_pods()
    time.sleep(1)
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
    namespace.run("delete", "sis", "svc", "--timeout=20s")
    wait_for("all children to go", lambda: not namespace.children() and not namespace.server_pods())


def test_two_operators_one_writes_and_the_other_takes_over(
    operator: OperatorProcess, cluster: Cluster, namespace: Namespace, tmp_path: Path
) -> None:
    second = OperatorProcess(cluster, tmp_path).start("operator-1").wait_ready()
    try:
        assert operator.probe("/readyz")[1].strip() == "ok: leader"
        assert second.probe("/readyz")[1].strip() == "ok: standby"
        operator.kill()
        namespace.apply()
        namespace.wait("Ready", "True", 40)
        assert second.probe("/readyz")[1].strip() == "ok: leader"
    finally:
        second.stop()


def test_a_clean_stop_hands_over_at_once(operator: OperatorProcess, cluster: Cluster, tmp_path: Path) -> None:
    assert operator.stop() == 0
    second = OperatorProcess(cluster, tmp_path).start("operator-1")
    try:
        wait_for("the Lease", lambda: "leader" in second.probe("/readyz")[1], 10, second.log)
        wait_for("leadership in the log", lambda: "holds the Lease" in second.log.read_text(), 1)
    finally:
        second.stop()


def test_a_crd_that_goes_and_comes_back(operator: OperatorProcess, cluster: Cluster, namespace: Namespace) -> None:
    """The watch of a kind that is gone answers 404, which ends kopf for good: it is started again."""
    namespace.apply()
    namespace.wait("Ready", "True")
    pid = operator.usage.pid
    crd = "crd/speculativeinferenceservices.serving.tandem.dev"
    cluster.kubectl.run("delete", crd)
    wait_for("the truth", lambda: operator.probe("/readyz")[0] == 503, 20, operator.log)
    cluster.kubectl.run("apply", "-f", str(REPOSITORY / "crds"))
    cluster.kubectl.run("wait", "--for=condition=Established", crd, "--timeout=30s")
    operator.wait_ready(40)
    namespace.apply()
    namespace.wait("Ready", "True", 60)
    assert operator.usage.pid == pid
