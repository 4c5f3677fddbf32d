"""What is removed from the cache, what is left alone, and that no fetch loses what it counts on."""

import errno
import fcntl
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tandem_fetcher import cli
from tandem_fetcher import prune as prune_module
from tandem_fetcher.cache import Entry, model_path
from tandem_fetcher.cli import main
from tandem_fetcher.prune import prune
from tandem_fetcher.uri import parse
from unit.fetcher.memory_source import MemorySource

OLD = 7200.0
KEY, OTHER = "a" * 32, "b" * 32
MODEL = f"models/{KEY}"


def folder(cache: Path, name: str, age: float = OLD, *, complete: bool = True, marker: str | None = "") -> Path:
    """A folder as the fetcher leaves it; `marker`: what stands in it, its name by default; None: there is none."""
    made = cache / name
    made.mkdir(parents=True)
    (made / "weights").write_bytes(b"12345")
    (made / ".lock").touch()
    if marker is not None:
        (made / ".tandem").write_text(marker or name)
    if complete:
        (made / ".complete").write_text("{}")
    aged(made, age)
    return made


def aged(folder: Path, age: float = OLD) -> None:
    for path in (*folder.iterdir(), folder):
        os.utime(path, (time.time() - age,) * 2)


@pytest.mark.parametrize(
    ("name", "age", "keep", "removed", "reason"),
    [
        (MODEL, OLD, [], True, "nobody refers to it"),
        (MODEL, OLD, [MODEL], False, "a service refers to it"),
        (MODEL, OLD, [MODEL[:-1]], True, "another's name is no reference"),
        (MODEL, OLD, ["models"], False, "a service refers to all models"),
        (MODEL, OLD, ["engines"], True, "a service refers to all engines"),
        (MODEL, OLD, ["."], False, "a service refers to all of the volume"),
        (MODEL, 60, [], False, "just written or asked for"),
        (f"engines/{KEY}", OLD, [], True, "engines too"),
        (f"other/{KEY}", OLD, [], False, "not ours"),
    ],
)
def test_what_is_removed(tmp_path: Path, name: str, age: float, keep: list[str], removed: bool, reason: str) -> None:
    made = folder(tmp_path, name, age)
    found = prune(tmp_path, keep, 3600, dry_run=False)
    assert made.exists() is not removed, reason
    assert found.removed == ((name,) if removed else ())
    assert found.bytes >= 5 * removed
    assert found.left == {}


@pytest.mark.parametrize(
    ("name", "marker", "reason"),
    [
        ("models/mine", "models/mine", "no name that Tandem gives"),
        ("models/llama-70b", None, "somebody's own model"),
        ("engines/production", None, "somebody's own engine"),
        (MODEL, None, "from before Tandem marked its folders, or somebody else's"),
        (MODEL, f"models/{OTHER}", "a copy of another, its marker with it"),
        (f"engines/{KEY}", MODEL, "the like, of another kind"),
        (f"{MODEL}-12345678", MODEL, "a copy that somebody kept"),
        (f"models/.removed-{KEY}", MODEL, "no name of what is half removed"),
    ],
)
def test_what_tandem_did_not_make_and_mark_is_left_and_named(
    tmp_path: Path, name: str, marker: str | None, reason: str
) -> None:
    made = folder(tmp_path, name, marker=marker)
    found = prune(tmp_path, [], 0, dry_run=False)
    assert made.exists(), reason
    assert (found.removed, found.bytes, found.left) == ((), 0, {name: "Unmarked"})
    assert prune(tmp_path, [name], 0, dry_run=False).left == {}, "what is referred to needs no word"


def test_what_the_fetcher_writes_is_marked(tmp_path: Path) -> None:
    with Entry(tmp_path / MODEL).lock(waiting=lambda: None):
        pass
    assert prune(tmp_path, [], 0, dry_run=False).removed == (MODEL,)


def test_what_somebody_writes_is_left_alone(tmp_path: Path) -> None:
    made = folder(tmp_path, MODEL, complete=False)
    with (made / ".lock").open() as held:
        fcntl.flock(held.fileno(), fcntl.LOCK_EX)
        assert prune(tmp_path, [], 3600, dry_run=False).removed == ()
    assert prune(tmp_path, [], 3600, dry_run=False).removed == (MODEL,)


def test_without_locks_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = folder(tmp_path, MODEL)

    def flock(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)
    found = prune(tmp_path, [], 0, dry_run=False)
    assert (found.removed, found.left, made.exists()) == ((), {MODEL: "NoLocks"}, True)


@pytest.mark.parametrize("name", [MODEL, f"engines/{KEY}"])
def test_what_is_half_removed_does_not_look_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    made = folder(tmp_path, name)
    (made / "engine").mkdir()

    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        prune(tmp_path, [], 0, dry_run=False)
    assert not made.exists()
    monkeypatch.undo()
    assert len(prune(tmp_path, [], 0, dry_run=False).removed) == 1
    assert list(made.parent.iterdir()) == []


def test_a_dry_run_only_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, theirs = folder(tmp_path, MODEL), folder(tmp_path, "models/theirs", marker=None)
    log = tmp_path / "log"
    assert main(["prune", "--cache", str(tmp_path), "--dry-run", "--termination-log", str(log)]) == 0
    told = json.loads(log.read_text())
    assert (told["removed"], told["folders"]) == ([MODEL], 1)
    assert (told["left"], told["leftFolders"]) == ({"models/theirs": "Unmarked"}, 1)
    assert json.loads(capsys.readouterr().out) == told
    assert made.exists()
    assert theirs.exists()


