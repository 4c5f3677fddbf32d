"""Rollouts that come to nothing, on the real API server and its Deployment controller."""

from typing import Any

from .conftest import Namespace, OperatorProcess, wait_for
from .groups import SEVERAL_NODES

REPLACE: dict[str, Any] = {"rollout": {"strategy": "Replace", "progressDeadlineSeconds": 5}}
NEVER_SCHEDULED: dict[str, Any] = {
    "podTemplate": {"spec": {"containers": [{"name": "triton", "resources": {"requests": {"cpu": "9000"}}}]}}
}


def test_replace_goes_back_when_the_new_servers_do_not_come(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply(**REPLACE)
    namespace.wait("Ready", "True")
    assert "downtime until the new ones answer" in namespace.message("SpecAccepted")
    first = namespace.get("sis", "svc")["status"]["currentRevision"]
    (before,) = namespace.server_pods()

    namespace.apply(**REPLACE, **NEVER_SCHEDULED)
    wait_for("the old server to stop", lambda: before not in namespace.server_pods(), log=operator.log)
    namespace.wait("Stalled", "True/RolledBack")
    namespace.wait("Available", "True")
    status = namespace.get("sis", "svc")["status"]
    assert status["currentRevision"] == first
    assert status["failedRevision"] == status["updateRevision"] != first

    namespace.apply(**REPLACE)
    namespace.wait("Ready", "True")
    assert "failedRevision" not in namespace.get("sis", "svc")["status"]


def test_a_group_that_does_not_come_is_stalled(operator: OperatorProcess, namespace: Namespace) -> None:
    """LeaderWorkerSet's controller is not here: nobody makes its pods."""
    namespace.apply(SEVERAL_NODES, rollout={"progressDeadlineSeconds": 5})
    namespace.wait("Stalled", "True/ProgressDeadlineExceeded")
    assert "0 of 1 servers of this revision answer" in namespace.message("Stalled")
