"""Programs that outlive the command that started them, found again and ended without harming others.

Each program has a record ``run/<name>.json``: its pid, when the kernel started it, and its command.
A pid that the system has given to another program since is told apart by the start time. As a run
may be killed between starting a program and writing its record, every program also carries the
cluster's directory in its environment (``MARKER``), by which strays are found.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from cluster import files
from cluster.deps import search_path
from cluster.errors import ClusterError

MARKER = "TANDEM_CLUSTER_DIR"
SELDOM = {"GOGC": "400"}
"""Go collects garbage when the heap is five times what lives in it, not twice: of a control plane's time that starts
and serves a minute a quarter less, for 150 MB."""


@dataclass(frozen=True)
class Program:
    """A program to keep running: its name, its command line, and whether `nsenter` wraps it."""

    name: str
    argv: tuple[str, ...]
    wrapped: bool = False


@dataclass(frozen=True)
class Record:
    """What was started: ``started`` names the boot and the tick at which the kernel made the process."""

    pid: int
    started: str
    argv: list[str]
    wrapped: bool


class ProcessTable:
    """The programs of one cluster; records in ``run/``, output in ``logs/``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = folder / "run"
        self.logs = folder / "logs"

    def ensure(self, program: Program) -> bool:
        """Start ``program`` unless it runs with this very command; tell whether it was started."""
        record = self._record(program.name)
        if record and is_alive(record):
            if record.argv == list(program.argv):
                return False
            self.stop(program.name)
        self._start(program)
        return True

    def _start(self, program: Program) -> None:
        self.run.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        log = self.log(program.name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        pid = os.posix_spawn(
            program.argv[0],
            program.argv,
            {**SELDOM, **os.environ, "PATH": search_path(), MARKER: str(self.folder)},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,  # a Ctrl-C at the terminal of `up` must not reach it
        )
        record = Record(pid, start_of(pid) or "", list(program.argv), program.wrapped)
        files.write(self.run / f"{program.name}.json", json.dumps(asdict(record)))

    def log(self, name: str) -> Path:
        """Return the file that has the output of program ``name``."""
        return self.logs / f"{name}.log"

    def pid(self, name: str) -> int | None:
        """Return the pid of program ``name`` while it runs."""
        record = self._record(name)
        return record.pid if record and is_alive(record) else None

    def names(self) -> list[str]:
        """Return the names of all programs that were started, dead ones too."""
        return sorted(path.stem for path in self.run.glob("[!.]*.json"))

    def check(self, name: str) -> None:
        """Raise ClusterError with the end of its log when program ``name`` is not running."""
        if self.pid(name) is None:
            raise ClusterError(f"{name} ended; the end of {self.log(name)}:\n{tail(self.log(name))}")

    def stop(self, name: str, grace_seconds: float = 3) -> None:
        """End program ``name``, politely first; nothing happens when it does not run."""
        record = self._record(name)
        if record and is_alive(record) and (main := _process(record.pid)):
            # nsenter passes no signals on; it ends with what it wraps.
            wrapped = main.children() if record.wrapped else []
            _end(wrapped or [main], grace_seconds)
            _end([main], 0)

    def find(self, name: str) -> Program | None:
        """Return the program that was started as ``name``, running or not."""
        record = self._record(name)
        return Program(name, tuple(record.argv), record.wrapped) if record else None

    def kill_all(self) -> None:
        """Kill every program of this cluster, recorded or stray, and wait until none is left."""
        for name in self.names():
            self.stop(name, grace_seconds=0)
        _end(self.strays(), 0)

    def strays(self) -> list[psutil.Process]:
        """Return every running process that carries this cluster's marker."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(MARKER) == str(self.folder)
        except (psutil.Error, OSError):  # gone, a zombie, or another user's
            return False

    def _record(self, name: str) -> Record | None:
        try:
            return Record(**json.loads((self.run / f"{name}.json").read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None


def start_of(pid: int) -> str | None:
    """Return what tells a process from a later one with its pid: boot id and start tick; None when dead."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = stat.rpartition(")")[2].split()  # the command, in parentheses, may hold anything
    # A zombie whose threads still end (field 20 counts them) holds its ports until they have.
    if state in {"Z", "X"} and int(fields[16]) <= 1:
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{fields[18]}"  # field 22 of proc_pid_stat(5)


def is_alive(record: Record) -> bool:
    """Tell whether the recorded process still runs; collects it when it was this process's child."""
    started = start_of(record.pid)
    if started is None:
        _reap(record.pid)
    return started is not None and started == record.started


def wait_until(is_done: Callable[[], bool], timeout_seconds: float) -> bool:
    """Ask ``is_done`` ten times a second until it says True; return False after ``timeout_seconds``."""
    deadline = time.monotonic() + timeout_seconds
    while not is_done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def tail(path: Path, lines: int = 15) -> str:
    """Return the last lines of a log; a note when there is none."""
    if not path.exists():
        return "(no log)"
    return "\n".join(path.read_text(errors="replace")[-20000:].splitlines()[-lines:]) or "(empty)"


def _end(processes: Iterable[psutil.Process], grace_seconds: float) -> None:
    left = list(processes)
    if grace_seconds:
        _signal(left, signal.SIGTERM)
        left = _wait(left, grace_seconds)
    _signal(left, signal.SIGKILL)
    if left := _wait(left, 20):
        raise ClusterError(f"processes {[process.pid for process in left]} do not end even when killed")


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)  # psutil checks that the pid still is this process
        except psutil.NoSuchProcess:
            continue


def _wait(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    left = processes
    deadline = time.monotonic() + seconds
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = [process for process in left if start_of(process.pid) and process.is_running()]
    for process in processes:
        _reap(process.pid)
    return left


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
