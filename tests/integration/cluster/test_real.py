"""A cluster with a real node: pods are containers, Services answer, names resolve. Needs root."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cluster import Cluster, NodeSpec, cgroups, state
from cluster.addresses import Addresses
from cluster.processes import wait_until
from cluster.shell import attempt, call
from integration.cluster.conftest import NewCluster, fetch

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("real_nodes_can_run")]
TESTS = Path(__file__).parents[2]
USUAL_PLACES = (
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/var/lib/kube-proxy",
    "/run/containerd",
    "/usr/libexec/kubernetes",
)
PROBE = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: probe}
spec:
  selector: {matchLabels: {app: probe}}
  template:
    metadata: {labels: {app: probe}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: probe
        image: localhost/tandem/probe:v0
        imagePullPolicy: Never
        readinessProbe: {httpGet: {port: 8080, path: /}, periodSeconds: 1}
        resources: {limits: {nvidia.com/gpu: 1, memory: 64Mi}}
---
apiVersion: v1
kind: Service
metadata: {name: probe}
spec: {selector: {app: probe}, ports: [{port: 80, targetPort: 8080}]}
"""


@pytest.fixture(scope="module")
def cluster(new_cluster: NewCluster, probe_image: Path) -> Cluster:
    made = new_cluster()
    made.up([NodeSpec("real", 1, {"nvidia.com/gpu": "2"}, {"nvidia.com/gpu.product": "NVIDIA-H200"})])
    made.import_image(probe_image)
    made.kubectl.run("apply", "-f", "-", stdin=PROBE)
    made.kubectl.run("rollout", "status", "deployment/probe", "--timeout=180s")
    return made


@pytest.fixture(scope="module")
def service(cluster: Cluster) -> str:
    """URL of the probe's ClusterIP."""
    return "http://" + cluster.kubectl.run("get", "service", "probe", "-o", "jsonpath={.spec.clusterIP}")


FETCHES = [
    pytest.param("/", "ok", id="the host reaches a ClusterIP"),
    pytest.param("/lookup?name=kubernetes.default.svc.cluster.local", "API", id="pods resolve the cluster's names"),
    pytest.param("/lookup?name=kubernetes.default", "API", id="short names too, by the search path"),
    pytest.param("/dial?address=kubernetes.default:443", "ok", id="pods reach the API server"),
    pytest.param("/dial?address=probe:80", "ok", id="a pod reaches itself by its Service"),
]


@pytest.mark.parametrize(("path", "expected"), FETCHES)
def test_network(cluster: Cluster, service: str, path: str, expected: str) -> None:
    api = cluster.kubectl.run("get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")
    assert fetch(service + path) == (api if expected == "API" else expected)


def test_pods_answer_the_host_directly(cluster: Cluster) -> None:
    address = cluster.kubectl.run("get", "pod", "-l", "app=probe", "-o", "jsonpath={.items[0].status.podIP}")
    assert fetch(f"http://{address}:8080/") == "ok"


def test_kubectl_reaches_the_kubelet(cluster: Cluster) -> None:
    cluster.kubectl.run("logs", "deployment/probe")
    with pytest.raises(Exception, match="executable file not found"):
        cluster.kubectl.run("exec", "deployment/probe", "--", "no-such-program")


def test_capacity_and_labels_are_claimed(cluster: Cluster) -> None:
    node = cluster.kubectl.get("node", "node-0")
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "2"
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-H200"


def test_an_image_that_is_there_is_not_loaded_again(cluster: Cluster, probe_image: Path) -> None:
    said: list[str] = []
    again = Cluster(cluster.name, said.append)
    again.import_image(probe_image)
    assert said == []


def test_a_deleted_pod_leaves_nothing_running(cluster: Cluster) -> None:
    pod = cluster.kubectl.get("pods", "-l", "app=probe")["items"][0]["metadata"]
    cluster.kubectl.run("delete", "pod", pod["name"], "--timeout=120s")
    cluster.kubectl.run("rollout", "status", "deployment/probe", "--timeout=180s")
    groups = os.walk("/sys/fs/cgroup")  # which go meanwhile
    left = [Path(at, name) for at, names, _ in groups for name in names if name == f"pod{pod['uid']}"]
    assert wait_until(lambda: not any(path.exists() for path in left), 120)


VICTIMS = [
    pytest.param("node-0", id="the whole node"),
    pytest.param("node-0-containerd", id="containerd"),
    pytest.param("node-0-kubelet", id="the kubelet"),
    pytest.param("node-0-kube-proxy", id="kube-proxy"),
    pytest.param("node-0-coredns", id="DNS"),
]


@pytest.mark.parametrize("program", VICTIMS)
def test_up_repairs_a_node(cluster: Cluster, service: str, program: str) -> None:
    pid = cluster.status()[program]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: cluster.status()[program] is None, 60)
    cluster.up()
    assert None not in cluster.status().values()
    assert fetch(f"{service}/lookup?name=probe", seconds=60)


