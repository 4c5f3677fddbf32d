"""The thin edge: programs and their logs, mounts, the Debian base's trimming."""

import os
import time
from pathlib import Path

import pytest

from builder import base, mounts, progress
from builder.errors import BuildError

MOUNTINFO = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
90 22 0:50 / /cache/storage/merged rw - overlay overlay rw
91 90 0:51 / /cache/storage/merged/proc rw - proc proc rw
92 22 0:52 / /cache\\040two/x rw - tmpfs tmpfs rw
93 22 0:53 / /cache-other rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("folder", "expected", "reason"),
    [
        ("/cache", ["/cache/storage/merged/proc", "/cache/storage/merged"], "the innermost goes first"),
        ("/cache/storage/merged/proc", ["/cache/storage/merged/proc"], "the folder itself counts"),
        ("/cache two", ["/cache two/x"], "the kernel writes a space as \\040"),
        ("/nothing", [], "no mount, nothing to do"),
    ],
)
def test_mounts_below(folder: str, expected: list[str], reason: str) -> None:
    assert [str(point) for point in mounts.below(Path(folder), MOUNTINFO)] == expected, reason


def test_removing_a_tree_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    mounts.remove_tree(tmp_path / "nothing")


def test_a_failing_program_shows_the_end_of_its_output_and_the_log(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "x.log"
    with pytest.raises(BuildError) as error:
        progress.run(["sh", "-c", "seq 30; echo no space >&2; exit 3"], log)
    lines = str(error.value).splitlines()
    assert lines[0] == "`sh` failed (exit status 3):"
    assert lines[-3:] == ["   | 30", "   | no space", f"   the whole log: {log}"]
    assert len(lines) == 17


def test_a_program_that_is_not_installed_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="no-such-program is not installed: `python -m cluster deps` installs it"):
        progress.run(["no-such-program"], tmp_path / "log")


def test_a_long_step_shows_its_last_line_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said, seen = list[str](), tmp_path / "seen"

    def say(text: str) -> None:
        said.append(text)
        if "unpacking" in text:
            seen.touch()

    monkeypatch.setattr(progress, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(progress, "say", say)
    until_seen = f"for i in $(seq 600); do test -e {seen} && exit; sleep 0.05; done"
    progress.run(["sh", "-c", f"echo unpacking; {until_seen}"], tmp_path / "log")
    assert seen.exists(), said


def test_an_interrupt_ends_the_program_and_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid_file = tmp_path / "pid"

    def interrupt_when_started(_text: str) -> None:
        if pid_file.exists() and pid_file.read_text():
            raise KeyboardInterrupt

    monkeypatch.setattr(progress, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(progress, "say", interrupt_when_started)
    with pytest.raises(KeyboardInterrupt):
        progress.run(["sh", "-c", f"sleep 600 & echo $! > {pid_file}; wait"], tmp_path / "log")
    _wait_until_gone(int(pid_file.read_text()))


def _wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 240
    while _runs(pid):
        assert time.monotonic() < deadline, f"process {pid} outlived its parent"
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def test_programs_write_files_that_any_user_may_read(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        progress.run(["touch", str(tmp_path / "made")], tmp_path / "log")
    finally:
        os.umask(before)
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o644


def test_trimming_the_base_keeps_licences_and_the_folders_that_containers_mount_on(tmp_path: Path) -> None:
    kept = ["usr/share/doc/bash/copyright", "usr/bin/python3"]
    gone = ["usr/share/doc/bash/changelog.gz", "usr/share/man/man1/sh.1", "var/lib/apt/lists/x", "dev/shm/x"]
    for folder in ("proc", "sys", "tmp", "var/cache/apt"):
        (tmp_path / folder).mkdir(parents=True)
    for path in kept + gone:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    base.trim(tmp_path)
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert files == sorted(kept)
    assert all((tmp_path / folder).is_dir() for folder in ("dev", "proc", "sys", "tmp"))
