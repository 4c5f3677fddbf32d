"""Models from elsewhere: downloaded by Jobs into a claim that outlives the services, on simulated nodes."""

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.core import Cluster
from tandem.cli.cache import prune
from tandem.client.kubectl import ClusterError

from .conftest import AuditLog, Namespace, OperatorProcess, offer_volume, wait_for

CLAIM = "serving.tandem.dev/claim"

HUB: dict[str, Any] = {
    "target__model": {"uri": "hf://org/target", "revision": "main", "secretName": "hub"},
    "draft__model": {"uri": "hf://org/draft"},
}


def test_downloads_then_preflight_then_servers(operator: OperatorProcess, namespace: Namespace) -> None:
    offer_volume(namespace)
    namespace.apply(**HUB)
    namespace.wait("Ready", "True")
    assert namespace.conditions()["ModelsReady"] == "True/FilesFound"
    assert namespace.items("jobs") == [], "what they found is kept, they are not"
    results = [c["metadata"]["name"] for c in namespace.items("cm") if "-fetch-" in c["metadata"]["name"]]
    assert len(results) == 2
    (revision,) = [c for c in namespace.items("cm") if "launch.json" in c.get("data", {})]
    checks = json.loads(revision["data"]["launch.json"])["preflight"]
    assert checks["target"]["path"] == "/cache/models/0123456789abcdef"


def test_the_claim_outlives_its_services_and_is_shared(operator: OperatorProcess, namespace: Namespace) -> None:
    offer_volume(namespace)
    namespace.apply(**HUB)
    namespace.wait("Ready", "True")
    (claim,) = namespace.items("pvc")
    assert "ownerReferences" not in claim["metadata"]
    namespace.run("delete", "sis", "svc")
    wait_for("all children to go", lambda: not namespace.children() and not namespace.server_pods())
    namespace.apply(**HUB)
    namespace.wait("Ready", "True")
    (again,) = namespace.items("pvc")
    assert again["metadata"]["uid"] == claim["metadata"]["uid"]


def fetched_names(audit: AuditLog, namespace: Namespace) -> set[str]:
    """Downloads that were begun."""
    begun = [write.split("/")[-1] for write in audit.operator_writes(namespace) if write.startswith("patch jobs/")]
    return {name for name in begun if "-fetch-" in name}


def made_for(namespace: Namespace) -> set[str]:
    """UIDs of the claims that the results are of."""
    labels = [c["metadata"]["labels"] for c in namespace.items("cm", "app.kubernetes.io/managed-by=tandem")]
    return {found[CLAIM] for found in labels if CLAIM in found}


def test_a_claim_that_is_made_anew_is_filled_again(
    operator: OperatorProcess, namespace: Namespace, audit: Callable[[], AuditLog]
) -> None:
    offer_volume(namespace)
    namespace.apply(**HUB)
    namespace.wait_settled()
    revision = namespace.get("sis", "svc")["status"]["currentRevision"]
    (before,) = namespace.items("pvc")
    assert made_for(namespace) == {before["metadata"]["uid"]}
    listening = audit()
    namespace.run("delete", "pvc", "tandem-cache", "--wait=false")
    namespace.run("scale", "sis", "svc", "--replicas=0")

    def anew() -> bool:
        return any(claim["metadata"]["uid"] != before["metadata"]["uid"] for claim in namespace.items("pvc"))

    wait_for("another claim", anew)
    namespace.wait("ModelsReady", "False/CacheReplaced")
    namespace.run("scale", "sis", "svc", "--replicas=1")
    namespace.wait("Ready", "False/CacheReplaced")
    offer_volume(namespace)
    namespace.wait("Ready", "True")
    (after,) = namespace.items("pvc")
    assert len(fetched_names(listening, namespace)) == 2
    assert made_for(namespace) == {after["metadata"]["uid"]}
    assert namespace.get("sis", "svc")["status"]["currentRevision"] == revision
    wait_for("no Job to be left", lambda: namespace.items("jobs") == [])