def test_two_clusters_do_not_meet(cluster: Cluster, service: str, new_cluster: NewCluster) -> None:
    other = new_cluster()
    other.up(["real:2", "simulated:1"])
    assert len(other.kubectl.get("nodes")["items"]) == 3
    assert fetch(service + "/") == "ok", "the other cluster's kube-proxy must not touch this one's rules"
    # The API server listens on all addresses for its own node; from elsewhere it must not answer.
    pid = psutil.Process(other.status()["node-0"]).children()[0].pid
    ports = {made: _addresses(made).apiserver_port for made in (cluster, other)}
    for made, reachable in ((other, True), (cluster, False)):
        target = (str(_addresses(made).host), ports[made])
        # What is let through answers at once, unless the machine stands still; what is dropped never does.
        script = f"import socket; socket.create_connection({target!r}, timeout={30 if reachable else 2})"
        done = attempt(("nsenter", "-t", str(pid), "-n", sys.executable, "-c", script))
        assert (done.returncode == 0) == reachable, done.stderr
    other.down()
    assert fetch(service + "/") == "ok"


def _addresses(cluster: Cluster) -> Addresses:
    known = state.load(cluster.folder)
    assert known is not None
    return known.addresses


def host() -> dict[str, str]:
    """What a cluster could leave behind on the host, without what other clusters on it do meanwhile."""
    # Other clusters come and go while this runs: their lines carry their bridge or their /16.
    others = re.compile(r"tandem\d+|10\.1[6-9]\d\.|10\.2[0-2]\d\.")
    commands = {
        "links": ("ip", "-brief", "link"),
        "addresses": ("ip", "-brief", "-4", "address"),
        "routes": ("ip", "-4", "route", "show", "table", "all"),
        # Without its comments, which tell the time, and its counts.
        "iptables": ("sh", "-c", "iptables-save | sed -e '/^#/d' -e 's/[[][0-9]*:[0-9]*[]]//'"),
        "sysctls": (
            "sh",
            "-c",
            "cat /proc/sys/net/ipv4/ip_forward /proc/sys/vm/overcommit_memory /proc/sys/kernel/panic",
        ),
        "netns": ("ip", "netns", "list"),
        "kubelet's places": (
            "sh",
            "-c",
            "ls -d /var/lib/kubelet /var/lib/cni /run/containerd /usr/libexec/kubernetes || :",
        ),
    }
    outputs = {what: call(*command) for what, command in commands.items()}
    outputs["places"] = "\n".join(place for place in USUAL_PLACES if Path(place).exists())
    return {what: "\n".join(x for x in text.splitlines() if not others.search(x)) for what, text in outputs.items()}


@pytest.mark.parametrize("killed", [False, True], ids=["up that ended", "up killed half-way"])
def test_down_leaves_the_host_as_it_was(new_cluster: NewCluster, killed: bool) -> None:
    cluster = new_cluster()
    before = host()
    command = [sys.executable, "-m", "cluster", "up", "--nodes", "real", "--name", cluster.name]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(TESTS)}) as up:
        try:
            if killed:
                assert wait_until(lambda: bool(cluster.status().get("node-0-containerd")), 180)
            else:
                assert up.wait(300) == 0
        finally:
            up.kill()
    at, running = _addresses(cluster), set(psutil.pids())
    cluster.down()
    assert host() == before
    assert leftovers(cluster, at, running) == {}


def leftovers(cluster: Cluster, at: Addresses, running: set[int]) -> dict[str, list[str]]:
    """What is there that carries the cluster's name, number or directory; of processes, those that ran before.

    The number is free: another cluster may have it by now, whose programs' command lines carry it.
    """
    folder, groups = str(cluster.folder), cgroups.hierarchies(Path("/proc/mounts").read_text())
    processes = [process for process in psutil.process_iter(["cmdline"]) if process.pid in running]
    lines = {
        "interfaces": [path.name for path in Path("/sys/class/net").iterdir()],
        "routes": call("ip", "route").splitlines(),
        "nft tables": call("nft", "list", "tables").splitlines(),
        "mounts": Path("/proc/self/mounts").read_text().splitlines(),
        "control groups": [str(path) for root, _ in groups for path in root.iterdir()],
        "processes": [" ".join(process.info["cmdline"] or []) for process in processes],
        "files": list(map(str, cluster.folder.parent.iterdir())) if cluster.folder.parent.exists() else [],
    }
    ours = re.compile(rf"\b{at.bridge}(n\d+)?\b|\b{re.escape(str(at.network)[:-6])}|{re.escape(folder)}\b")
    found = {what: list(filter(ours.search, texts)) for what, texts in lines.items()}
    return {what: texts for what, texts in found.items() if texts}
