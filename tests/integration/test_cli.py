"""The commands against a real API server: whose rights they have, and what apply, diff, status and doctor answer."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

import tandem
from cluster.core import Cluster
from tandem.cli import app, apply

from .conftest import REPOSITORY, SERVICE, Namespace, OperatorProcess, edited, wait_for

STRANGER = "stranger"
PROMPTS = str(REPOSITORY / "examples/prompts.jsonl")


@pytest.fixture(autouse=True)
def kubectl(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands find the cluster's kubectl, and its kubeconfig."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/kubectl").symlink_to(cluster.kubectl.binary)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    monkeypatch.setattr(apply, "POLL_SECONDS", 0.2)


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def written(folder: Path, name: str = "svc", **changes: Any) -> Path:
    """A service in a file, with changes."""
    raw = edited(SERVICE, **changes)
    raw["metadata"]["name"] = name
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(raw), encoding="utf-8")
    return folder / f"{name}.yaml"


COMMANDS = [
    *(["status", "svc"], ["top"], ["logs", "svc"], ["events", "svc"], ["doctor", "svc"], ["cache", "prune"]),
    *(["apply", "-f", "FILE"], ["diff", "-f", "FILE"]),
    *(["generate", "svc", "-p", "x"], ["bench", "svc", "--prompts", PROMPTS], ["conformance", "svc"]),
]


def test_each_command_is_of_the_user_that_is_impersonated(untouched: Namespace, tmp_path: Path) -> None:
    file = str(written(tmp_path))
    for command in COMMANDS:
        words = [file if word == "FILE" else word for word in command]
        done = run(*words, "-n", untouched.name, "--as", STRANGER)
        assert done.exit_code == (2 if command[0] == "diff" else 1), (command, done.output)
        assert f'User "{STRANGER}" cannot' in done.stderr, (command, done.output)


def test_apply_waits_diff_shows_what_rolls_and_status_has_a_code(
    operator: OperatorProcess, namespace: Namespace, tmp_path: Path
) -> None:
    here, settings = ("-n", namespace.name), ("--settings", operator.settings)
    file = written(tmp_path)
    new = run("diff", "-f", file, *here, *settings)
    assert (new.exit_code, new.stderr) == (1, f"{namespace.name}/svc: new\n"), new.output
    assert "+kind: Deployment" in new.stdout
    assert namespace.get("sis", "svc") is None, "a diff makes nothing"
    applied = run("apply", "-f", file, *here, *settings, "--wait", "--timeout", "300")
    assert applied.exit_code == 0, applied.output
    stages = [line.split(":")[1].strip() for line in applied.stdout.splitlines()[1:]]
    assert stages == ["SpecAccepted", "ModelsReady", "PairCompatible", "Available", "Ready"]
    assert run("status", "svc", *here).exit_code == 0
    _diff_of_a_live_service(namespace, file, tmp_path, *here, *settings)
    _a_wait_that_fails(namespace, tmp_path, *here, *settings)
    operator.stop()
    namespace.run("set", "env", "deployment/svc-server", "X=1", "--containers=triton")
    told = run("diff", "-f", written(tmp_path), *here, *settings)
    assert told.exit_code == 1, told.output
    variable = "spec.template.spec.containers[triton].env[X]"
    assert told.stdout == f"# Deployment svc-server: kubectl-set wrote {variable}: the operator removes it\n"
    assert told.stderr == f"{namespace.name}/svc: pods roll one by one: what others wrote into them goes\n"


def _diff_of_a_live_service(namespace: Namespace, file: Path, tmp_path: Path, *options: str | Path) -> None:
    same = run("diff", "-f", file, *options)
    assert (same.exit_code, same.stdout) == (0, ""), same.output
    assert same.stderr == f"{namespace.name}/svc: nothing changes for its children\n"
    namespace.wait_settled()
    before = namespace.get("sis", "svc")["metadata"]["resourceVersion"]
    more = run("diff", "-f", written(tmp_path, replicas=2), *options)
    assert (more.exit_code, more.stderr) == (1, f"{namespace.name}/svc: pods stay as they are\n"), more.output
    scaled = run("diff", "-f", written(tmp_path, autoscaling={"maxReplicas": 3}), *options)
    assert "+kind: HorizontalPodAutoscaler" in scaled.stdout, scaled.output
    rolls = run("diff", "-f", written(tmp_path, speculation__maxDraftLen=2), *options)
    assert rolls.exit_code == 1, rolls.output
    assert f"{namespace.name}/svc: pods roll one by one: revision " in rolls.stderr
    assert "+    maxDraftLen: 2" in rolls.stdout, "the service itself"
    assert "+++ " in rolls.stdout.partition("apps.v1.Deployment")[2], "and what the operator would change"
    assert namespace.get("sis", "svc")["metadata"]["resourceVersion"] == before


def _a_wait_that_fails(namespace: Namespace, tmp_path: Path, *options: str | Path) -> None:
    bad = written(tmp_path, "bad", runtime__image="simulated/missing-model:1")
    done = run("apply", "-f", bad, *options, "--wait", "--timeout", "300")
    assert done.exit_code == 1, done.output
    assert "error: bad: ModelNotFound: /no/such/model is not in the image" in done.stderr
    assert run("status", "bad", "-n", namespace.name).exit_code == 3
    both = run("status", "-n", namespace.name, "-o", "json")
    assert both.exit_code == 3, "any of several"
    found = {each["name"]: (each["ready"], each["stalled"]) for each in json.loads(both.stdout)["services"]}
    assert found == {"svc": (True, False), "bad": (False, True)}
    told = run("events", "bad", "-n", namespace.name)
    assert "ModelNotFound" in told.stdout
    assert "SpeculativeInferenceService/svc" not in told.stdout


def test_kubectl_runs_its_plugin_and_completes_it(
    cluster: Cluster, untouched: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, function in (("kubectl-tandem", "plugin"), ("kubectl_complete-tandem", "complete")):
        code = f"from tandem.cli.plugin import {function}; {function}()"
        (tmp_path / "bin" / name).write_text(f'#!/bin/bash\nexec {sys.executable} -c "{code}" "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "operator"))
    listed = subprocess.run(
        ["kubectl", "tandem", "status", "-n", untouched.name], capture_output=True, text=True, check=True
    )
    assert listed.stdout == "there are no services here; -A shows those of all namespaces\n"
    words = ["kubectl", "__complete", "tandem", "doc"]
    completed = subprocess.run(words, capture_output=True, text=True, check=True)
    assert completed.stdout.split() == ["doctor", ":0"]


HOME = "tandem-doctor"
LABELS = {
    "app.kubernetes.io/name": "tandem",
    "app.kubernetes.io/component": "operator",
    "app.kubernetes.io/version": tandem.__version__,
}


@pytest.fixture
def deployed(cluster: Cluster) -> Iterator[None]:
    """What looks like an operator's Deployment; a simulated node runs its pod."""
    cluster.kubectl.run("create", "namespace", HOME)
    pod = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
    made = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "tandem-operator", "namespace": HOME, "labels": LABELS},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": pod},
    }
    cluster.kubectl.run("apply", "-f", "-", stdin=json.dumps(made))
    yield
    cluster.kubectl.run("delete", "namespace", HOME, "--wait=false")


def test_doctor(deployed: None, cluster: Cluster, namespace: Namespace) -> None:
    available = ("get", "deployment", "tandem-operator", "-n", HOME, "-o", "jsonpath={.status.availableReplicas}")
    wait_for("the operator's pod", lambda: cluster.kubectl.run(*available) == "1")
    whole = run("doctor", "-n", namespace.name, "-o", "json")
    states = {each["check"]: each["state"] for each in json.loads(whole.stdout)["findings"]}
    assert whole.exit_code == 0, whole.output
    good = ("Kubernetes", "CRD", "operator", "your rights", "KEDA", "LeaderWorkerSet", "quota")
    assert {states[check] for check in good} == {"ok"}, states
    assert (states["custom metrics API"], states["GPUs"]) == ("warn", "warn"), "there is neither"
    namespace.apply(podTemplate__spec={"imagePullSecrets": [{"name": "pull"}]})
    namespace.run("create", "secret", "generic", "pull", "--from-literal=a=b")
    broken = run("doctor", "svc", "-n", namespace.name)
    assert broken.exit_code == 1, broken.output
    assert "registry" in broken.stdout
    assert "is of type Opaque: make it of type kubernetes.io/dockerconfigjson" in " ".join(broken.stdout.split())
