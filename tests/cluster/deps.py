"""What real nodes, image builds and tests need from Debian: the one list, and how to install it."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import ClusterError

CNI_DIRS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))


@dataclass(frozen=True)
class Need:
    """A command (or a CNI plugin), the Debian package that brings it, and what it is for."""

    command: str
    package: str
    purpose: str


NODE_NEEDS = (
    Need("containerd", "containerd", "runs the pods of a real node"),
    Need("ctr", "containerd", "imports images into a real node"),
    Need("runc", "runc", "starts containers"),
    Need("cni:bridge", "containernetworking-plugins", "connects pods to the node"),
    Need("cni:host-local", "containernetworking-plugins", "gives pods addresses"),
    Need("iptables", "iptables", "kube-proxy routes Services with it"),
    Need("conntrack", "conntrack", "kube-proxy forgets old connections with it"),
    Need("nft", "nftables", "keeps the API server off the outer network"),
    Need("ip", "iproute2", "makes the cluster's bridge and routes"),
    Need("nsenter", "util-linux", "enters a node's namespaces"),
    Need("setpriv", "util-linux", "ties a node's programs to their starter"),
    Need("unshare", "util-linux", "makes a node's namespaces"),
)
IMAGE_NEEDS = (
    Need("buildah", "buildah", "builds images without a container engine"),
    Need("debootstrap", "debootstrap", "makes the Debian base of the images"),
)
TEST_NEEDS = (
    Need("mpirun", "openmpi-bin", "runs servers of several ranks in tests, which skip without it"),
    Need("prometheus", "prometheus", "reads the pods' metrics in tests, which skip without it"),
    Need("promtool", "prometheus", "checks Prometheus' rules"),
)
UI_NEEDS = (
    Need("chromium", "chromium", "shows the page"),
    Need("chromedriver", "chromium-driver", "drives it"),
)


def missing(needs: tuple[Need, ...]) -> list[Need]:
    """Return those of ``needs`` that this machine lacks."""
    return [need for need in needs if not _present(need.command)]


def _present(command: str) -> bool:
    if command.startswith("cni:"):
        return cni_dir(command.removeprefix("cni:")) is not None
    return shutil.which(command, path=search_path()) is not None


def cni_dir(plugin: str = "bridge") -> Path | None:
    """Return the first known directory that has this CNI plugin."""
    return next((folder for folder in CNI_DIRS if os.access(folder / plugin, os.X_OK)), None)


def search_path() -> str:
    """Return the PATH with the administrator's folders, which a plain user's PATH lacks on Debian."""
    return os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"))


def packages(needs: list[Need]) -> list[str]:
    """Return the Debian packages for ``needs``, each once, in order."""
    return list(dict.fromkeys(need.package for need in needs))


def describe(needs: list[Need]) -> str:
    """Return one line per need, and the command that installs them all."""
    lines = [f"  {need.command} ({need.package}): {need.purpose}" for need in needs]
    return "\n".join([*lines, f"install them with: apt-get install -y {' '.join(packages(needs))}"])


def install(needs: list[Need]) -> None:
    """Install the packages of ``needs`` with apt-get; its output goes to this process's.

    Raises:
        ClusterError: when this is not root on a machine with apt-get, or apt-get fails.
    """
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise ClusterError(f"packages can be installed by root on Debian; missing here:\n{describe(needs)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install_command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages(needs)]
    for command in (["apt-get", "update", "-qq"], install_command):
        if subprocess.run(command, env=environment, check=False).returncode:
            raise ClusterError(f"`{' '.join(command)}` failed; its reason is above")