def test_the_result_fits_a_termination_message(tmp_path: Path) -> None:
    for number in range(100):
        folder(tmp_path, f"models/{number:032x}")
        folder(tmp_path, f"models/{number:03}-{'ä' * 100}", marker=None)
    log = tmp_path / "log"
    assert main(["prune", "--cache", str(tmp_path), "--termination-log", str(log)]) == 0
    assert log.stat().st_size <= 4096
    told = json.loads(log.read_text())
    assert (told["folders"], told["leftFolders"]) == (100, 100)


@pytest.mark.parametrize("link", ["models", MODEL])
def test_a_link_out_of_the_cache_is_not_followed(tmp_path: Path, link: str) -> None:
    outside = folder(tmp_path, f"outside/{KEY}", marker=MODEL)
    cache = tmp_path / "cache"
    (cache / link).parent.mkdir(parents=True)
    (cache / link).symlink_to(outside if link == MODEL else outside.parent)
    assert prune(cache, [], 0, dry_run=False).removed == ()
    assert outside.exists()


# --- prune and a fetch of the same model, at once ---------------------------------------------------------
URI, COMMIT = "hf://org/model", "0" * 40


@pytest.fixture
def fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """Fetches a model from memory into tmp_path; the folder that its verdict names."""
    monkeypatch.setattr(cli, "open_source", lambda uri: MemorySource({"a.safetensors": b"1" * 20}))
    monkeypatch.setattr(cli, "_end_on_sigterm", lambda task: None)  # not in this thread

    def run() -> Path:
        log = tmp_path / f"log-{threading.get_ident()}"
        words = ["fetch", "--uri", URI, "--revision", COMMIT, "--cache", str(tmp_path), "--port", "0"]
        assert main([*words, "--termination-log", str(log)]) == 0
        return tmp_path / str(json.loads(log.read_text())["path"])

    return run


def test_a_fetch_that_finds_a_model_while_it_is_pruned_has_it_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fetch: Callable[[], Path]
) -> None:
    """Between prune's look at the age and the rename: the worst moment."""
    made = fetch()
    assert made == tmp_path / model_path(parse(URI), COMMIT, [])
    aged(made)
    fetched: list[Path] = []
    size, thread = prune_module._size, threading.Thread(target=lambda: fetched.append(fetch()))

    def slowly(folder: Path) -> int:
        thread.start()
        thread.join(1)  # as far as it gets meanwhile
        return size(folder)

    monkeypatch.setattr(prune_module, "_size", slowly)
    assert prune(tmp_path, [], 3600, dry_run=False).removed == (str(made.relative_to(tmp_path)),)
    thread.join(60)
    assert fetched == [made]
    assert (made / "a.safetensors").read_bytes() == b"1" * 20


def test_what_a_fetch_has_just_found_is_not_removed(tmp_path: Path, fetch: Callable[[], Path]) -> None:
    made = fetch()
    aged(made)
    with Entry(made).kept():
        assert prune(tmp_path, [], 3600, dry_run=False).removed == ()
    fetch()
    assert prune(tmp_path, [], 3600, dry_run=False).removed == (), "and asked for, it is young"
    assert made.exists()


def test_what_another_namespace_uses_is_left_until_it_is_done_with_it(
    tmp_path: Path, fetch: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two claims of one path, by NFS or on a node. A model that is there already is asked for as well."""
    for namespace in ("team-a", "team-b"):
        monkeypatch.setenv("TANDEM_NAMESPACE", namespace)
        made = fetch()
    name = str(made.relative_to(tmp_path))

    def pruned(namespace: str, young: float = 0, *, dry_run: bool = False) -> tuple[tuple[str, ...], dict[str, str]]:
        found = prune(tmp_path, [], young, dry_run=dry_run, namespace=namespace)
        return found.removed, found.left

    left = ((), {name: "Shared"})
    assert pruned("team-a", dry_run=True) == pruned("team-b", dry_run=True) == left
    assert pruned("team-a", 3600) == left, "and it may have just been asked for by team-a"
    assert pruned("team-b", dry_run=True) == left, "so that team-a uses it still"
    assert pruned("team-a") == left
    assert made.exists()
    assert pruned("team-b") == ((name,), {})
    assert not made.exists()


def test_a_fetch_that_waited_for_prune_writes_where_its_verdict_says(tmp_path: Path) -> None:
    made = folder(tmp_path, MODEL, complete=False)
    written = threading.Event()

    def write() -> None:
        entry = Entry(made)
        with entry.lock(waiting=lambda: None):
            entry.partial("weights").write_bytes(b"new")
            entry.publish("weights")
            written.set()

    with (made / ".lock").open("a") as held:
        fcntl.flock(held.fileno(), fcntl.LOCK_EX)
        thread = threading.Thread(target=write)
        thread.start()
        assert not written.wait(1)
        made.rename(tmp_path / "models" / f".removed-{KEY}-{'0' * 8}")
    assert written.wait(60)
    thread.join()
    assert (made / "weights").read_bytes() == b"new"
