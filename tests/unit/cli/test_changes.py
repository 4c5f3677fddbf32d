"""What a change rolls out: `tandem render --diff`, and the lines of `tandem diff`."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from support.services import QUICKSTART
from tandem.cli import app


def written(folder: Path, name: str = "svc", **changes: Any) -> Path:
    """The quickstart in a file of a folder, with changes below spec, by paths with `__` for the dot."""
    raw = yaml.safe_load(QUICKSTART)
    raw["metadata"]["name"] = name
    for path, value in changes.items():
        *parents, last = path.split("__")
        node = raw["spec"]
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(raw), encoding="utf-8")
    return folder / f"{name}.yaml"


CHANGES: list[tuple[str, dict[str, Any], str, list[str]]] = [
    # reason, changes, the service's line, parts of the diff
    ("nothing changes", {}, "nothing changes", []),
    ("another draft length", {"speculation__maxDraftLen": 2}, "pods roll one by one: revision ", ["-", "+"]),
    (
        "on the last GPU",
        {"speculation__maxDraftLen": 2, "rollout__strategy": "Replace"},
        "pods roll all at once, with downtime (strategy Replace): revision ",
        ["+    type: Recreate"],
    ),
    ("more pods", {"replicas": 3}, "pods stay as they are; changes Deployment svc-server", ["+  replicas: 3"]),
]


@pytest.mark.parametrize(("reason", "changes", "line", "parts"), CHANGES, ids=[row[0] for row in CHANGES])
def test_a_change_and_what_it_does_to_pods(
    tmp_path: Path, reason: str, changes: dict[str, Any], line: str, parts: list[str]
) -> None:
    old, new = written(tmp_path / "old"), written(tmp_path / "new", **changes)
    done = CliRunner().invoke(app, ["render", "-f", str(new), "--diff", str(old)])
    assert done.exit_code == 0, done.stderr
    assert done.stderr.startswith(f"default/svc: {line}"), reason
    assert all(part in done.stdout for part in parts), done.stdout
    assert bool(done.stdout) is bool(changes)


def test_a_revisions_files_are_compared_though_its_name_is_new(tmp_path: Path) -> None:
    old, new = written(tmp_path / "old"), written(tmp_path / "new", speculation__maxDraftLen=2)
    shown = CliRunner().invoke(app, ["render", "-f", str(new), "--diff", str(old)]).stdout
    headers = [line.split("/")[0] for line in shown.splitlines() if line.startswith(("---", "+++"))]
    assert headers == [f"{sign} {kind}" for kind in ("ConfigMap", "Job", "Deployment") for sign in ("---", "+++")]
    assert "/dev/null" not in shown


def test_services_that_come_and_go(tmp_path: Path) -> None:
    for name in ("one", "two"):
        written(tmp_path / "old", name)
    for name in ("two", "three"):
        written(tmp_path / "new", name)
    done = CliRunner().invoke(app, ["render", "-f", str(tmp_path / "new"), "--diff", str(tmp_path / "old")])
    assert done.stderr.splitlines() == [
        "default/three: new",
        "default/two: nothing changes",
        "default/one: removed: its pods and children go with it",
    ]
    assert "+++ Deployment/three-server" in done.stdout
    assert "--- Deployment/one-server" in done.stdout
    assert "two" not in done.stdout


def test_standard_input_against_a_file(tmp_path: Path) -> None:
    """As after `kubectl kustomize`."""
    old, new = written(tmp_path / "old"), written(tmp_path / "new", replicas=2)
    words = ["render", "-f", "-", "--diff", str(old)]
    done = CliRunner().invoke(app, words, input=new.read_text(encoding="utf-8"))
    assert (done.exit_code, done.stderr) == (0, "default/svc: pods stay as they are; changes Deployment svc-server\n")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A Git repository with one service in a folder."""
    written(tmp_path / "services")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    return tmp_path / "services"


@pytest.mark.parametrize("whole", [True, False], ids=["a folder", "a file"])
def test_against_a_revision_in_git(repository: Path, whole: bool) -> None:
    file = written(repository, speculation__maxDraftLen=2)
    done = CliRunner().invoke(app, ["render", "-f", str(repository if whole else file), "--diff-git", "HEAD"])
    assert done.exit_code == 0, done.stderr
    assert done.stderr.startswith("default/svc: pods roll")


def test_a_file_that_git_does_not_have_yet_is_new(repository: Path) -> None:
    file = written(repository, "other")
    done = CliRunner().invoke(app, ["render", "-f", str(file), "--diff-git", "HEAD"])
    assert (done.exit_code, done.stderr) == (0, "default/other: new\n")


WRONG = [
    (["--diff-git", "no-such-revision"], "git: fatal: "),
    (["--diff", "no-such-file"], "cannot read no-such-file"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=["revision", "file"])
def test_what_is_not_there_is_an_error(repository: Path, options: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["render", "-f", str(repository), *options])
    assert done.exit_code == 1
    assert message in done.stderr


def test_two_bases_contradict_each_other(repository: Path) -> None:
    done = CliRunner().invoke(app, ["render", "-f", str(repository), "--diff", "x", "--diff-git", "HEAD"])
    assert done.exit_code == 2


def test_a_folders_other_files_need_no_service(tmp_path: Path) -> None:
    folder = written(tmp_path / "services").parent
    (folder / "namespace.yml").write_text("kind: Namespace\nmetadata: {name: a}\n", encoding="utf-8")
    (folder / "notes.txt").write_text("kind: {", encoding="utf-8")
    done = CliRunner().invoke(app, ["validate", "-f", str(folder)])
    assert (done.exit_code, done.stdout) == (0, "svc: accepted, profile reference\n")
    (folder / "svc.yaml").unlink()
    done = CliRunner().invoke(app, ["validate", "-f", str(folder)])
    assert (done.exit_code, "there is no SpeculativeInferenceService in" in done.stderr) == (1, True)


def test_a_folders_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    """Of whichever kind: what is left out without a word would not be applied, either."""
    folder = written(tmp_path / "services").parent
    (folder / "gone.yaml").symlink_to("nowhere.yaml")
    done = CliRunner().invoke(app, ["render", "-f", str(folder)])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "gone.yaml: No such file or directory" in done.stderr


def test_a_folder_without_manifests_is_a_fault(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["validate", "-f", str(tmp_path)])
    assert (done.exit_code, "there is no *.json, *.yaml, *.yml in" in done.stderr) == (1, True)
