"""`make demo`: which cluster it takes, and what it leaves alone."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest
import yaml

from builder.build import Built
from cluster.core import Cluster
from cluster.errors import ClusterError
from cluster.kubeconfig import Kubectl
from cluster.others import Other
from support.programs import Programs

pytestmark = pytest.mark.nightly

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """examples/demo.py, on a machine without clusters."""
    spec = importlib.util.spec_from_file_location("demo", REPOSITORY / "examples/demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return module


@pytest.fixture
def demo(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The same, without programs that make clusters; what it asks for is in its `asked`."""
    asked: list[Sequence[Any]] = []
    script.asked = asked  # type: ignore[attr-defined]
    monkeypatch.setattr(script.others, "given", lambda *words: asked.append(("given", *words[1:])))
    monkeypatch.setattr(script.others, "in_docker", lambda *words: asked.append(("in Docker", words[1])))
    return script


def test_a_context_is_given(demo: ModuleType) -> None:
    demo.elsewhere("tandem", "staging", "r.example")
    assert demo.asked == [("given", "staging", "r.example")]


def test_a_kubeconfig_is_given(demo: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/etc/staging")
    demo.elsewhere("tandem", "", "")
    assert demo.asked == [("given", "", "")]


def test_without_one_docker_is_asked_for(demo: ModuleType) -> None:
    assert demo.elsewhere("tandem", "", "") is None, "and else this machine has to be one"
    assert demo.asked == [("in Docker", "tandem")]


def test_its_own_cluster_is_none_of_others(demo: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo shows the command that puts its kubeconfig into the shell, from which it is run again."""
    monkeypatch.setenv("KUBECONFIG", str(Cluster("tandem").kubeconfig))
    monkeypatch.setattr(Cluster, "status", lambda _: {"etcd": 1})
    assert demo.elsewhere("tandem", "", "") is None
    assert demo.asked == []


@pytest.mark.parametrize(
    ("installed", "marked", "refused"),
    [
        ("[]", "[]", False),
        ('[{"name": "tandem"}]', '[{"name": "tandem"}]', False),
        ('[{"name": "tandem"}]', "[]", True),
    ],
    ids=["none", "the demo's", "another's"],
)
def test_a_tandem_of_others_is_not_replaced(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, installed: str, marked: str, refused: bool
) -> None:
    answers = {True: marked, False: installed}
    monkeypatch.setattr(demo, "helm", lambda _, *words: answers["demo=tandem" in words])
    cluster = Other("staging", "https://s", Kubectl(tmp_path / "kubectl", tmp_path / "kubeconfig"))
    if not refused:
        demo.check_free(cluster)
        return
    with pytest.raises(ClusterError, match="the cluster of staging has Tandem already"):
        demo.check_free(cluster)


@pytest.mark.parametrize(
    ("context", "ours", "command"),
    [
        ("kind-tandem", True, "kind delete cluster --name tandem"),
        ("k3d-tandem", True, "k3d cluster delete tandem"),
        ("kind-tandem", False, "helm uninstall tandem -n tandem-system"),
        ("staging", False, "helm uninstall tandem -n tandem-system"),
    ],
)
def test_it_shows_how_to_remove_what_it_made(
    demo: ModuleType, tmp_path: Path, context: str, ours: bool, command: str
) -> None:
    kubectl = Kubectl(tmp_path / "kubectl", tmp_path / "kubeconfig")
    lines = demo.removal(Other(context, "https://s", kubectl, ours=ours))
    assert any(command in line for line in lines)
    assert all(("delete cluster" in line or "cluster delete" in line) == ours for line in lines)
    assert "make down" in demo.removal(None)[0]


class Answers:
    """What the demo asks of kubectl."""

    binary = Path("/bin/kubectl")

    def get(self, *_: str) -> dict[str, Any]:
        return {"spec": {"clusterIP": "10.0.0.7"}}


@pytest.mark.parametrize(
    ("profile", "of", "target"),
    [
        ("reference", Cluster, ["--url", "10.0.0.7:8001", "--compare"]),
        ("reference", Other, ["quickstart", "--compare"]),
        ("vllm-cpu", Other, ["quickstart-vllm"]),
    ],
    ids=["its own cluster by the address", "another's by the service's name", "vLLM always drafts"],
)
def test_it_asks_for_completions(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, profile: str, of: type[Any], target: list[str]
) -> None:
    """One of address and name: the command refuses both."""
    ran: list[list[str]] = []

    def run(command: list[str], **_: Any) -> Any:
        ran.append(command)
        return Mock(returncode=0)

    monkeypatch.setattr(demo.subprocess, "run", run)
    cluster = Mock(spec=of, kubectl=Answers())
    assert demo.generate(cluster, demo.chosen(profile)) == 0
    assert ran[0][4:-4] == target


@pytest.mark.parametrize("profile", ["reference", "vllm-cpu"])
def test_each_profile_has_its_image_and_example(demo: ModuleType, profile: str) -> None:
    shown = demo.chosen(profile)
    names = [image.name for image in demo.inputs.select(shown.images)]
    assert profile in names
    service = yaml.safe_load(shown.example.read_text())
    assert (service["metadata"]["name"], service["spec"]["runtime"]["profile"]) == (shown.service, profile)
    images = [Built(name, f"r.example/{name}:1", Path("none"), ready=True) for name in names]
    assert {"name": profile, "image": f"r.example/{profile}:1"} in demo.helm_values(images)["profiles"]


def test_another_profile_is_refused(demo: ModuleType) -> None:
    with pytest.raises(ClusterError, match="no demo of profile torch: write PROFILE=reference or PROFILE=vllm-cpu"):
        demo.chosen("torch")


KUBECTL = """case "$*" in
  *deployments*) echo '{"items": []}';;
  *sis*) echo '{"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Up", "message": "m"}]}}';;
