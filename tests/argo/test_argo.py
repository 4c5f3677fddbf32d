"""The files of examples/gitops, as they are but for the address of the Git server: from a commit to servers."""

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cluster.core import Cluster
from integration.conftest import REPOSITORY, Namespace, offer_volume, wait_for
from integration.release import Release
from support.git_server import GitServer

from .conftest import NAMESPACE

EXAMPLES = REPOSITORY / "examples/gitops"
CRD = "speculativeinferenceservices.serving.tandem.dev"
STAGING, PRODUCTION, SERVICE = "services-staging", "services-production", "qwen"
PATIENCE = 240.0


class Argo:
    """What Argo CD has of the cluster, and the repository of the services."""

    def __init__(self, cluster: Cluster, git: GitServer, folder: Path) -> None:
        self.cluster, self.git, self.services = cluster, git, folder / "services"
        shutil.copytree(EXAMPLES / "services", self.services / "services")
        shutil.copytree(EXAMPLES / "argocd", self.services / "argocd")
        applications = self.services / "argocd/applications.yaml"
        text = applications.read_text(encoding="utf-8").replace("https://git.example.com", git.url)
        # Simulated pods do not answer as a metrics API, which Argo CD would wait for.
        more, image = "metricsServer: {register: false}\n        ", "image: {repository"
        assert image in text
        applications.write_text(text.replace(image, f"{more}{image}"), encoding="utf-8")

    def push(self, *applications: str) -> None:
        """Commit the services, and have these Applications look at once."""
        self.git.publish("services", self.services)
        for name in applications:
            self.refresh(name)

    def refresh(self, name: str) -> None:
        """Have an Application compared with its repository, and wait until it was."""
        asked = "argocd.argoproj.io/refresh"
        self.cluster.kubectl.run("annotate", "-n", NAMESPACE, f"application/{name}", f"{asked}=hard", "--overwrite")
        wait_for(
            f"{name} to be compared", lambda: asked not in self.get(name)["metadata"].get("annotations", {}), PATIENCE
        )

    def write(self, path: str, old: str, new: str) -> None:
        """Change a file of the services."""
        file = self.services / "services" / path
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new), encoding="utf-8")

    def get(self, name: str) -> dict[str, Any]:
        """An Application; empty where there is none."""
        return self.cluster.reader.get("applications", name, NAMESPACE) or {}

    def state(self, name: str) -> tuple[str, str]:
        """Whether it is synced, and its health."""
        status = self.get(name).get("status", {})
        return status.get("sync", {}).get("status", ""), status.get("health", {}).get("status", "")

    def wait(self, name: str, sync: str, health: str) -> None:
        """Wait for both."""
        try:
            wait_for(f"{name}: {sync}, {health}", lambda: self.state(name) == (sync, health), PATIENCE)
        except AssertionError as error:
            raise AssertionError(f"{error}{json.dumps(self.get(name).get('status'), indent=1)}") from None

    def health(self, name: str) -> tuple[str, str]:
        """Status and message of the one service of an Application."""
        (found,) = (r for r in self.get(name)["status"]["resources"] if r["kind"] == "SpeculativeInferenceService")
        return found["health"]["status"], found["health"].get("message", "")


@pytest.fixture(scope="module")
def argo_of(cluster: Cluster, argo: Path, git: GitServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Argo]:
    """A cluster without Tandem's definition, to which the root Application was applied; the operator runs."""
    cluster.kubectl.run("delete", "crd", CRD)
    made = Argo(cluster, git, tmp_path_factory.mktemp("services"))
    chart = tmp_path_factory.mktemp("chart")
    shutil.copytree(REPOSITORY / "charts", chart / "charts")
    git.publish("tandem", chart)
    made.push()
    root = (EXAMPLES / "argocd/root.yaml").read_text(encoding="utf-8").replace("https://git.example.com", git.url)
    cluster.kubectl.run("apply", "-f", "-", stdin=root)
    made.wait("tandem", "Synced", "Healthy")
    with Release(cluster, "tandem", "tandem-system").running(tmp_path_factory.mktemp("operator")):
        yield made


def test_the_waves_wait_until_the_one_before_is_healthy(cluster: Cluster, argo_of: Argo) -> None:
    staging, production = Namespace(cluster, "llm-staging"), Namespace(cluster, "llm-production")
    argo_of.wait(STAGING, "Synced", "Progressing")
    staging.wait("ModelsReady", "Unknown/FetchRunning", name=SERVICE)
    argo_of.refresh("root")
    assert argo_of.state("root")[1] == "Progressing"
    assert argo_of.get(PRODUCTION) == {}, "staging has not downloaded its models yet"
    offer_volume(staging)
    argo_of.wait(STAGING, "Synced", "Healthy")
    argo_of.wait(PRODUCTION, "Synced", "Progressing")
    offer_volume(production)
    argo_of.wait(PRODUCTION, "Synced", "Healthy")
    argo_of.wait("root", "Synced", "Healthy")
    assert len(production.server_pods()) == 3
    assert argo_of.health(PRODUCTION) == ("Healthy", "3 of 3 servers answer")


def test_a_bad_commit_is_degraded_with_the_reason_and_its_revert_heals(cluster: Cluster, argo_of: Argo) -> None:
    before = Namespace(cluster, "llm-staging").server_pods()
    argo_of.write("base/service.yaml", "profile: torch", "profile: torhc")
    argo_of.push(STAGING)
    argo_of.wait(STAGING, "Synced", "Degraded")
    assert argo_of.health(STAGING)[1].startswith("UnknownProfile: ")
    assert Namespace(cluster, "llm-staging").server_pods() == before, "what serves goes on"
    argo_of.write("base/service.yaml", "profile: torhc", "profile: torch")
    argo_of.push(STAGING)
    argo_of.wait(STAGING, "Synced", "Healthy")


def has(namespace: Namespace, servers: int) -> bool:
    """Whether it has so many server pods."""
    return len(namespace.server_pods()) == servers


def test_replicas_are_an_autoscalers(cluster: Cluster, argo_of: Argo) -> None:
    staging = Namespace(cluster, "llm-staging")
    for replicas, health in ((2, "Healthy"), (0, "Suspended")):
        staging.run("scale", f"sis/{SERVICE}", f"--replicas={replicas}")
        wait_for(f"{replicas} servers", partial(has, staging, replicas))
        argo_of.refresh(STAGING)
        argo_of.wait(STAGING, "Synced", health)
        assert staging.get("sis", SERVICE)["spec"]["replicas"] == replicas