def test_what_a_server_misses_is_fetched_again(
    operator: OperatorProcess, namespace: Namespace, audit: Callable[[], AuditLog]
) -> None:
    offer_volume(namespace)
    namespace.apply(**HUB)
    namespace.wait_settled()
    ((pod, uid),) = namespace.server_pods().items()
    time.sleep(1)  # a second later than the results
    listening = audit()
    ended = {
        "exitCode": 1,
        "message": "cannot serve: /cache/models/0123456789abcdef is gone from the cache volume",
        "startedAt": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "finishedAt": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    container = {"name": "triton", "ready": False, "image": "i", "imageID": "i", "restartCount": 1}
    crashed = {**container, "lastState": {"terminated": ended}, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    patch = {"status": {"containerStatuses": [crashed], "conditions": [{"type": "Ready", "status": "False"}]}}
    namespace.run("patch", "pod", pod, "--subresource=status", "--type=strategic", "-p", json.dumps(patch))
    wait_for("both downloads, whose folder is one here", lambda: len(fetched_names(listening, namespace)) == 2)
    wait_for("the new results", lambda: namespace.items("jobs") == [])
    namespace.wait("ModelsReady", "True")
    assert namespace.server_pods() == {pod: uid}, "it is started again by its kubelet alone"
    labels = [c["metadata"]["labels"] for c in namespace.items("cm", "app.kubernetes.io/managed-by=tandem")]
    assert sum("serving.tandem.dev/refill" in each for each in labels) == 2


def test_a_claim_of_somebodys_own_is_not_used_for_its_name(operator: OperatorProcess, namespace: Namespace) -> None:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "tandem-cache"}, "spec": spec}
    namespace.run("apply", "-f", "-", stdin=json.dumps(claim))
    namespace.apply(**HUB)
    namespace.wait("SpecAccepted", "False/CacheNotManagedByTandem")
    assert "tandem-cache" in namespace.message("SpecAccepted")
    assert namespace.items("jobs") == []


@pytest.mark.parametrize("verbs", ["", "get,list,create", "get,list,create,delete"])
async def test_who_prunes_is_who_kubectl_is(
    cluster: Cluster, namespace: Namespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verbs: str
) -> None:
    """A kubeconfig whose user acts as another one, who may not prune, may, and may remove the Job, too."""
    user = f"somebody-{namespace.name}"
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    for entry in config["users"]:
        entry["user"]["as"] = user
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    (tmp_path / "kubectl").symlink_to(cluster.kubectl.binary)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    offer_volume(namespace, "mine")
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "mine"}, "spec": spec}
    namespace.run("apply", "-f", "-", stdin=json.dumps(claim))
    if not verbs:
        with pytest.raises(ClusterError, match=user):
            await prune(namespace.name, "mine", "fetcher:1", young=0, dry_run=True)
        assert namespace.items("jobs") == []
        return
    namespace.run("create", "role", "prune", f"--verb={verbs}", f"--resource={PRUNES}")
    namespace.run("create", "rolebinding", "prune", "--role=prune", f"--user={user}")
    found = await prune(namespace.name, "mine", "fetcher:1", young=0, dry_run=True)
    assert found["checks"], "a simulated pod says what all others say"
    assert (namespace.items("jobs") == []) is ("delete" in verbs)


PRUNES = "persistentvolumeclaims,configmaps,pods,jobs.batch,speculativeinferenceservices.serving.tandem.dev"


def test_without_a_volume_the_user_is_told_what_waits(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply(**HUB)
    namespace.wait("ModelsReady", "Unknown/FetchRunning")
    wait_for(
        "the scheduler's reason in the condition",
        lambda: "PersistentVolumeClaim" in namespace.message("ModelsReady"),
    )


def test_a_claim_of_one_node_is_refused_for_two_replicas(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply(**HUB, storage={"cache": {"accessModes": ["ReadWriteOnce"]}}, replicas=2)
    namespace.wait("SpecAccepted", "False/CacheNotShareable")
    assert namespace.items("pvc") == []
