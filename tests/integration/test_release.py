"""Releases in a registry: a cluster installs, upgrades, goes back and uninstalls them, and services serve on."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from builder import inputs
from builder.errors import BuildError
from cluster.core import Cluster
from release import bases, cli, oci, tools
from release.make import Order, make
from release.publish import publish
from support import docker_archives
from tandem import __version__

from .conftest import SERVICE, STAGES, Namespace, wait_established, wait_for
from .registry import NAMES, SOURCE, Published, registry, release
from .release import GROUP, TIMES, Release

pytestmark = pytest.mark.nightly

SERVICES = f"speculativeinferenceservices.{GROUP}"
NEXT = "99.0.0"
QUICK = {**TIMES, "metricsServer": {"register": False}}
"""Values of a cluster with simulated pods, which answer nobody; none names an image."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with registry(tmp_path_factory.mktemp("registry") / "content") as found:
        yield found


@pytest.fixture(scope="module")
def old(address: str, tmp_path_factory: pytest.TempPathFactory) -> Published:
    return release(__version__, address, tmp_path_factory.mktemp("old"))


@pytest.fixture(scope="module")
def new(address: str, tmp_path_factory: pytest.TempPathFactory) -> Published:
    return release(NEXT, address, tmp_path_factory.mktemp("new"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster without Tandem."""
    made = Cluster("tandem-release", say=print)
    made.down()
    made.folder.mkdir(parents=True)
    shutil.copytree(STAGES, made.folder / "stages")
    made.up(["simulated:2"])
    yield made
    made.down()


@pytest.fixture(scope="module")
def team(cluster: Cluster) -> Namespace:
    cluster.kubectl.run("create", "namespace", "team")
    return Namespace(cluster, "team")


def servers(team: Namespace, service: str = "svc") -> dict[str, set[str]]:
    """UID of each server pod to its images."""
    pods = team.items("pods", f"serving.tandem.dev/service={service},serving.tandem.dev/component=server")
    return {
        pod["metadata"]["uid"]: {
            container["image"] for kind in ("initContainers", "containers") for container in pod["spec"].get(kind, [])
        }
        for pod in pods
    }


def serving(published: Published) -> set[str]:
    """Images of a server's pod in profile `reference`."""
    return {published.images.ref("serving"), published.images.ref("reference")}


def operator_image(cluster: Cluster) -> str:
    deployment = cluster.kubectl.get("deployment", "tandem-operator", "-n", "tandem-system")
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])


def look_after(release: Release, folder: Path, team: Namespace, *services: str) -> None:
    """Run the installed operator until it has reconciled each service, which shows in a child that comes back."""
    folder.mkdir()
    with release.running(folder):
        for name in services:
            team.run("delete", "service", f"{name}-triton", "--ignore-not-found")
            wait_for(f"the Service of {name}", lambda name=name: team.get("service", f"{name}-triton"))  # type: ignore[misc]
            team.wait("Ready", "True", name=name)


def serve(team: Namespace, name: str) -> None:
    """Ask for a service of profile `reference`."""
    service = yaml.safe_load(SERVICE)
    service["metadata"]["name"] = name
    team.apply(yaml.safe_dump(service))


def delete_services(team: Namespace) -> None:
    """As docs/how-to/upgrade.md has it: what is left of a service when its definition goes, Kubernetes' garbage
    collector may never remove, which does not know the owner's kind any more."""
    team.run("delete", "sis", "--all", "--cascade=foreground", "--timeout=240s")
    wait_for("the pods to go", lambda: not team.items("pods"))


def test_what_is_published_is_what_was_made(old: Published, new: Published) -> None:
    for made in (old, new):
        for name in NAMES:
            tag = f"{made.images.registry}/{name}:{made.version}"
            assert tools.crane("digest", tag).strip() == oci.digest(made.folder / "images" / name)
            tools.crane("validate", "--remote", made.images.ref(name))
    assert old.images.digests.keys() == new.images.digests.keys()
    assert not set(old.images.digests.values()) & set(new.images.digests.values())


