"""The files of examples/gitops, as they are but for the address of the Git server: from a commit to servers."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.core import Cluster
from integration.conftest import REPOSITORY, Namespace, offer_volume, wait_for
from integration.release import Release
from support.git_server import GitServer

from .conftest import NAMESPACE

EXAMPLES = REPOSITORY / "examples/gitops"
SERVICE, OLD, NEW = "qwen", "1" * 40, "2" * 40


class Flux:
    """What Flux has of the cluster, and the repository of the services."""

    def __init__(self, cluster: Cluster, git: GitServer, folder: Path) -> None:
        self.cluster, self.git, self.services = cluster, git, folder / "services"
        shutil.copytree(EXAMPLES / "services", self.services / "services")

    def apply(self, name: str) -> None:
        """A file of the examples, read from the Git server here."""
        text = (EXAMPLES / "flux" / name).read_text(encoding="utf-8")
        self.cluster.kubectl.run("apply", "-f", "-", stdin=text.replace("https://git.example.com", self.git.url))

    def push(self) -> None:
        """Commit the services, and have Flux look at once."""
        self.git.publish("services", self.services)
        now = f"reconcile.fluxcd.io/requestedAt={time.time()}"
        kind = "gitrepository/services"
        self.cluster.kubectl.run("annotate", "--overwrite", "-n", NAMESPACE, kind, now)

    def write(self, path: str, old: str, new: str) -> None:
        """Change a file of the services."""
        file = self.services / "services" / path
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new), encoding="utf-8")

    def ready(self, kind: str, name: str) -> tuple[str, str, str]:
        """Status, reason and message of Ready; the commit that it speaks of is the newest that was tried."""
        found = self.cluster.kubectl.get(kind, name, "-n", NAMESPACE)
        for condition in found.get("status", {}).get("conditions", []):
            if condition["type"] == "Ready":
                return condition["status"], condition["reason"], condition["message"]
        return "", "", ""

    def wait(self, kind: str, name: str, status: str, seconds: float = 120) -> str:
        """Wait for Ready to be that; its message."""
        wait_for(f"{kind} {name}: {status}", lambda: self.ready(kind, name)[0] == status, seconds)
        return self.ready(kind, name)[2]


@pytest.fixture(scope="module")
def flux_of(cluster: Cluster, flux: None, git: GitServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flux]:
    """Flux, the operator by a HelmRelease from this repository's chart, and no services yet."""
    made = Flux(cluster, git, tmp_path_factory.mktemp("services"))
    chart = tmp_path_factory.mktemp("chart")
    shutil.copytree(REPOSITORY / "charts", chart / "charts")
    git.publish("tandem", chart)
    made.apply("operator.yaml")
    made.wait("helmrelease", "tandem", "True")
    with Release(cluster, "tandem", "tandem-system").running(tmp_path_factory.mktemp("operator")):
        yield made


def revision_of(namespace: Namespace) -> Any:
    """The commit of the model that is asked for."""
    return namespace.get("sis", SERVICE)["spec"]["target"]["model"]["revision"]


def test_from_a_commit_to_servers_and_through_two_environments(cluster: Cluster, flux_of: Flux) -> None:
    staging, production = Namespace(cluster, "llm-staging"), Namespace(cluster, "llm-production")
    flux_of.git.publish("services", flux_of.services)
    flux_of.apply("services.yaml")
    wait_for("the service of staging", lambda: staging.get("sis", SERVICE))
    assert flux_of.ready("kustomization", "services-staging")[0] != "True", "nothing is downloaded yet"
    assert production.get("sis", SERVICE) is None, "it waits for staging"
    offer_volume(staging)
    flux_of.wait("kustomization", "services-staging", "True")
    staging.wait("Ready", "True", name=SERVICE)
    wait_for("the service of production", lambda: production.get("sis", SERVICE))
    offer_volume(production)
    flux_of.wait("kustomization", "services-production", "True")
    assert len(production.server_pods()) == 3

    flux_of.write("staging/revision.yaml", OLD, NEW)
    flux_of.push()
    wait_for("the revision in staging", lambda: revision_of(staging) == NEW)
    flux_of.wait("kustomization", "services-staging", "True")
    assert revision_of(production) == OLD
    shutil.copy(flux_of.services / "services/staging/revision.yaml", flux_of.services / "services/production")
    flux_of.push()
    wait_for("the revision in production", lambda: revision_of(production) == NEW)
    flux_of.wait("kustomization", "services-production", "True")
    production.wait("Ready", "True", name=SERVICE)


def test_a_bad_commit_fails_with_the_reason_and_its_revert_heals(cluster: Cluster, flux_of: Flux) -> None:
    staging = Namespace(cluster, "llm-staging")
    before = staging.server_pods()
    flux_of.write("base/service.yaml", "profile: torch", "profile: torhc")
    flux_of.push()
    message = flux_of.wait("kustomization", "services-staging", "False", 180)
    assert "SpeculativeInferenceService/llm-staging/qwen" in message
    assert "UnknownProfile" in json.dumps(staging.get("sis", SERVICE)["status"])
    assert staging.server_pods() == before, "what serves goes on"
    flux_of.write("base/service.yaml", "profile: torhc", "profile: torch")
    flux_of.push()
    flux_of.wait("kustomization", "services-staging", "True", 180)


def test_what_leaves_git_leaves_the_cluster(cluster: Cluster, flux_of: Flux) -> None:
    production = Namespace(cluster, "llm-production")
    cluster.kubectl.run("delete", "-n", NAMESPACE, "kustomization", "services-production", "--timeout=60s")
    wait_for("no service", lambda: not production.items("sis"))
    wait_for("no pods", lambda: not production.server_pods())
