"""The server as a child of this process, which is PID 1: it forwards signals, reaps orphans, and ends the server when
a model has died or an engine has failed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from tandem_serving.boot import dead_models, ranks
from tandem_serving.engine import failure
from tandem_serving.errors import Survived

TERMINATION_LOG = Path("/dev/termination-log")
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class Supervisor:
    """Runs a server once, with the variables `env`.

    At the first SIGTERM `finish` is called in a thread, and the server gets the signal when it returns. An engine's
    failure is written to `termination_log`.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        finish: Callable[[], object] = lambda: None,
        termination_log: Path = TERMINATION_LOG,
    ) -> None:
        self._env = env
        self._finish = finish
        self._termination_log = termination_log
        self._child: subprocess.Popen[bytes] | None = None
        self._launcher = False
        self._early: list[int] = []  # signals that came before the server had started
        self._finishing, self._stopping = threading.Event(), threading.Event()
        self._model_died = threading.Event()

    def start(self, command: Sequence[str]) -> None:
        """Start the server. Raises OSError."""
        self._launcher = ranks.is_launcher(command[0])
        for number in FORWARDED:
            signal.signal(number, self._forward)
        self._child = subprocess.Popen(command, env=dict(self._env))
        for missed in self._early:
            self._signal(missed)

    def wait(self) -> int:
        """Watch over the server to its end; returns its exit code, 128 + n when signal n ended it, 1 when a model
        died or an engine failed.
        """
        assert self._child is not None, "start it first"
        self._watch(dead_models.watch, self._child.pid)
        report = Path(self._env[failure.VARIABLE]) if failure.VARIABLE in self._env else None
        if report:
            self._watch(failure.watch, report)
        code = _reap(self._child.pid)
        failed = report is not None and not self._stopping.is_set() and failure.pass_on(report, self._termination_log)
        return 1 if failed or self._model_died.is_set() else code

    def _watch(self, watch: Callable[..., None], what: object) -> None:
        threading.Thread(target=watch, args=(what, self._stopping, self._end), daemon=True).start()

    def _forward(self, number: int, _: FrameType | None) -> None:
        if self._child is None:
            self._early.append(number)
        elif number == signal.SIGTERM and not self._finishing.is_set():
            self._finishing.set()
            threading.Thread(target=self._stop, daemon=True).start()
        else:
            self._stopping.set()
            self._signal(number)

    def _stop(self) -> None:
        with Survived("requests could not be finished"):  # whatever is wrong: the server must get the signal
            self._finish()
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def _end(self) -> None:
        self._model_died.set()
        self._signal(signal.SIGKILL)  # at SIGTERM Triton would wait for streams that no model serves

    def _signal(self, number: int) -> None:
        assert self._child is not None
        pid = self._child.pid
        with contextlib.suppress(ProcessLookupError):  # it ends this moment
            os.kill(ranks.server(pid) if self._launcher else pid, number)


def _reap(pid: int) -> int:
    """Wait for `pid`, and for every orphan that ends before it (PID 1 inherits them)."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        print(f"process {ended} ended (status {status})", flush=True)
