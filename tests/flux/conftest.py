"""Flux's own controllers, on this host, in a cluster of simulated nodes with GPUs; they read a Git server here."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster import binaries
from cluster.core import Cluster
from cluster.ports import free_port
from integration.conftest import cluster as cluster
from integration.conftest import wait_established
from support.git_server import GitServer, serving

CONTROLLERS = ("source-controller", "kustomize-controller", "helm-controller")
CRDS = ("gitrepositories.source", "kustomizations.kustomize", "helmreleases.helm")
NAMESPACE = "flux-system"
DEVICES = {"nvidia.com/gpu": "64"}


@pytest.fixture(scope="session")
def flux(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Flux, and GPUs on the nodes."""
    patch = json.dumps({"status": {"capacity": DEVICES, "allocatable": DEVICES}})
    cluster.kubectl.run("patch", "node", "simulated-0", "--subresource=status", "--type=merge", "-p", patch)
    cluster.kubectl.run("create", "namespace", NAMESPACE)
    programs = binaries.ensure(CONTROLLERS, print)
    for program in programs.values():
        cluster.kubectl.run("apply", "--server-side", "-f", str(program.parent / "config/crd/bases"))
    for crd in CRDS:
        wait_established(cluster, f"{crd}.toolkit.fluxcd.io")
    folder, storage = tmp_path_factory.mktemp("flux"), f"127.0.0.1:{free_port()}"
    (folder / "artifacts").mkdir()
    own = {"source-controller": [f"--storage-path={folder}/artifacts", f"--storage-adv-addr={storage}"]}
    own["source-controller"] += [f"--storage-addr={storage}"]
    with ExitStack() as stack:
        for name, program in programs.items():
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            health = (f"--health-addr=127.0.0.1:{free_port()}", "--metrics-addr=0", "--events-addr=")
            environment = {"KUBECONFIG": str(cluster.kubeconfig), "RUNTIME_NAMESPACE": NAMESPACE}
            started = subprocess.Popen(
                [program, *health, "--enable-leader-election=false", *own.get(name, [])],
                env=os.environ | environment,
                stdout=log,
                stderr=log,
            )
            stack.callback(started.wait)
            stack.callback(started.terminate)
        yield


@pytest.fixture(scope="session")
def git(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitServer]:
    """The Git server."""
    folder: Path = tmp_path_factory.mktemp("git")
    with serving(folder) as made:
        yield made
