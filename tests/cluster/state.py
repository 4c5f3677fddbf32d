"""What is remembered of a cluster between commands, and the locks that keep commands apart."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cluster import files
from cluster.addresses import REAL_NODES, Addresses, choose, host_networks, port_is_free
from cluster.errors import ClusterError

KINDS = ("real", "simulated")


@dataclass(frozen=True)
class NodeSpec:
    """Nodes to have: how many of which kind, with what extra capacity and labels.

    ``capacity`` on a real node takes extended resources only (``nvidia.com/gpu``), and it is a claim
    written into the node's status: there is no device behind it, pods that ask for it just get placed.
    """

    kind: str
    count: int = 1
    capacity: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, capacity: dict[str, str], labels: dict[str, str]) -> NodeSpec:
        """Return the nodes meant by ``real``, ``real:2`` or ``simulated:5``.

        Raises:
            ClusterError: when the text says nothing of the sort.
        """
        kind, _, count = text.partition(":")
        if kind not in KINDS or not (count or "1").isdecimal() or count == "0":
            raise ClusterError(f"nodes {text!r}: write `real`, `simulated`, or one with a number: `simulated:5`")
        if kind == "real" and int(count or 1) > REAL_NODES:
            raise ClusterError(f"nodes {text!r}: at most {REAL_NODES} real nodes have room in a cluster's addresses")
        return cls(kind, int(count or 1), capacity, labels)


@dataclass
class State:
    """The cluster's number and the nodes it was asked for, as kept in ``cluster.json``."""

    index: int
    nodes: list[NodeSpec] = field(default_factory=list)
    ipv6: bool = False

    @property
    def addresses(self) -> Addresses:
        """The cluster's subnets, addresses and ports."""
        return Addresses(self.index, self.ipv6)

    def count(self, kind: str) -> int:
        """Return how many nodes of ``kind`` there are to be."""
        return max((spec.count for spec in self.nodes if spec.kind == kind), default=0)

    def want(self, specs: list[NodeSpec]) -> None:
        """Ask for ``specs`` besides what was asked for before.

        Nothing is taken away from a running cluster: the higher number of nodes stays, and capacity and
        labels that are not named now.
        """
        for spec in specs:
            known = next((known for known in self.nodes if known.kind == spec.kind), spec)
            self.nodes = [other for other in self.nodes if other.kind != spec.kind]
            capacity, labels = {**known.capacity, **spec.capacity}, {**known.labels, **spec.labels}
            self.nodes.append(NodeSpec(spec.kind, max(spec.count, known.count), capacity, labels))


def clusters_dir() -> Path:
    """Where clusters live: ``$TANDEM_STATE_DIR``, else ``tandem/clusters`` in the user's state directory."""
    if own := os.environ.get("TANDEM_STATE_DIR"):
        return Path(own).absolute()
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base).absolute() if base else Path.home() / ".local/state") / "tandem" / "clusters"


def check_name(name: str) -> str:
    """Return ``name`` when it can be a cluster's name, else raise ClusterError."""
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?", name):
        raise ClusterError(f"name {name!r}: use at most 30 lower-case letters, digits and dashes")
    return name


def load(folder: Path) -> State | None:
    """Return the state of the cluster in ``folder``; None when there is no cluster."""
    try:
        kept = json.loads((folder / "cluster.json").read_text())
    except FileNotFoundError:
        return None
    return State(kept["index"], [NodeSpec(**spec) for spec in kept["nodes"]], kept.get("ipv6", False))


def save(folder: Path, state: State) -> None:
    """Keep ``state`` in ``folder``, whole or not at all."""
    files.write(folder / "cluster.json", json.dumps(asdict(state), indent=2) + "\n")


def load_or_allocate(folder: Path, *, ipv6: bool = False) -> State:
    """Return the state of the cluster in ``folder``, with fresh addresses, of IPv6 alone if asked, when it is new."""
    with locked(folder.parent):
        if state := load(folder):
            return state
        others = [load(other) for other in folder.parent.iterdir()]
        taken = {other.index for other in others if other}
        state = State(choose(taken, host_networks(), port_is_free).index, ipv6=ipv6)
        save(folder, state)
    return state


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold ``folder`` (made when missing) against other commands; waits for its turn.

    The directory itself is locked, so that no lock file stays behind when it is removed.
    """
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # another command removed it, or its parent, just now
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if not _is_same(handle, folder):
                continue  # another command removed it while this one waited
            yield
            return
        finally:
            os.close(handle)


def _is_same(handle: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), folder.stat())
    except FileNotFoundError:
        return False
