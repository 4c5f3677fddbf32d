"""Simulated nodes: Node objects that kwok keeps Ready, and whose pods it reports as running."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cluster.binaries import KWOK_STAGES
from cluster.controlplane import ControlPlane
from cluster.kubeconfig import Kubectl
from cluster.pki import Identity
from cluster.processes import Program
from cluster.state import NodeSpec

MANAGED = "kwok.x-k8s.io/node"
CAPACITY = {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "250"}
TAINT = {"key": MANAGED, "value": "fake", "effect": "NoSchedule"}


def program(plane: ControlPlane) -> Program:
    """Return kwok's program; writes its kubeconfig."""
    # kwok plays the kubelets of all its nodes, which no single node's rights allow.
    identity = Identity("kwok", ("system:masters",))
    kubeconfig = plane.access.write(plane.folder / "clients/kwok.kubeconfig", plane.local_server, identity)
    binary = plane.binaries["kwok"]
    arguments = (
        f"--kubeconfig={kubeconfig}",
        *(f"--config={path}" for path in stages(plane.folder, binary.parent)),
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={MANAGED}=fake",
        f"--cidr={plane.addresses.simulated_pods}",
        f"--node-ip={plane.addresses.host}",
        "--node-lease-duration-seconds=40",
    )
    return Program("kwok", (str(binary), *arguments))


def stages(folder: Path, shipped: Path) -> list[Path]:
    """Return the files that say what becomes of simulated nodes and pods.

    They are kwok's own in ``shipped``, and those in ``<cluster's folder>/stages/``, which win by file name:
    so a test can decide what its pods say when they end.
    """
    found = {Path(stage).name: shipped / Path(stage).name for stage in KWOK_STAGES}
    found |= {path.name: path for path in (folder / "stages").glob("*.yaml")}
    return [found[name] for name in sorted(found)]


def manifest(number: int, spec: NodeSpec, *, tainted: bool) -> dict[str, Any]:
    """Return the Node object of simulated node ``number``.

    Args:
        number: from 0; the node is called ``simulated-<number>``.
        spec: capacity and labels to add to the usual ones.
        tainted: keep pods away that do not say they may be simulated; wanted beside real nodes.
    """
    name = f"simulated-{number}"
    capacity = {**CAPACITY, **spec.capacity}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {MANAGED: "fake"},
            "labels": {**labels, "type": "kwok", **spec.labels},
        },
        "spec": {"taints": [TAINT] if tainted else []},
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def register(kubectl: Kubectl, nodes: list[dict[str, Any]]) -> None:
    """Create those of ``nodes`` that are missing, and bring capacity and labels of the others up to date."""
    listing = json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes})
    apply = ("apply", "--server-side", "--force-conflicts", "--field-manager=tandem-cluster", "-f", "-")
    kubectl.run(*apply, stdin=listing)
    kubectl.run(*apply, "--subresource=status", stdin=listing)
