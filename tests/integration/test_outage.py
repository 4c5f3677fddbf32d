"""The API server away: the operator says so, comes back by itself, and disturbs no pod."""

import time

from cluster.core import Cluster

from .conftest import AuditLog, Namespace, OperatorProcess, wait_for

OUTAGE_SECONDS = 80.0
"""Longer than whatever gives up: without a comparison for 60 s and three times RESYNC_SECONDS an operator whose API
server answers is restarted (`Health.broken`), and no pause between two tries is above 60 s."""


def test_the_api_server_away_for_longer_than_any_time_out(
    operator: OperatorProcess, cluster: Cluster, namespace: Namespace
) -> None:
    namespace.apply()
    namespace.wait("Ready", "True")
    pods, pid = namespace.server_pods(), operator.usage.pid
    cluster.stop("kube-apiserver")
    try:
        wait_for("the truth", lambda: operator.probe("/readyz")[0] == 503, log=operator.log)
        assert operator.probe("/healthz")[0] == 200, "a restart would not bring the API server back"
        time.sleep(OUTAGE_SECONDS)
        assert operator.probe("/readyz")[0] == 503
        assert "has not answered for" in operator.probe("/readyz")[1]
        assert operator.probe("/healthz")[0] == 200
    finally:
        cluster.start("kube-apiserver")
    operator.wait_ready()
    assert namespace.server_pods() == pods
    namespace.run("delete", "service", "svc-triton")
    wait_for("repair after the outage", lambda: namespace.get("service", "svc-triton"))
    audit = AuditLog(cluster.audit_log)
    namespace.apply(speculation__maxDraftLen=3)
    # By the log: the Job itself is there for a moment only.
    wait_for("the new revision's preflight", lambda: preflights(audit, namespace), log=operator.log)
    # Kubernetes' own controllers come back from an outage more slowly than the operator.
    wait_for("Ready=True", lambda: ready(namespace), 180, log=operator.log)
    assert operator.usage.pid == pid


def ready(namespace: Namespace) -> bool:
    """Whether the service is Ready. Of a node that it has not heard of for a while the node controller takes the
    pods' readiness; a kubelet gives it back, a simulated node does not: such a pod is made anew."""
    for pod in namespace.items("pods"):
        status = pod["status"]
        taken = any(c["type"] == "Ready" and c["status"] == "False" for c in status.get("conditions", []))
        if taken and all(c["ready"] for c in status.get("containerStatuses") or [{"ready": False}]):
            namespace.run("delete", "pod", pod["metadata"]["name"], "--wait=false", "--ignore-not-found")
    return namespace.conditions().get("Ready", "").startswith("True")


def preflights(audit: AuditLog, namespace: Namespace) -> list[str]:
    return [write for write in audit.operator_writes(namespace) if write.startswith("patch jobs//svc-preflight-")]