esac"""
GENERATE = 'echo "$KUBECONFIG" >> "${0%/*}/calls"'
CLUSTERS = {
    "kind": ("kind load image-archive /cache/{0}.tar --name tandem", "case $2 in clusters) ;; *) echo config;; esac"),
    "k3d": ("k3d image import /cache/{0}.tar --cluster tandem", "case $2 in list) ;; *) echo config;; esac"),
}


@pytest.mark.parametrize("program", CLUSTERS)
def test_from_docker_to_completions(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    program: str,
) -> None:
    """All commands, by stand-ins for the programs: each goes to the new cluster, and to no other."""
    load, answers = CLUSTERS[program]
    programs = Programs(tmp_path / "bin", monkeypatch)
    for name, text in {
        "docker": "",
        program: answers,
        "kubectl": KUBECTL,
        "helm": "echo '[]'",
        "python": GENERATE,
    }.items():
        programs.add(name, text)
    monkeypatch.setattr(script, "KUBECONFIGS", tmp_path / "demo")
    monkeypatch.setattr(script.sys, "executable", str(programs.folder / "python"))
    names = ("operator", "serving", "reference", "fetcher")
    images = [Built(name, f"localhost/tandem/{name}:1", Path(f"/cache/{name}.tar"), ready=True) for name in names]
    monkeypatch.setattr(script, "built_images", lambda _: images)
    script.demo()
    kubeconfig = tmp_path / "demo" / f"{program}-kubeconfig"
    assert kubeconfig.read_text() == "config\n"
    loaded = [call for call in programs.calls if "/cache/" in call]
    assert loaded == [load.format(name) for name in names]
    after = programs.calls[programs.calls.index(loaded[-1]) + 1 :]
    assert [call.split()[0] for call in after[:-1]] == ["helm", "kubectl", "kubectl", "kubectl", "python"]
    assert after[0].startswith("helm upgrade --install tandem ")
    assert after[0].endswith(f"--kubeconfig {kubeconfig}")
    assert after[2] == f"kubectl --kubeconfig={kubeconfig} apply -f {script.QUICKSTART.example}"
    assert after[-2].startswith("python -m tandem generate quickstart --compare")
    assert after[-1] == str(kubeconfig), "its KUBECONFIG"
    assert f"export KUBECONFIG={kubeconfig}" in capsys.readouterr().out
    clusters = [call for call in programs.calls if call.startswith(("kubectl", "helm"))]
    assert all(str(kubeconfig) in call for call in clusters)
