"""Argo CD's own controller and repository server, on this host, in a cluster of simulated nodes with GPUs."""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster import binaries
from cluster.core import Cluster
from cluster.ports import free_port
from integration.conftest import REPOSITORY, wait_established
from integration.conftest import cluster as cluster
from support.git_server import GitServer, serving

NAMESPACE = "argocd"
HEALTH = REPOSITORY / "examples/gitops/argocd/argocd-cm.yaml"
DEVICES = {"nvidia.com/gpu": "64"}
LABELS = {"app.kubernetes.io/part-of": NAMESPACE}
"""By which Argo CD finds its ConfigMaps and Secrets."""
ANYTHING = {
    "sourceRepos": ["*"],
    "destinations": [{"namespace": "*", "server": "*"}],
    "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
}


@pytest.fixture(scope="session")
def argo(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Argo CD, with the health checks of the example, and GPUs on the nodes. The folder of its logs."""
    patch = json.dumps({"status": {"capacity": DEVICES, "allocatable": DEVICES}})
    cluster.kubectl.run("patch", "node", "simulated-0", "--subresource=status", "--type=merge", "-p", patch)
    program = binaries.ensure(["argo-cd"], print)["argo-cd"]
    _prepare(cluster, program.parent / "crds")
    folder = tmp_path_factory.mktemp("argo")
    with ExitStack() as stack:
        for name, command in _commands(cluster, folder).items():
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            environment = os.environ | _environment(cluster, folder)
            started = subprocess.Popen([program, name, *command], env=environment, stdout=log, stderr=log)
            stack.callback(started.wait)
            stack.callback(started.terminate)
        yield folder


def _prepare(cluster: Cluster, crds: Path) -> None:
    """What Argo CD's manifests bring, and the example's health checks as its comment says to bring them."""
    cluster.kubectl.run("create", "namespace", NAMESPACE)
    cluster.kubectl.run("apply", "--server-side", *(f"-f{path}" for path in sorted(crds.glob("*-crd.yaml"))))
    for plural in ("applications", "appprojects"):
        wait_established(cluster, f"{plural}.argoproj.io")
    for kind, name, content in (
        ("ConfigMap", "argocd-cm", {}),
        ("ConfigMap", "argocd-rbac-cm", {}),
        ("Secret", "argocd-secret", {"stringData": {"server.secretkey": "of these tests"}}),
    ):
        metadata = {"name": name, "namespace": NAMESPACE, "labels": LABELS}
        text = json.dumps({"apiVersion": "v1", "kind": kind, "metadata": metadata, **content})
        cluster.kubectl.run("create", "-f", "-", stdin=text)
    project = {"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "spec": ANYTHING}
    project["metadata"] = {"name": "default", "namespace": NAMESPACE}
    cluster.kubectl.run("create", "-f", "-", stdin=json.dumps(project))
    cluster.kubectl.run("patch", "configmap", "argocd-cm", "-n", NAMESPACE, "--patch-file", str(HEALTH))


def _commands(cluster: Cluster, folder: Path) -> dict[str, list[str]]:
    """Arguments by the program's command."""
    redis, server = (f"127.0.0.1:{free_port()}" for _ in range(2))
    local = ["--address=127.0.0.1", "--metrics-address=127.0.0.1", f"--metrics-port={free_port()}"]
    reads = [f"--repo-server={server}", "--repo-server-plaintext", f"--metrics-port={free_port()}"]
    # Messages of resources are not kept in the Application by default.
    own = [f"--kubeconfig={cluster.kubeconfig}", f"--namespace={NAMESPACE}", "--persist-resource-health"]
    return {
        "redis": [redis],
        "repo-server": [
            "--disable-tls",
            "--client-ca-path=",
            f"--port={server.rpartition(':')[2]}",
            *local,
            f"--redis={redis}",
        ],
        "controller": [*own, *reads, f"--redis={redis}"],
    }


def _environment(cluster: Cluster, folder: Path) -> Mapping[str, str]:
    """In PATH, what Argo CD's image has: Helm, Kustomize, which kubectl has built in, and who verifies commits."""
    kubectl = shlex.quote(str(cluster.kubectl.binary))
    scripts = {"kustomize": f'shift; exec {kubectl} kustomize "$@"', "git-verify-wrapper.sh": ": # none is signed"}
    (folder / "bin").mkdir(exist_ok=True)
    for name, script in scripts.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / "bin" / name).chmod(0o755)
    helm = binaries.ensure(["helm"], print)["helm"]
    data = {f"ARGOCD_{kind}_DATA_PATH": str(folder / kind.lower()) for kind in ("TLS", "SSH", "GPG")}
    return data | {
        "PATH": os.pathsep.join([str(folder / "bin"), str(helm.parent), os.environ["PATH"]]),
        "HOME": str(folder),
        "HOSTNAME": "argocd-application-controller-0",
        "KUBECONFIG": str(cluster.kubeconfig),
        "ARGOCD_FAKE_IN_CLUSTER": "true",
        "ARGOCD_GPG_ENABLED": "false",
    }


@pytest.fixture(scope="session")
def git(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitServer]:
    """The Git server."""
    with serving(tmp_path_factory.mktemp("git")) as made:
        yield made
