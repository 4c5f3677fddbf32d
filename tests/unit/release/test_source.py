"""What a release is made from, and by whom."""

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from builder.errors import BuildError
from release import provenance
from release.cli import app
from release.make import source

GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "o/tandem",
    "GITHUB_RUN_ID": "7",
    "GITHUB_RUN_ATTEMPT": "2",
    "GITHUB_REF": "refs/tags/v1.2.3",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "images/operator").mkdir(parents=True)
    (tmp_path / "images/operator/Containerfile").write_text("FROM scratch\n")
    (tmp_path / "images/operator/requirements.txt").write_text("a==1\n")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *command], check=True)
    return tmp_path


def test_a_clean_commit_is_a_source(checkout: Path) -> None:
    found = source(checkout)
    assert len(found.commit) == 40
    assert found.repository == ""
    assert list(found.materials) == ["images/operator/Containerfile", "images/operator/requirements.txt"]


@pytest.mark.parametrize(("url", "shown"), [("https://example.com/t", "https://example.com/t"), ("/srv/t", "")])
def test_the_repository_is_named_where_others_reach_it(checkout: Path, url: str, shown: str) -> None:
    subprocess.run(["git", "-C", str(checkout), "remote", "add", "origin", url], check=True)
    assert source(checkout).repository == shown


def test_changes_that_are_not_committed_are_refused(checkout: Path) -> None:
    (checkout / "new").touch()
    with pytest.raises(BuildError, match=r"1 files that are not committed \(new, \.\.\.\)"):
        source(checkout)


def test_another_version_is_refused() -> None:
    result = CliRunner().invoke(app, ["make", "99.0.0"])
    assert isinstance(result.exception, BuildError)
    assert "not 99.0.0: set it in operator/tandem/__init__.py" in str(result.exception)


def test_the_builder_is_githubs_workflow_or_a_machine() -> None:
    assert provenance.builder({}).id == f"{provenance.BUILD_TYPE}/local"
    by = provenance.builder(GITHUB)
    assert by.id == "https://github.com/o/tandem/.github/workflows/release.yaml@refs/tags/v1.2.3"
    assert by.run == "https://github.com/o/tandem/actions/runs/7/attempts/2"
