"""KEDA, the chart, its metrics server and operator, in a cluster of simulated nodes and pods that tell figures."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cluster.core import Cluster
from integration.conftest import NAMES, REPOSITORY, Namespace
from integration.metrics_server import FAST_SERVER, Server, served, telling_cluster
from integration.pages import Load
from integration.pages import serving as telling
from integration.release import FAST, Release

from . import gateway as gateways
from .keda import Keda

SERVER = "tandem-metrics.tandem-system.svc:443"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with telling_cluster("tandem-keda", "tandem-system") as made:
        yield made


@pytest.fixture(scope="session")
def installed(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keda]:
    """KEDA's definitions and rights, and its webhooks; it does not scale yet."""
    made = Keda(cluster, tmp_path_factory.mktemp("keda"))
    made.install()
    with made.admitting():
        yield made


@pytest.fixture(scope="session")
def release(cluster: Cluster, installed: Keda) -> Release:
    """The chart, with what KEDA needs."""
    values = {**FAST, "metricsServer": FAST_SERVER, "keda": {"enabled": True}}
    made = Release(cluster, "tandem", "tandem-system", values)
    made.install()
    return made


@pytest.fixture(scope="session")
def server(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The metrics server."""
    with served(release, tmp_path_factory.mktemp("metrics")) as made:
        yield made


@pytest.fixture(scope="session")
def keda(installed: Keda, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keda]:
    """KEDA, told what docs/how-to/keda.md says: the certificate's authority, and for whom its tokens are."""
    trusted = tmp_path_factory.mktemp("trusted")
    secret = installed.cluster.kubectl.get("secret", "tandem-metrics-certificate", "-n", "tandem-system")
    (trusted / "ca.crt").write_bytes(base64.b64decode(secret["data"]["ca.crt"]))
    (role,) = documented_values()["permissions"]["operator"]["restrict"]["serviceAccountTokenCreationRoles"]
    # As KEDA's chart tells its operator: https://keda.sh/docs/latest/authentication-providers/bound-service-account-token/
    audience = {"namespace": role["namespace"], "serviceAccountName": role["name"], "audience": role["audience"]}
    with installed.scaling(trusted, {SERVER: server.port}, [audience]):
        yield installed


def documented_values() -> Any:
    """The values for KEDA's chart that docs/how-to/keda.md shows."""
    text = (REPOSITORY / "docs/how-to/keda.md").read_text(encoding="utf-8")
    return yaml.safe_load(text.split("# keda-values.yaml\n")[1].split("```")[0])


@pytest.fixture(scope="session")
def load() -> Iterator[Load]:
    """What the pods' pages say."""
    made = Load()
    with telling(made):
        yield made


@pytest.fixture
def gateway() -> Iterator[gateways.Gateway]:
    """Who sees demand where there is no pod."""
    with gateways.serving() as made:
        yield made


@pytest.fixture
def team(cluster: Cluster, keda: Keda, load: Load) -> Iterator[Namespace]:
    """A namespace, in which KEDA scales what is made."""
    name = f"team-{next(NAMES)}"
    cluster.kubectl.run("create", "namespace", name)
    load.sequences, load.acceptance, load.cut = 0, 0.8, False
    yield Namespace(cluster, name)
    cluster.kubectl.run("delete", "namespace", name, "--timeout=60s")
