"""Which binary is used, and under what name a built one is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cluster import binaries
from cluster.binaries import GO_DIR, TOOLS, Tool
from cluster.errors import ClusterError

pytestmark = pytest.mark.nightly

GO_MODS = [
    pytest.param("require example.com/a v1.2.3\n", "v1.2.3", id="on one line"),
    pytest.param("require (\n\texample.com/b v9.9.9\n\texample.com/a v0.4.0 // indirect\n)\n", "v0.4.0", id="block"),
    pytest.param("replace example.com/a => ../a\nrequire example.com/a v0.2.0\n", "v0.2.0", id="replaced"),
    pytest.param("require example.com/a/v2 v2.0.0\n", None, id="another module that starts alike"),
]


@pytest.mark.parametrize(("text", "expected"), GO_MODS)
def test_version_in_go_mod(text: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(ClusterError, match="go mod tidy"):
            binaries.required_version(text, "example.com/a")
    else:
        assert binaries.required_version(text, "example.com/a") == expected


@pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)
def test_every_tool_is_pinned_with_hashes(tool: Tool) -> None:
    folder = GO_DIR / tool.module
    assert binaries.version(tool).startswith("v")
    assert (
        tool.versioned_by is None
        or f"{tool.versioned_by} {binaries.version(tool)} h1:" in (folder / "go.sum").read_text()
    )


def test_kubernetes_is_1_36() -> None:
    assert binaries.version(TOOLS["kube-apiserver"]).startswith("v1.36.")
    assert "gitMinor=36" in binaries.ldflags(TOOLS["kubelet"])


def test_the_next_release_takes_the_place_of_the_usual_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where KUBEBUILDER_ASSETS names its folder, which has the rest from the cache as ever."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in binaries.NEXT:
        built = binaries.cached_path(TOOLS[f"{name}-next"])
        assert "gitMinor=37" in binaries.ldflags(TOOLS[f"{name}-next"])
        built.parent.mkdir(parents=True)
        built.write_text("#!/bin/sh\n")
        built.chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(binaries.next_release(print)))
    for name in binaries.NEXT:
        found = binaries.find(name)
        assert found
        assert found.resolve() == binaries.cached_path(TOOLS[f"{name}-next"])
    assert binaries.from_assets("kubectl") is None
    assert not set(binaries.STANDARD) & {f"{name}-next" for name in binaries.NEXT}, "no part of make test"


def test_any_change_of_the_module_asks_for_a_new_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "GO_DIR", tmp_path)
    module = tmp_path / "thing"
    module.mkdir()
    seen = set()
    for sums in ("one", "two"):
        (module / "go.sum").write_text(sums)
        seen.add(binaries.cached_path(Tool("thing", "thing", ".")))
    assert len(seen) == 2


def test_assets_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    given = tmp_path / "etcd"
    given.write_text("#!/bin/sh\n")
    assert binaries.from_assets("etcd") is None, "what cannot be executed is no binary"
    given.chmod(0o755)
    assert binaries.find("etcd") == given
    assert binaries.from_assets("kubelet") is None


def test_without_go_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    with pytest.raises(ClusterError, match=r"install Go 1\.26"):
        binaries.ensure(["pause"], print)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Go keeps what it compiled where it always does: in another place it would begin with its library."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    monkeypatch.setenv("GOCACHE", os.environ.get("GOCACHE") or str(caches / "go-build"))


def test_a_failed_build_shows_the_compiler_and_leaves_nothing(
    compiled: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(binaries, "GO_DIR", tmp_path)
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing" / "go.mod").write_text("module example.com/thing\n\ngo 1.26.0\n")
    (tmp_path / "thing" / "main.go").write_text("package main\n\nfunc main() { undefined() }\n")
    tool = Tool("thing", "thing", ".")
    with pytest.raises(ClusterError, match="undefined: undefined"):
        binaries.build(tool, print)
    assert [path.name for path in binaries.cached_path(tool).parent.iterdir()] == [".lock"]


def test_files_and_folders_are_put_beside_the_binary_as_ones_own(tmp_path: Path) -> None:
    module, beside = tmp_path / "module", tmp_path / "bin"
    for path in ("LICENSE", "config/rbac/role.yaml", "config/metrics/role.yaml"):
        (module / path).parent.mkdir(parents=True, exist_ok=True)
        (module / path).write_text(path)
        (module / path).chmod(0o444)  # as in Go's module cache
    for path in ("LICENSE", "config"):
        binaries._put_beside(module / path, beside)
    found = {str(path.relative_to(beside)): path for path in beside.rglob("*") if path.is_file()}
    assert {path: copy.read_text() for path, copy in found.items()} == {path: path for path in found}
    assert set(found) == {"LICENSE", "config/rbac/role.yaml", "config/metrics/role.yaml"}
    assert all(copy.stat().st_mode & 0o200 for copy in found.values())


def test_a_build_is_said_kept_and_not_repeated(
    compiled: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: list[str] = []
    path = binaries.build(TOOLS["pause"], said.append)
    assert path.exists()
    assert said[0].startswith("building pause v0")
    assert said[1].startswith("built pause in")
    assert binaries.build(TOOLS["pause"], said.append) == path
    assert len(said) == 2
