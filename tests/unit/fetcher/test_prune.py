"""What is removed from the cache, and what is left alone."""

import fcntl
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tandem_fetcher.cli import main
from tandem_fetcher.prune import prune

OLD = 7200.0


def folder(cache: Path, name: str, age: float = OLD, *, complete: bool = True) -> Path:
    made = cache / name
    made.mkdir(parents=True)
    (made / "weights").write_bytes(b"12345")
    (made / ".lock").touch()
    if complete:
        (made / ".complete").write_text("{}")
    for path in (*made.iterdir(), made):
        os.utime(path, (time.time() - age,) * 2)
    return made


@pytest.mark.parametrize(
    ("name", "age", "keep", "removed", "reason"),
    [
        ("models/a", OLD, [], True, "nobody refers to it"),
        ("models/a", OLD, ["models/a"], False, "a service refers to it"),
        ("models/a", OLD, ["models/ab"], True, "another's name is no reference"),
        ("models/a", 60, [], False, "just written or asked for"),
        ("engines/a", OLD, [], True, "engines too"),
        ("other/a", OLD, [], False, "not ours"),
    ],
)
def test_what_is_removed(tmp_path: Path, name: str, age: float, keep: list[str], removed: bool, reason: str) -> None:
    made = folder(tmp_path, name, age)
    found = prune(tmp_path, keep, 3600, dry_run=False)
    assert made.exists() is not removed, reason
    assert found.removed == ((name,) if removed else ())
    assert found.bytes >= 5 * removed


def test_what_somebody_writes_is_left_alone(tmp_path: Path) -> None:
    made = folder(tmp_path, "models/a", complete=False)
    with (made / ".lock").open() as held:
        fcntl.flock(held.fileno(), fcntl.LOCK_EX)
        assert prune(tmp_path, [], 3600, dry_run=False).removed == ()
    assert prune(tmp_path, [], 3600, dry_run=False).removed == ("models/a",)


@pytest.mark.parametrize("name", ["models/a", "engines/a"])
def test_what_is_half_removed_does_not_look_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    made = folder(tmp_path, name)
    (made / "engine").mkdir()
    monkeypatch.setattr(shutil, "rmtree", lambda path: (path / "weights").unlink())
    prune(tmp_path, [], 0, dry_run=False)
    assert not made.exists()
    monkeypatch.undo()
    assert len(prune(tmp_path, [], 0, dry_run=False).removed) == 1
    assert list(made.parent.iterdir()) == []


def test_a_dry_run_only_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = folder(tmp_path, "models/a")
    log = tmp_path / "log"
    assert main(["prune", "--cache", str(tmp_path), "--dry-run", "--termination-log", str(log)]) == 0
    told = json.loads(log.read_text())
    assert (told["removed"], told["folders"]) == (["models/a"], 1)
    assert json.loads(capsys.readouterr().out) == told
    assert made.exists()


def test_a_link_out_of_the_cache_is_not_followed(tmp_path: Path) -> None:
    outside = folder(tmp_path, "outside/a")
    (tmp_path / "models").mkdir()
    (tmp_path / "models/a").symlink_to(outside)
    assert prune(tmp_path, [], 0, dry_run=False).removed == ()
    assert outside.exists()
