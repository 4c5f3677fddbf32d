"""A Kubernetes cluster on this machine: real API server and controllers, real or simulated nodes."""

from __future__ import annotations

import contextlib
import json
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from cluster import binaries, cgroups, network, node_real, node_simulated, preflight, state
from cluster.binaries import Say
from cluster.controlplane import BINARIES, ControlPlane
from cluster.errors import ClusterError
from cluster.kubeconfig import Kubectl
from cluster.node_real import RealNode, node_cgroup
from cluster.processes import ProcessTable, Program, wait_until
from cluster.reader import Reader
from cluster.state import NodeSpec, State

# Several may start at once on few cores, each of which takes some ten seconds of one.
READY_SECONDS = 180
NODE_READY_SECONDS = 300


def _silent(text: str) -> None:
    del text


class Cluster:
    """One cluster, known by its name; several can run side by side.

    All it keeps is below ``folder``. Its programs outlive this object and the command that made it.

    Args:
        name: lower-case letters, digits and dashes.
        say: receives one line about each step that takes time.
        ipv6: a new cluster has addresses of IPv6 alone.

    Raises:
        ClusterError: when the name cannot be used.
    """

    def __init__(self, name: str = "tandem", say: Say = _silent, *, ipv6: bool = False) -> None:
        self.name = state.check_name(name)
        self.folder = state.clusters_dir() / name
        self.say = say
        self._ipv6 = ipv6
        self._programs = ProcessTable(self.folder)

    # --- what users need of it -----------------------------------------------------------------

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log: one JSON object a line for each request answered, with its user."""
        return self.folder / "logs" / "audit.log"

    @property
    def logs(self) -> Path:
        """The directory with one log for each program."""
        return self.folder / "logs"

    @cached_property
    def kubectl(self) -> Kubectl:
        """Kubectl, with this cluster's kubeconfig."""
        return Kubectl(binaries.ensure(["kubectl"], self.say)["kubectl"], self.kubeconfig)

    @cached_property
    def reader(self) -> Reader:
        """What reads this cluster's objects in this process: for those who ask again and again."""
        plane = self._plane(self._state())
        return Reader(plane.local_server, plane.pki)

    # --- starting and ending -------------------------------------------------------------------

    def up(self, nodes: Sequence[NodeSpec | str] = ()) -> None:
        """Start the cluster with ``nodes``, or start what of it does not run; returns when nodes are Ready.

        Args:
            nodes: ``"real"``, ``"simulated:5"``, or NodeSpecs; they are added to those it has.

        Raises:
            ClusterError: when something is missing or does not start; says what and what to do.
        """
        specs = [NodeSpec.parse(node, {}, {}) if isinstance(node, str) else node for node in nodes]
        known = state.load(self.folder)
        if any(spec.kind == "real" for spec in [*specs, *(known.nodes if known else [])]):
            preflight.check(self.folder.parent)
        with state.locked(self.folder):
            wanted = state.load_or_allocate(self.folder, ipv6=self._ipv6)
            wanted.want(specs)
            state.save(self.folder, wanted)
            plane = self._plane(wanted)
            if wanted.count("real"):
                network.up(wanted.addresses)
            self._start_control_plane(plane, wanted)
            for spec in wanted.nodes:
                start = self._start_real if spec.kind == "real" else self._start_simulated
                start(plane, spec)

    def down(self) -> None:
        """End and remove everything of the cluster; does nothing when there is none."""
        with state.locked(self.folder):
            self._programs.kill_all()
            wanted = state.load(self.folder)
            if wanted and wanted.count("real"):
                network.down(wanted.addresses)
                for number in range(wanted.count("real")):
                    cgroups.remove(node_cgroup(wanted.addresses, number))
            shutil.rmtree(self.folder)
        with contextlib.suppress(OSError):  # the last cluster takes the directory along
            self.folder.parent.rmdir()

    def import_image(self, archive: Path) -> None:
        """Load an image archive (docker-archive or OCI) into every real node, unless it is there.

        Raises:
            ClusterError: when the cluster has no real node, or the archive is no image.
        """
        with state.locked(self.folder):
            wanted = self._state()
            nodes = self._real_nodes(self._plane(wanted), wanted.count("real"))
            if not nodes:
                raise ClusterError(f"cluster {self.name} has no real node to load {archive} into: up --nodes real")
            for node in nodes:
                node.import_image(archive, self.say)

    def stop(self, name: str) -> None:
        """Stop one program (``kube-apiserver``, ``node-0-kubelet``, ...; ``status`` lists them) until ``start``.

        Raises:
            ClusterError: when the cluster has no such program.
        """
        with state.locked(self.folder):
            self._find(name)
            self._programs.stop(name)

    def start(self, name: str) -> None:
        """Start a stopped program again: same address, same data; waits until it works.

        A program of the control plane is started alone. For another one everything that does not run
        is started, as by ``up``: the parts of a node need each other.
        """
        if name not in BINARIES:
            self.up()
            return
        with state.locked(self.folder):
            plane = self._plane(self._state())
            self._programs.ensure(self._find(name))
            if self._programs.pid("etcd") and self._programs.pid("kube-apiserver"):
                self._wait_ready(plane)

    def _find(self, name: str) -> Program:
        program = self._programs.find(name)
        if program is None:
            raise ClusterError(f"no program {name!r}; there are: {', '.join(self._programs.names()) or 'none'}")
        return program

    def check_exists(self) -> None:
        """Raise ClusterError when there is no such cluster."""
        self._state()

    def status(self) -> dict[str, int | None]:
        """Return the pid of each program, None for one that does not run; empty when there is no cluster."""
        return {name: self._programs.pid(name) for name in self._programs.names()}

    # --- inside --------------------------------------------------------------------------------

    def _state(self) -> State:
        if found := state.load(self.folder):
            return found
        raise ClusterError(f"there is no cluster {self.name!r}: `python -m cluster up --name {self.name}` starts it")

    def _plane(self, wanted: State) -> ControlPlane:
        names = [*BINARIES]
        names += ["kwok"] if wanted.count("simulated") else []
        names += node_real.BINARIES if wanted.count("real") else []
        given = [name for name in names if binaries.from_assets(name)]
        if given:
            self.say(f"from KUBEBUILDER_ASSETS: {', '.join(given)}; the other programs from Go modules")
        return ControlPlane(self.name, self.folder, wanted.addresses, binaries.ensure(names, self.say))

    def _real_nodes(self, plane: ControlPlane, count: int) -> list[RealNode]:
        return [RealNode(plane, self._programs, number) for number in range(count)]

    def _start_control_plane(self, plane: ControlPlane, wanted: State) -> None:
        plane.prepare()
        etcd, apiserver, *others = plane.programs(reachable=wanted.count("real") > 0)
        started = [self._programs.ensure(program) for program in (etcd, apiserver)]
        if any(started):
            self.say("waiting for the API server ...")
        self._wait_ready(plane)
        # The others give up after 10 s without their rights, which the API server writes when it starts.
        for program in others:
            self._programs.ensure(program)

    def _wait_ready(self, plane: ControlPlane) -> None:
        def ready() -> bool:
            self._programs.check("etcd")
            self._programs.check("kube-apiserver")
            return answers(f"{plane.local_server}/readyz", plane.pki)

        if not wait_until(ready, READY_SECONDS):
            log = self._programs.log("kube-apiserver")
            raise ClusterError(f"the API server is not ready after {READY_SECONDS} s; its log is {log}")

    def _start_simulated(self, plane: ControlPlane, spec: NodeSpec) -> None:
        self._programs.ensure(node_simulated.program(plane))
        tainted = self._state().count("real") > 0
        nodes = [node_simulated.manifest(number, spec, tainted=tainted) for number in range(spec.count)]
        node_simulated.register(self.kubectl, nodes)
        self._wait_nodes(node["metadata"]["name"] for node in nodes)

    def _start_real(self, plane: ControlPlane, spec: NodeSpec) -> None:
        nodes = self._real_nodes(plane, spec.count)
        begun = datetime.now(UTC)
        started = [node.name for node in nodes if node.start()]
        network.route_between(plane.addresses, [node.held() for node in nodes])
        if started:
            self.say(f"waiting for {', '.join(started)} ...")
            self._wait_leases(started, begun)
        self._wait_nodes(node.name for node in nodes)
        for node in nodes:
            self._describe(node.name, spec)

    def _describe(self, node: str, spec: NodeSpec) -> None:
        """Write what a real node claims beyond what its kubelet knows: labels and extended resources."""
        labels = {"metadata": {"labels": spec.labels}}
        self.kubectl.run("patch", "node", node, "--patch", json.dumps(labels))
        claims = {"status": {"capacity": spec.capacity, "allocatable": spec.capacity}}
        self.kubectl.run("patch", "node", node, "--subresource=status", "--patch", json.dumps(claims))

    def _wait_leases(self, names: Iterable[str], begun: datetime) -> None:
        """Wait for signs of life: for 40 s after a node's death its Ready condition is of its former life."""
        wanted = set(names)

        def alive() -> bool:
            self._check_programs()
            leases = self.kubectl.get("leases", "-n", "kube-node-lease")["items"]
            renewed = {lease["metadata"]["name"]: lease["spec"]["renewTime"] for lease in leases}
            return all(name in renewed and datetime.fromisoformat(renewed[name]) > begun for name in wanted)

        if not wait_until(alive, NODE_READY_SECONDS):
            raise ClusterError(f"no sign of life from {wanted} after {NODE_READY_SECONDS} s; see {self.logs}")

    def _check_programs(self) -> None:
        for name in self._programs.names():
            self._programs.check(name)

    def _wait_nodes(self, names: Iterable[str]) -> None:
        wanted = set(names)

        def ready() -> bool:
            self._check_programs()
            nodes = self.kubectl.get("nodes")["items"]
            return wanted <= {node["metadata"]["name"] for node in nodes if is_ready(node)}

        if not wait_until(ready, NODE_READY_SECONDS):
            raise ClusterError(f"nodes not Ready after {NODE_READY_SECONDS} s; logs are in {self.logs}")


def is_ready(node: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    """Tell whether a Node object carries the condition Ready=True."""
    conditions = node["status"].get("conditions", [])
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def answers(url: str, pki_folder: Path) -> bool:
    """Tell whether ``url`` answers 200 to the API server's own certificate as client."""
    context = ssl.create_default_context(cafile=str(pki_folder / "ca.crt"))
    context.load_cert_chain(pki_folder / "apiserver.crt", pki_folder / "apiserver.key")
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    try:
        with opener.open(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
