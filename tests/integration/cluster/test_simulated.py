"""A cluster with simulated nodes: everything but containers is real. Needs no root."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster import Cluster, ClusterError, NodeSpec
from cluster.processes import start_of, wait_until
from integration.cluster.conftest import NewCluster

pytestmark = pytest.mark.nightly

TESTS = Path(__file__).parents[2]
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: thing}
spec:
  replicas: 3
  selector: {matchLabels: {app: thing}}
  template:
    metadata: {labels: {app: thing}}
    spec: {containers: [{name: c, image: example.com/thing, resources: {limits: {nvidia.com/gpu: 4}}}]}
"""


@pytest.fixture(scope="module")
def cluster(new_cluster: NewCluster) -> Cluster:
    made = new_cluster()
    gpu = NodeSpec("simulated", 2, {"nvidia.com/gpu": "8"}, {"nvidia.com/gpu.product": "NVIDIA-H200"})
    made.up([gpu])
    return made


def test_nodes_are_as_asked(cluster: Cluster) -> None:
    nodes = cluster.kubectl.get("nodes", "-l", "nvidia.com/gpu.product=NVIDIA-H200")["items"]
    assert [node["status"]["allocatable"]["nvidia.com/gpu"] for node in nodes] == ["8", "8"]


def test_pods_are_scheduled_by_what_nodes_have(cluster: Cluster) -> None:
    cluster.kubectl.run("apply", "-f", "-", stdin=DEPLOYMENT)
    cluster.kubectl.run("rollout", "status", "deployment/thing", "--timeout=180s")
    pods = cluster.kubectl.get("pods", "-l", "app=thing")["items"]
    nodes = [pod["spec"]["nodeName"] for pod in pods]
    assert max(map(nodes.count, nodes)) == 2, "4 GPUs each: no more than two on a node with 8"


@pytest.mark.parametrize("word", ["deployments", "deployment", "deploy", "rs", "ns"])
def test_the_reader_reads_what_kubectl_reads(cluster: Cluster, word: str) -> None:
    def read() -> list[Any]:
        labelled = cluster.reader.items(word, selector="app=thing")
        return [cluster.reader.items(word), labelled, [cluster.reader.get(word, name_of(each)) for each in labelled]]

    def shown() -> list[Any]:
        labelled = cluster.kubectl.get(word, "-l", "app=thing")["items"]
        return [cluster.kubectl.get(word)["items"], labelled, labelled]

    assert_alike(read, shown)


def name_of(found: dict[str, Any]) -> str:
    return str(found["metadata"]["name"])


def assert_alike(read: Callable[[], Any], shown: Callable[[], Any]) -> None:
    """What is shown is what is read before and after: controllers may write in between."""
    for _ in range(20):
        before, between, after = read(), shown(), read()
        if before == after:
            break
    assert between == before


def test_the_reader_tells_what_is_not_there(cluster: Cluster) -> None:
    assert cluster.reader.get("deployment", "no-such-thing") is None
    assert cluster.reader.items("deployment", namespace="no-such-namespace") == []
    with pytest.raises(ClusterError, match="'gateways': install its definition"):
        cluster.reader.items("gateways")


def test_up_again_changes_nothing(cluster: Cluster) -> None:
    before = cluster.status()
    cluster.up(["simulated:2"])
    assert cluster.status() == before
    assert None not in before.values()


def test_more_nodes_can_be_added(cluster: Cluster) -> None:
    cluster.up(["simulated:3"])
    assert len(cluster.kubectl.get("nodes")["items"]) == 3


@pytest.mark.parametrize("program", ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"])
def test_up_repairs_what_was_killed(cluster: Cluster, program: str) -> None:
    cluster.kubectl.run("create", "configmap", f"before-{program}")
    pid = cluster.status()[program]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: cluster.status()[program] is None, 60)
    cluster.up()
    assert None not in cluster.status().values()
    cluster.kubectl.run("get", "configmap", f"before-{program}")


def test_the_api_server_stops_and_starts_alone(cluster: Cluster) -> None:
    others = {name: pid for name, pid in cluster.status().items() if name in {"etcd", "kwok"}}
    config = cluster.kubeconfig.read_text()
    cluster.stop("kube-apiserver")
    for read in (cluster.kubectl.get, cluster.reader.items):
        with pytest.raises(ClusterError, match="refused"):
            read("nodes")
    cluster.start("kube-apiserver")
    assert_alike(
        lambda: cluster.reader.get("deployment", "thing"), lambda: cluster.kubectl.get("deployment", "thing")
    )
    assert cluster.kubeconfig.read_text() == config
    assert others.items() <= cluster.status().items()


def test_an_unknown_program_is_refused_with_those_there_are(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="kube-scheduler"):
        cluster.stop("kubelet")


def test_the_audit_log_has_every_request_with_its_user(cluster: Cluster) -> None:
    cluster.kubectl.run("create", "configmap", "audited")

    def writes() -> list[str]:
        lines = cluster.audit_log.read_text().splitlines(keepends=True)
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        creates = [event for event in events if event["verb"] == "create" and "objectRef" in event]
        return [e["user"]["username"] for e in creates if e["objectRef"].get("name") == "audited"]

    assert wait_until(lambda: writes() == ["kubernetes-admin"], 60)


def test_an_image_has_nowhere_to_go(cluster: Cluster, probe_image: Path) -> None:
    with pytest.raises(ClusterError, match="no real node"):
        cluster.import_image(probe_image)


def test_it_needs_no_root(new_cluster: NewCluster) -> None:
    cluster = new_cluster()  # this object stays root's, to look and clean up
    as_user = ("unshare", "--user", "--map-user=1000", "--map-group=1000", sys.executable, "-m", "cluster")
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*as_user, *arguments, "--name", cluster.name]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)

    up = run("up", "--nodes", "simulated")
    assert up.returncode == 0, up.stderr
    assert f"export KUBECONFIG={cluster.kubeconfig}" in up.stderr
    real = run("up", "--nodes", "real")
    assert real.returncode != 0
    assert "it needs root" in real.stderr
    assert "Traceback" not in real.stderr
    assert run("down").returncode == 0
    assert not cluster.folder.exists()


def test_a_killed_up_leaves_nothing_that_down_does_not_remove(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    command = [sys.executable, "-m", "cluster", "up", "--nodes", "simulated", "--name", cluster.name]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(TESTS)}) as up:
        try:
            assert wait_until(lambda: bool(cluster.status().get("kube-apiserver")), 180)
        finally:
            up.kill()
    pids = [pid for pid in cluster.status().values() if pid]
    cluster.down()
    cluster.down()
    assert not cluster.folder.exists()
    assert not any(start_of(pid) for pid in pids)