def test_bases_are_pinned_as_their_registry_has_them(
    address: str, old: Published, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tag = f"{address}/tandem/operator:{old.version}"
    for image in inputs.select(list(inputs.NAMES)):
        (tmp_path / image.containerfile).parent.mkdir(parents=True)
        (tmp_path / image.containerfile).write_text(f"ARG BASE={tag}\nFROM ${{BASE}}\n")
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    cli.bases_()
    bases.check(tmp_path, inputs.select([]))
    text = (tmp_path / "images/operator/Containerfile").read_text()
    assert text == f"ARG BASE={tag}@{old.images.digests['operator']}\nFROM ${{BASE}}\n"
    tools.crane("validate", "--remote", text.split()[1].removeprefix("BASE="))


def test_a_published_version_never_changes(address: str, old: Published, tmp_path: Path) -> None:
    publish(old.folder)  # the same again is no error
    (tmp_path / "images").mkdir()
    other = make(
        Order(old.version, old.images.registry, plugins=()),
        {name: docker_archives.write(tmp_path / f"{name}.tar", [{"name": "another"}]) for name in NAMES},
        SOURCE,
        tmp_path / old.version,
    )
    assert other.digests != old.images.digests
    with pytest.raises(BuildError, match="a published version never changes"):
        publish(tmp_path / old.version)


def test_helm_installs_upgrades_goes_back_and_uninstalls(
    cluster: Cluster, team: Namespace, old: Published, new: Published, tmp_path: Path
) -> None:
    """No value names an image. The service of the old version keeps its pods throughout."""
    release = Release(cluster, "tandem", "tandem-system", QUICK)
    from_registry = ("--plain-http", "--create-namespace", "--version")
    release.install(old.chart, *from_registry, old.version)
    assert operator_image(cluster) == old.images.ref("operator")
    serve(team, "svc")
    look_after(release, tmp_path / "installed", team, "svc")
    pods = servers(team)
    assert list(pods.values()) == [serving(old)]

    release.install(new.chart, *from_registry, new.version)
    assert operator_image(cluster) == new.images.ref("operator")
    serve(team, "later")
    look_after(release, tmp_path / "upgraded", team, "svc", "later")
    assert servers(team) == pods, "an upgrade rolls nothing"
    later = servers(team, "later")
    assert list(later.values()) == [serving(new)]

    release.helm("rollback", release.name, "1", "--wait")
    assert operator_image(cluster) == old.images.ref("operator")
    look_after(release, tmp_path / "back", team, "svc", "later")
    assert (servers(team), servers(team, "later")) == (pods, later), "nor does the way back"

    release.helm("uninstall", release.name, "--wait")
    assert not cluster.kubectl.works("get", "deployment", "tandem-operator", "-n", "tandem-system")
    assert (servers(team), servers(team, "later")) == (pods, later), "services serve on"
    delete_services(team)
    cluster.kubectl.run("delete", "crd", SERVICES, "--timeout=240s")
    cluster.kubectl.run("delete", "namespace", "tandem-system", "--timeout=240s")


def apply(cluster: Cluster, published: Published) -> None:
    """`kubectl apply` of a release's install.yaml, until its operator and its resource are there."""
    cluster.kubectl.run("apply", "--server-side", "-f", str(published.folder / "install.yaml"))
    # The simulated pods of the metrics server answer nobody.
    cluster.kubectl.run("delete", "apiservice", "v1beta2.custom.metrics.k8s.io")
    wait_established(cluster, SERVICES)
    arguments = ("rollout", "status", "deployment/tandem-operator", "-n", "tandem-system", "--timeout=240s")
    cluster.kubectl.run(*arguments)
    assert operator_image(cluster) == published.images.ref("operator")


def test_kubectl_installs_upgrades_goes_back_and_removes(
    cluster: Cluster, team: Namespace, old: Published, new: Published, tmp_path: Path
) -> None:
    """The same by install.yaml."""
    release = Release(cluster, "tandem", "tandem-system")
    apply(cluster, old)
    serve(team, "svc")
    look_after(release, tmp_path / "installed", team, "svc")
    pods = servers(team)
    assert list(pods.values()) == [serving(old)]
    for step in (new, old):
        apply(cluster, step)
        look_after(release, tmp_path / f"applied-{step.version}", team, "svc")
        assert servers(team) == pods
    cluster.kubectl.run("delete", "namespace", "tandem-system", "--timeout=240s")
    assert servers(team) == pods, "services serve on"
    delete_services(team)
    cluster.kubectl.run("delete", "--ignore-not-found", "-f", str(old.folder / "install.yaml"), "--timeout=240s")
    left = cluster.kubectl.run("get", "crd,clusterroles,clusterrolebindings", "-o", "name")
    assert "tandem" not in left
