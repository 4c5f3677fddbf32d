"""`kubectl tandem`: an archive that runs with the Python that is there, and krew's manifest of it."""

import os
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from builder.errors import BuildError
from release import plugin, signature

pytestmark = pytest.mark.nightly

PACKAGE = "import sys\nprint(sys.argv[1:], sys.version_info[:2])\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository whose command prints its arguments."""
    package = tmp_path / "root/operator/tandem"
    (package / "__pycache__").mkdir(parents=True)
    (package / "__pycache__/x.pyc").touch()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(PACKAGE)
    (tmp_path / "root/LICENSE").write_text("a licence")
    return tmp_path / "root"


@pytest.fixture
def unpacked(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that krew makes of the archive."""
    monkeypatch.setattr(plugin, "_unpack_wheels", lambda *_: None)
    archive = plugin.archive(root, "linux/amd64", tmp_path)
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "store", filter="data")
    return tmp_path / "store"


def run(program: Path, path: str) -> subprocess.CompletedProcess[str]:
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"} | {"PATH": path}
    return subprocess.run([program, "a", "b c"], env=environment, capture_output=True, text=True, check=False)


def test_the_program_runs_by_a_link(unpacked: Path, tmp_path: Path) -> None:
    """As krew has it in PATH; a Python that is a version manager's, and does not run, is passed over."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "kubectl-tandem").symlink_to(unpacked / "kubectl-tandem")
    for python, script in (("python3.12", "exit 127"), ("python3.11", 'exec /usr/bin/env python3 "$@"')):
        (bin_folder / python).write_text(f"#!/bin/sh\n{script}\n")
        (bin_folder / python).chmod(0o755)
    done = run(bin_folder / "kubectl-tandem", f"{bin_folder}:{os.environ['PATH']}")
    assert done.stdout.startswith("['a', 'b c'] (3,"), done.stderr


def test_without_python_it_says_what_to_install(unpacked: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for tool in ("dirname", "readlink"):
        (bare / tool).symlink_to(f"/usr/bin/{tool}")
    done = run(unpacked / "kubectl-tandem", str(bare))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "kubectl tandem needs Python: install python3.12 or python3.11\n"


def test_an_archive_depends_on_the_files_alone(root: Path, unpacked: Path, tmp_path: Path) -> None:
    assert not list(unpacked.rglob("*.pyc"))
    first = signature.sha256(tmp_path / "kubectl-tandem-linux-amd64.tar.gz")
    os.utime(root / "operator/tandem/__main__.py", (1, 1))
    assert signature.sha256(plugin.archive(root, "linux/amd64", tmp_path)) == first


def test_a_platform_without_wheels_is_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"no wheels for windows/amd64: write linux/amd64, "):
        plugin.archive(root, "windows/amd64", tmp_path)


def test_krew_finds_the_archive_of_each_platform() -> None:
    made = plugin.manifest("1.2.3", "https://example.com/v1.2.3", {"linux/amd64": "ab", "darwin/arm64": "cd"})
    assert yaml.safe_load(yaml.safe_dump(made))["spec"]["version"] == "v1.2.3"
    assert made["spec"]["platforms"] == [
        {
            "selector": {"matchLabels": {"os": "linux", "arch": "amd64"}},
            "uri": "https://example.com/v1.2.3/kubectl-tandem-linux-amd64.tar.gz",
            "sha256": "ab",
            "bin": "kubectl-tandem",
        },
        {
            "selector": {"matchLabels": {"os": "darwin", "arch": "arm64"}},
            "uri": "https://example.com/v1.2.3/kubectl-tandem-darwin-arm64.tar.gz",
            "sha256": "cd",
            "bin": "kubectl-tandem",
        },
    ]
