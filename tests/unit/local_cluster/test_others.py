"""Clusters of others: the commands that find and make them, and how images get there."""

import json
import stat
from pathlib import Path

import pytest

from cluster import others
from cluster.errors import ClusterError
from cluster.kubeconfig import Kubectl
from cluster.others import Image, Other
from support.programs import Programs

pytestmark = pytest.mark.nightly

CONFIG = {
    "current-context": "kind-mine",
    "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443"}}],
}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    found = Programs(tmp_path / "bin", monkeypatch)
    found.add("kubectl", f"case $1 in config) echo '{json.dumps(CONFIG)}';; esac")
    return found


IMAGES = {"operator": Image("localhost/tandem/operator:abc", Path("/cache/operator-abc.tar"))}


def other(context: str, folder: Path, registry: str = "") -> Other:
    return Other(context, "https://s", Kubectl(folder / "kubectl", folder / "kubeconfig"), registry)


@pytest.mark.parametrize(
    ("context", "program", "call"),
    [
        ("kind-a-b", "kind", "kind load image-archive /cache/operator-abc.tar --name a-b"),
        ("k3d-mine", "k3d", "k3d image import /cache/operator-abc.tar --cluster mine"),
    ],
)
def test_images_are_loaded(programs: Programs, tmp_path: Path, context: str, program: str, call: str) -> None:
    programs.add(program)
    assert other(context, tmp_path).take(IMAGES, print) == {"operator": "localhost/tandem/operator:abc"}
    assert programs.calls == [call]


def test_images_are_pushed_where_a_registry_is_given(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs.add("crane")
    monkeypatch.setattr("cluster.binaries.ensure", lambda *_: {"crane": programs.folder / "crane"})
    refs = other("kind-mine", tmp_path, "r.example:5000/x").take(IMAGES, print)
    assert refs == {"operator": "r.example:5000/x/operator:abc"}
    assert programs.calls == ["crane push /cache/operator-abc.tar r.example:5000/x/operator:abc"]


@pytest.mark.parametrize("context", ["production", "kind-mine"])
def test_without_a_way_for_images_it_says_what_to_write(programs: Programs, tmp_path: Path, context: str) -> None:
    """kind is not in PATH."""
    with pytest.raises(ClusterError, match=f"the cluster of {context} starts no image .* write REGISTRY=host/path"):
        other(context, tmp_path).take(IMAGES, print)


def test_a_given_cluster_is_reached_by_a_copy_of_its_context(programs: Programs, tmp_path: Path) -> None:
    found = others.given(tmp_path / "demo", "kind-mine", "r.example")
    assert (found.context, found.server, found.registry) == ("kind-mine", "https://10.0.0.1:6443", "r.example")
    assert not found.ours
    assert json.loads(found.kubeconfig.read_text()) == CONFIG
    assert stat.S_IMODE(found.kubeconfig.stat().st_mode) == 0o600, "it has credentials"
    view, asked = programs.calls
    assert view == "kubectl config view --minify --flatten --raw -o json --context=kind-mine"
    assert asked == f"kubectl --kubeconfig={found.kubeconfig} get --raw /readyz --request-timeout=30s"


def test_a_cluster_that_does_not_answer_is_refused(programs: Programs, tmp_path: Path) -> None:
    programs.add("kubectl", f"case $1 in config) echo '{json.dumps(CONFIG)}';; *) echo refused >&2; exit 1;; esac")
    with pytest.raises(ClusterError, match="refused"):
        others.given(tmp_path / "demo")


@pytest.mark.parametrize(
    ("program", "there", "calls"),
    [
        (
            "kind",
            "",
            [
                "kind get clusters",
                "kind create cluster --name tandem --wait 180s --kubeconfig FILE",
                "kind get kubeconfig --name tandem",
            ],
        ),
        ("kind", "tandem", ["kind get clusters", "kind get kubeconfig --name tandem"]),
        (
            "k3d",
            "",
            [
                "k3d cluster list --no-headers",
                "k3d cluster create tandem --wait --timeout 180s --kubeconfig-update-default=false",
                "k3d kubeconfig get tandem",
            ],
        ),
    ],
)
def test_kind_and_k3d_make_a_cluster_once(
    programs: Programs, tmp_path: Path, program: str, there: str, calls: list[str]
) -> None:
    programs.add("docker")
    programs.add(program, f"case $2 in clusters|list) echo '{there}';; *) echo config;; esac")
    found = others.in_docker(tmp_path / "demo", "tandem", print)
    assert found is not None
    assert (found.context, found.ours) == (f"{program}-tandem", True)
    made = [call.replace(str(found.kubeconfig), "FILE") for call in programs.calls]
    assert made == ["docker info", *calls]
    assert found.kubeconfig.read_text() == "config\n"


@pytest.mark.parametrize(
    ("docker", "kind"), [("", True), ("exit 1", True), ("exit 0", False)], ids=["none", "dead", "no kind"]
)
def test_without_docker_or_kind_there_is_none(programs: Programs, tmp_path: Path, docker: str, kind: bool) -> None:
    if docker:
        programs.add("docker", docker)
    if kind:
        programs.add("kind")
    assert others.in_docker(tmp_path / "demo", "tandem", print) is None


def test_the_kubeconfig_of_the_home_folder_is_not_given() -> None:
    assert not others.wanted({})
    assert others.wanted({"KUBECONFIG": "/etc/a"})
