"""Using a cluster that somebody else runs, by its kubeconfig."""

from __future__ import annotations

from pathlib import Path

from cluster import binaries
from cluster.errors import ClusterError
from cluster.kubeconfig import Kubectl

UNAVAILABLE = (
    "not available with a cluster of your own: stopping and starting its programs, its audit log, simulated nodes, "
    "importing images (push them to a registry that it can pull from)"
)


def check(kubeconfig: Path) -> list[str]:
    """Return what to know about using the cluster of ``kubeconfig``.

    Raises:
        ClusterError: when the file is missing or the cluster is not ready.
    """
    if not kubeconfig.exists():
        raise ClusterError(f"there is no kubeconfig {kubeconfig}: check the path, or start a cluster without it")
    kubectl = Kubectl(binaries.ensure(["kubectl"], print)["kubectl"], kubeconfig)
    kubectl.run("get", "--raw", "/readyz")
    return [f"the cluster of {kubeconfig} is ready and is used as it is", UNAVAILABLE]
