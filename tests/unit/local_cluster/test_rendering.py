"""Command lines and configuration: what a cluster's programs are told."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from cluster import cgroups, deps, network, node_files, node_simulated, preflight
from cluster.addresses import Addresses
from cluster.cli import parse_pairs
from cluster.controlplane import BINARIES, ControlPlane
from cluster.state import NodeSpec

pytestmark = pytest.mark.nightly

AT = Addresses(3)


def _flags(program: str, *, reachable: bool = False) -> dict[str, str]:
    plane = ControlPlane("test", Path("/cluster"), AT, {name: Path("/bin", name) for name in BINARIES})
    programs = {item.name: item for item in plane.programs(reachable=reachable)}
    pairs = (argument.removeprefix("--").split("=", 1) for argument in programs[program].argv[1:])
    return dict(pairs)


FLAGS = [
    pytest.param("kube-apiserver", "authorization-mode", "Node,RBAC", id="rights are checked as elsewhere"),
    pytest.param(
        "kube-apiserver",
        "enable-admission-plugins",
        "NodeRestriction,OwnerReferencesPermissionEnforcement",
        id="who may set owners is checked as in OpenShift",
    ),
    pytest.param("kube-apiserver", "secure-port", "20030", id="a port of its own"),
    pytest.param("kube-apiserver", "kubelet-preferred-address-types", "InternalIP", id="node names are in no DNS"),
    pytest.param("kube-apiserver", "audit-log-path", "/cluster/logs/audit.log", id="every request is on record"),
    pytest.param("kube-controller-manager", "use-service-account-credentials", "true", id="controllers by name"),
    pytest.param("kube-controller-manager", "flex-volume-plugin-dir", "/cluster/volumeplugins", id="not in /usr"),
    pytest.param("etcd", "client-cert-auth", "true", id="no other user of the machine reads the data"),
]


@pytest.mark.parametrize(("program", "flag", "value"), FLAGS)
def test_flags(program: str, flag: str, value: str) -> None:
    assert _flags(program)[flag] == value


def test_the_front_proxy_has_a_ca_of_its_own() -> None:
    flags = _flags("kube-apiserver")
    assert flags["client-ca-file"] != flags["requestheader-client-ca-file"]
    assert flags["requestheader-allowed-names"] == "front-proxy"


@pytest.mark.parametrize(("reachable", "address"), [(False, "127.0.0.1"), (True, "0.0.0.0")])
def test_only_a_cluster_with_real_nodes_listens_beyond_loopback(reachable: bool, address: str) -> None:
    assert _flags("kube-apiserver", reachable=reachable)["bind-address"] == address


def test_the_guard_lets_in_this_host_and_the_cluster() -> None:
    assert 'iifname != { "lo", "tandem3" } tcp dport 20030 drop' in network.guard(AT)


def test_containerd_is_told_the_pause_image_and_where_cni_is() -> None:
    config = tomllib.loads(node_files.containerd_config("localhost/pause:v0", Path("/usr/lib/cni")))
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["sandbox_image"] == "localhost/pause:v0"
    assert cri["restrict_oom_score_adj"] is True
    assert cri["containerd"]["runtimes"]["runc"]["options"]["SystemdCgroup"] is False
    assert cri["cni"] == {"bin_dir": "/usr/lib/cni", "conf_dir": "/var/lib/tandem/cni"}


def test_pods_get_addresses_of_their_node() -> None:
    plugins = json.loads(node_files.cni_config(AT.node_pods(1)))["plugins"]
    assert plugins[0]["ipam"]["ranges"] == [[{"subnet": "10.163.129.0/24"}]]
    assert plugins[1]["type"] == "portmap"


def test_a_full_disk_evicts_no_pod() -> None:
    thresholds = node_files.kubelet_config(AT.dns, "/x")["evictionHard"]
    assert {value for name, value in thresholds.items() if "fs." in name} == {"0%"}


def test_the_machine_keeps_its_own_sysctls() -> None:
    script = node_files.setup_script(Path("/node dir"), Path("/bin/pause"))
    for name in node_files.KUBELET_SYSCTLS:
        assert f"/proc/sys/{name}" in script
    conntrack = node_files.kube_proxy_config("n", AT.node(0), AT.pods)["conntrack"]
    assert conntrack == {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    assert script.index("/proc/sys") < script.index(" /var"), "the files may be hidden once /var is the node's"
    assert "'/node dir/var'" in script, "paths with blanks"


NODES = [
    pytest.param(False, [], id="alone: pods need to say nothing"),
    pytest.param(True, [node_simulated.TAINT], id="beside real nodes: only pods that may be simulated"),
]


@pytest.mark.parametrize(("tainted", "taints"), NODES)
def test_simulated_node(tainted: bool, taints: list[dict[str, str]]) -> None:
    spec = NodeSpec("simulated", 1, {"nvidia.com/gpu": "8"}, {"nvidia.com/gpu.product": "NVIDIA-H200"})
    node = node_simulated.manifest(4, spec, tainted=tainted)
    assert node["metadata"]["name"] == "simulated-4"
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-H200"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert node["spec"]["taints"] == taints


V1 = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n"
V2 = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
OTHERS = "proc /proc proc rw 0 0\ntmpfs /sys/fs/cgroup tmpfs rw 0 0\n"
CPU, CPUSET = (Path("/sys/fs/cgroup/cpu"), False), (Path("/sys/fs/cgroup/cpuset"), True)
UNIFIED = (Path("/sys/fs/cgroup/unified"), False)
MOUNTS = [
    pytest.param(OTHERS, [], id="none"),
    pytest.param(OTHERS + V1, [CPU, CPUSET], id="version 1"),
    pytest.param(OTHERS + V2, [UNIFIED], id="version 2"),
    pytest.param(V1 + V2, [CPU, CPUSET, UNIFIED], id="both"),
]


@pytest.mark.parametrize(("mounts", "expected"), MOUNTS)
def test_control_group_hierarchies(mounts: str, expected: list[tuple[Path, bool]]) -> None:
    assert cgroups.hierarchies(mounts) == expected


def test_missing_packages_are_named_once_with_the_command() -> None:
    text = deps.describe(list(deps.NODE_NEEDS))
    assert text.endswith(f"apt-get install -y {' '.join(deps.packages(list(deps.NODE_NEEDS)))}")
    assert deps.packages(list(deps.NODE_NEEDS)).count("containerd") == 1


def test_a_machine_without_the_programs_is_told_all_of_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(deps, "search_path", lambda: str(tmp_path))
    monkeypatch.setattr(deps, "CNI_DIRS", (tmp_path,))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    problems = "\n".join(preflight.find_problems(tmp_path))
    for need in deps.NODE_NEEDS:
        assert need.command in problems
    assert "needs root" in problems


def test_a_state_directory_that_nodes_could_not_see_is_refused() -> None:
    assert any("TANDEM_STATE_DIR" in problem for problem in preflight.find_problems(Path("/var/lib/x")))


def test_pairs() -> None:
    assert parse_pairs(["a=b", "c=d=e"]) == {"a": "b", "c": "d=e"}
    assert parse_pairs(None) == {}
