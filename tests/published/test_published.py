"""A release's images, from a registry, on a real kubelet: completions go on through upgrade, way back and removal."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import tritonclient.grpc as triton

from builder.build import Built
from cluster.core import Cluster
from e2e.completions import PROMPTS, stream, text
from e2e.conftest import FAST, QUICKSTART, REPOSITORY, Site, load_demo
from integration.release import Release
from release import chart, provenance
from release.make import Order, make
from release.publish import publish
from tandem import __version__

from .node_registry import node_registry

NEXT = "99.0.0"
CRD = "speculativeinferenceservices.serving.tandem.dev"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster("tandem-published", say=print)
    made.down()
    made.up(["real"])
    yield made
    made.down()


@pytest.fixture(scope="module")
def address(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with node_registry(cluster, tmp_path_factory.mktemp("registry") / "content") as found:
        yield found


@pytest.fixture(scope="module")
def images() -> list[Built]:
    made: list[Built] = load_demo().built_images()
    return made


@pytest.fixture(scope="module")
def releases(address: str, images: list[Built], tmp_path_factory: pytest.TempPathFactory) -> dict[str, chart.Images]:
    """Images of this version and the next, published."""
    folder, found = tmp_path_factory.mktemp("releases"), {}
    archives = {image.name: image.archive for image in images}
    for version in (__version__, NEXT):
        order = Order(version, f"{address}/tandem", plugins=())
        found[version] = make(order, archives, provenance.Source("", "0" * 40, {}), folder / version)
        publish(folder / version)
    return found


@contextmanager
def served(site: Site) -> Iterator[list[str]]:
    """Completions of one prompt, one after the other; raises what a client met."""
    texts: list[str] = []
    failures: list[Exception] = []
    end = threading.Event()

    def ask() -> None:
        with triton.InferenceServerClient(site.address("quickstart")) as client:
            while not end.is_set():
                try:
                    texts.append(text(stream(client, PROMPTS[0], 4)))
                except Exception as error:  # noqa: BLE001 - whatever a client meets
                    failures.append(error)
                    return

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield texts
    finally:
        end.set()
        thread.join(120)
    assert failures == []
    assert len(texts) > 1
    assert len(set(texts)) == 1


def test_completions_go_on_through_a_releases_life(
    cluster: Cluster, address: str, releases: dict[str, chart.Images]
) -> None:
    release, site = Release(cluster, "tandem", "tandem-system", FAST), Site(cluster)
    from_registry = (f"oci://{address}/tandem/charts/tandem", "--plain-http", "--create-namespace", "--version")
    release.install(*from_registry, __version__)
    site.run("apply", "-f", str(QUICKSTART))
    site.wait_condition("quickstart", "Ready", "True")
    (pod,) = site.items("pods", site.label("quickstart", "server"))
    used = {container["image"] for kind in ("initContainers", "containers") for container in pod["spec"][kind]}
    assert used == {releases[__version__].ref("serving"), releases[__version__].ref("reference")}
    pods = site.server_pods("quickstart")
    with served(site):
        release.install(*from_registry, NEXT)
        site.wait_reconciled("quickstart")
        site.wait_condition("quickstart", "Ready", "True")
        assert site.server_pods("quickstart") == pods
        release.helm("rollback", release.name, "1", "--wait")
        site.wait_reconciled("quickstart")
        release.helm("uninstall", release.name, "--wait")
    assert site.server_pods("quickstart") == pods
    site.run("delete", "crd", CRD, "--timeout=120s")
    site.run("delete", "namespace", "tandem-system", "--timeout=120s")


def demo(cluster: Cluster, *options: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig)}
    command = [sys.executable, str(REPOSITORY / "examples/demo.py"), *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_demo_runs_on_a_given_cluster(cluster: Cluster, address: str, images: list[Built]) -> None:
    """Where it can pull images; again, where all is there; and not over a Tandem of others."""
    refused = demo(cluster)
    assert refused.returncode == 1
    assert "write REGISTRY=host/path" in refused.stderr
    for _ in range(2):
        done = demo(cluster, "--registry", f"{address}/demo")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "median" in done.stdout
        assert "helm uninstall tandem -n tandem-system" in done.stdout
    release = Release(cluster, "tandem", "tandem-system")
    release.helm("upgrade", "tandem", str(REPOSITORY / "charts/tandem"), "--reuse-values", "--labels", "demo=null")
    foreign = demo(cluster, "--registry", f"{address}/demo")
    assert foreign.returncode == 1
    assert "has Tandem already" in foreign.stderr
