"""Programs are found again, ended, and never confused with others'."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.processes import MARKER, ProcessTable, Program, start_of, tail, wait_until

pytestmark = pytest.mark.nightly

SLEEP = Program("sleeper", ("/bin/sleep", "1000"))


@pytest.fixture
def table(tmp_path: Path) -> Iterator[ProcessTable]:
    table = ProcessTable(tmp_path)
    yield table
    table.kill_all()


@contextmanager
def _sleeping(environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that the table did not start."""
    with subprocess.Popen(["/bin/sleep", "1000"], env={**os.environ, **environment}) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_running_program_is_not_started_twice(table: ProcessTable) -> None:
    assert table.ensure(SLEEP)
    pid = table.pid("sleeper")
    assert pid is not None
    assert not ProcessTable(table.folder).ensure(SLEEP), "another command must see it too"
    assert table.pid("sleeper") == pid


def test_another_command_line_restarts_it(table: ProcessTable) -> None:
    table.ensure(SLEEP)
    before = table.pid("sleeper")
    assert table.ensure(Program("sleeper", ("/bin/sleep", "2000")))
    assert before is not None
    assert table.pid("sleeper") not in {None, before}
    assert start_of(before) is None


def test_a_killed_program_is_started_again(table: ProcessTable) -> None:
    table.ensure(SLEEP)
    pid = table.pid("sleeper")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: table.pid("sleeper") is None, 60)
    assert table.ensure(SLEEP)


def test_it_has_a_session_of_its_own(table: ProcessTable) -> None:
    table.ensure(SLEEP)
    pid = table.pid("sleeper")
    assert pid is not None
    assert os.getsid(pid) == pid != os.getsid(0)


def test_a_pid_that_belongs_to_someone_else_now_is_left_alone(table: ProcessTable) -> None:
    table.ensure(SLEEP)
    time.sleep(0.05)  # a pid cannot come back within one tick of the kernel's clock, which is 10 ms
    with _sleeping({}) as foreign:
        record = table.run / "sleeper.json"
        kept = json.loads(record.read_text())
        real_pid, kept["pid"] = kept["pid"], foreign.pid
        record.write_text(json.dumps(kept))
        assert table.pid("sleeper") is None
        table.kill_all()
        assert foreign.poll() is None, "a foreign process was killed"
        assert start_of(real_pid) is None, "the stray carries the marker and must be found by it"


def test_a_program_whose_record_was_never_written_is_found_by_its_marker(table: ProcessTable) -> None:
    with _sleeping({MARKER: str(table.folder)}) as stray:
        assert [process.pid for process in table.strays()] == [stray.pid]
        table.kill_all()
        assert start_of(stray.pid) is None


def test_programs_of_another_cluster_are_left_alone(table: ProcessTable, tmp_path: Path) -> None:
    other = ProcessTable(tmp_path / "other")
    other.ensure(SLEEP)
    table.kill_all()
    assert other.pid("sleeper") is not None
    other.kill_all()
    assert other.pid("sleeper") is None


def test_a_program_that_ignores_polite_words_is_killed(table: ProcessTable) -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    table.ensure(Program("stubborn", ("/bin/sh", "-c", script)))
    assert wait_until(lambda: "ready" in tail(table.log("stubborn")), 60)
    table.stop("stubborn", grace_seconds=0.2)
    assert table.pid("stubborn") is None


def test_what_a_wrapper_wraps_ends_with_it(table: ProcessTable) -> None:
    script = "sleep 1000 & echo $!; wait"
    table.ensure(Program("wrapper", ("/bin/sh", "-c", script), wrapped=True))
    assert wait_until(lambda: tail(table.log("wrapper")).isdecimal(), 60)
    inner = int(tail(table.log("wrapper")))
    table.stop("wrapper")
    assert table.pid("wrapper") is None
    assert start_of(inner) is None


def test_the_error_of_a_dead_program_shows_its_last_words(table: ProcessTable) -> None:
    table.ensure(Program("brief", ("/bin/sh", "-c", "echo the reason >&2; exit 1")))
    assert wait_until(lambda: table.pid("brief") is None, 60)
    with pytest.raises(ClusterError, match="the reason"):
        table.check("brief")
