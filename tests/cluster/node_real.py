"""Real nodes: kubelet, containerd and kube-proxy in namespaces of their own, as on a machine of its own.

A node is one process (the *holder*) with its own mounts, processes, network and System V IPC. When
it dies the kernel ends every process in it, its mounts, its interfaces and its iptables rules. So
several nodes and clusters do not see each other, and a killed node leaves nothing but control groups
and files. Within the node /var is the node's own directory and /run starts empty, so that everything
is at its usual place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import psutil
import yaml

from cluster import cgroups, deps, files, images, network, node_files, pki
from cluster.addresses import Addresses
from cluster.binaries import Say
from cluster.controlplane import ControlPlane
from cluster.errors import ClusterError
from cluster.node_files import CONFIG
from cluster.processes import ProcessTable, Program, wait_until
from cluster.shell import command_path, pipe, succeeds

BINARIES = ("kubelet", "kube-proxy", "coredns", "pause")
PAUSE_IMAGE = "localhost/tandem/pause:v0"
START_SECONDS = 120


def node_cgroup(at: Addresses, number: int) -> str:
    """Return the control group of the pods of real node ``number``."""
    return f"/{at.bridge}n{number}"


@dataclass(frozen=True)
class RealNode:
    """Real node ``number`` of a cluster, from 0."""

    plane: ControlPlane
    programs: ProcessTable
    number: int

    @property
    def name(self) -> str:
        """The Node object's name."""
        return f"node-{self.number}"

    @property
    def folder(self) -> Path:
        """The node's directory; its ``var`` is /var inside the node."""
        return self.plane.folder / "nodes" / self.name

    @property
    def cgroup(self) -> str:
        """The control group of the node's pods."""
        return node_cgroup(self.plane.addresses, self.number)

    def _own(self, program: str) -> str:
        return f"{self.name}-{program}"

    def start(self) -> bool:
        """Start what of the node does not run yet; tell whether its kubelet had to be started.

        Raises:
            ClusterError: when a part of it does not start; has the end of its log.
        """
        if self.holder() is None:
            cgroups.remove(self.cgroup)  # of pods that died with the node: the kubelet would look for them
        cgroups.make(self.cgroup)
        self._write_files()
        pid = self._hold()
        network.connect(self.plane.addresses, self.number, pid)
        network.set_sysctls(pid)
        self._run(pid, "containerd", command_path("containerd"), f"--config={CONFIG}/containerd.toml")
        self._wait(self._own("containerd"), lambda: succeeds(*self._ctr(pid), "version"))
        self._load_pause()
        started = {program: self._run(pid, program, *cmd) for program, cmd in self._services().items()}
        return started["kubelet"]

    def holder(self) -> int | None:
        """Return the pid, as the host sees it, of the node's first process; None when it is down."""
        outer = self.programs.pid(self.name)
        try:
            children = psutil.Process(outer).children() if outer else []
            return next((child.pid for child in children if child.name() == "pause"), None)
        except psutil.NoSuchProcess:
            return None

    def held(self) -> int:
        """Return the pid of the node's first process; raises ClusterError when the node is down."""
        pid = self.holder()
        if pid is None:
            raise ClusterError(f"{self.name} is down: `python -m cluster up` repairs it")
        return pid

    def import_image(self, archive: Path, say: Say) -> None:
        """Load an image archive into the node unless it is loaded already.

        Raises:
            ClusterError: when the node is down or containerd refuses the archive.
        """
        pid = self.held()
        with archive.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        # One mark a name: the same name may come again with other content, and then with the first.
        marks = [self.folder / "images" / name.replace("/", "|") for name in images.names(archive)]
        if marks and all(mark.exists() and mark.read_text() == digest for mark in marks):
            return
        say(f"loading {archive.name} ({archive.stat().st_size / 1e6:.0f} MB) into {self.name} ...")
        pipe(archive, *self._ctr(pid), "images", "import", "-")
        for mark in marks:
            files.write(mark, digest)

    # --- inside --------------------------------------------------------------------------------

    def _hold(self) -> int:
        script = node_files.setup_script(self.folder, self.plane.binaries["pause"])
        namespaces = ("--mount", "--propagation=slave", "--net", "--ipc", "--pid", "--mount-proc")
        command = (command_path("unshare"), *namespaces, "--fork", "--kill-child", "/bin/sh", "-euc", script)
        self.programs.ensure(Program(self.name, command, wrapped=True))
        self._wait(self.name, lambda: self.holder() is not None)
        return self.held()

    def _wait(self, program: str, is_up: Callable[[], bool]) -> None:
        def check() -> bool:
            self.programs.check(program)
            return is_up()

        if not wait_until(check, START_SECONDS):
            log = self.programs.log(program)
            raise ClusterError(f"{program} is not up after {START_SECONDS} s; its log is {log}")

    def _enter(self, pid: int) -> tuple[str, ...]:
        return (command_path("nsenter"), "-t", str(pid), "-m", "-n", "-i", "-p", "--")

    def _ctr(self, pid: int) -> tuple[str, ...]:
        return (*self._enter(pid), command_path("ctr"), "-n", "k8s.io")

    def _run(self, pid: int, program: str, *command: str) -> bool:
        # nsenter stays in between; should it be killed, what it started must not run on unseen.
        bound = (command_path("setpriv"), "--pdeathsig", "KILL", *command)
        return self.programs.ensure(Program(self._own(program), (*self._enter(pid), *bound), wrapped=True))

    def _services(self) -> dict[str, tuple[str, ...]]:
        binaries, at = self.plane.binaries, self.plane.addresses
        kubelet = (
            str(binaries["kubelet"]),
            f"--config={CONFIG}/kubelet.yaml",
            f"--kubeconfig={CONFIG}/kubelet.kubeconfig",
            f"--hostname-override={self.name}",
            f"--node-ip={at.node(self.number)}",
        )
        services = {
            "kubelet": kubelet,
            "kube-proxy": (str(binaries["kube-proxy"]), f"--config={CONFIG}/kube-proxy.yaml"),
        }
        if self.number == 0:
            services["coredns"] = (str(binaries["coredns"]), "-conf", f"{CONFIG}/Corefile")
        return services

    def _load_pause(self) -> None:
        archive = self.folder / "pause.tar"
        images.write_scratch_image(self.plane.binaries["pause"], PAUSE_IMAGE, archive)
        self.import_image(archive, say=lambda _: None)

    @cached_property
    def _config(self) -> Path:
        return self.folder / CONFIG.relative_to("/")

    def _write_files(self) -> None:
        at, plugins = self.plane.addresses, deps.cni_dir()
        if plugins is None:
            raise ClusterError(deps.describe(deps.missing(deps.NODE_NEEDS)))
        for path in ("var/lib", "var/log", "var/tmp"):
            (self.folder / path).mkdir(parents=True, exist_ok=True)
        if not (self.folder / "var/run").is_symlink():
            (self.folder / "var/run").symlink_to("/run")
        for name, value in node_files.KUBELET_SYSCTLS.items():
            files.write(node_files.sysctl_file(self.folder, name), value + "\n")
        kubelet = node_files.kubelet_config(at.dns, self.cgroup)
        proxy = node_files.kube_proxy_config(self.name, at.node(self.number), at.pods)
        configs = {
            "containerd.toml": node_files.containerd_config(PAUSE_IMAGE, plugins),
            "cni/10-tandem.conflist": node_files.cni_config(at.node_pods(self.number)),
            "kubelet.yaml": yaml.safe_dump(kubelet),
            "kube-proxy.yaml": yaml.safe_dump(proxy),
            "Corefile": node_files.corefile(at.dns),
        }
        for name, content in configs.items():
            files.write(self._config / name, content)
        self._write_identities()

    def _write_identities(self) -> None:
        plane, config = self.plane, self._config
        authority = pki.load_authority(plane.pki, "ca")
        files.write(config / "ca.crt", authority.path.read_bytes())
        address = str(plane.addresses.node(self.number))
        serving = pki.Identity(f"system:node:{self.name}", ("system:nodes",), (self.name, address))
        for source in pki.issue(authority, self._own("kubelet"), serving):
            files.write(config / f"kubelet{source.suffix}", source.read_bytes(), mode=0o600)
        identities = {
            "kubelet": pki.Identity(f"system:node:{self.name}", ("system:nodes",)),
            "kube-proxy": pki.Identity("system:kube-proxy"),
            # It only reads, but Endpoints, Pods, Services and Namespaces of all namespaces.
            "coredns": pki.Identity("system:coredns", ("system:masters",)),
        }
        for name, identity in identities.items():
            plane.access.write(config / f"{name}.kubeconfig", plane.node_server, identity)
