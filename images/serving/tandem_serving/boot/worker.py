"""A pod of a group that is not the leader: an sshd through which the leader's mpirun starts this pod's ranks.

sshd runs as the pod's own user and starts `session` for each connection, which takes up the container's environment
(sshd's sessions have none) and becomes Open MPI's daemon. The daemon leaves its ssh connection, so what tells
whether it lives is a connection to the Unix socket of this process, which it keeps open to its end, however it ends.

This process is PID 1. It ends when the last daemon has: then the leader is gone. On SIGTERM it goes on until then,
since the leader's requests may need its ranks; without a daemon it ends at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tandem_serving.boot import shared_memory
from tandem_serving.boot.mpi import FOLDER, KEYS, PORT, GroupError, program, write_key

SOCKET = "sessions.sock"
NO_SHELLS = ("nologin", "false")


def sshd_config(folder: Path, user: str, command: Sequence[str]) -> str:
    """One user, one key, one command; nothing is forwarded."""
    return "\n".join(
        [
            f"Port {PORT}",
            f"HostKey {folder / 'key'}",
            f"AuthorizedKeysFile {folder / 'authorized_keys'}",
            f"AllowUsers {user}",
            "AuthenticationMethods publickey",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "UsePAM no",
            # The folder is in /tmp, whose parent others may write to.
            "StrictModes no",
            "PidFile none",
            "DisableForwarding yes",
            "PermitTTY no",
            "PermitUserRC no",
            "PrintMotd no",
            "LogLevel ERROR",
            f"ForceCommand {' '.join(command)}",
            "",
        ]
    )


def run(keys: Path = KEYS, folder: Path = FOLDER) -> int:
    """Serve the leader to its end; returns the exit code. Raises GroupError."""
    shared_memory.clear()
    sshd, user = program("sshd"), login()
    write_key(keys, folder)
    public = (keys / "ssh-publickey").read_text(encoding="utf-8")
    (folder / "authorized_keys").write_text(f"restrict {public}", encoding="utf-8")
    command = [sys.executable, str(Path(sys.argv[0]).resolve()), "session", "--folder", str(folder)]
    config = folder / "sshd_config"
    config.write_text(sshd_config(folder, user, command), encoding="utf-8")
    with Sessions(folder / SOCKET) as sessions:
        daemon = subprocess.Popen([sshd, "-D", "-e", "-f", str(config)])
        print(f"worker: waiting for the leader's ranks on port {PORT}", flush=True)
        try:
            return sessions.serve(daemon.pid)
        finally:
            daemon.kill()


def login() -> str:
    """Name of this process's user, whom sshd lets in. Raises GroupError."""
    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:
        raise GroupError(f"the image knows no user {os.getuid()}: sshd needs one with a shell") from None
    if Path(entry.pw_shell).name in NO_SHELLS:
        raise GroupError(f"the image's user {entry.pw_name} has no shell ({entry.pw_shell}): sshd needs one")
    return entry.pw_name


class Sessions:
    """The leader's daemons in this pod, by the connections that they hold. A context manager."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._alive: set[socket.socket] = set()
        self._selector = selectors.DefaultSelector()
        self._wake, wake = socket.socketpair()
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._keep = wake
        self._stopping = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # wakes the selector
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake, selectors.EVENT_READ)

    def __enter__(self) -> Sessions:
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)
        for each in (self._listener, self._wake, self._keep, *self._alive):
            each.close()
        self._selector.close()

    def serve(self, sshd: int) -> int:
        """Return 0 when the last daemon has ended, or was asked to stop without one; 1 when sshd ends."""
        while not (self._stopping and not self._alive):
            for key, _ in self._selector.select():
                if key.fileobj is self._wake:
                    self._wake.recv(4096)
                elif key.fileobj is self._listener:
                    self._begin()
                elif isinstance(key.fileobj, socket.socket) and self._ended(key.fileobj):
                    print("worker: the leader's daemon ended", flush=True)
                    if not self._alive:
                        return 0
            if sshd in reap():
                print("worker: sshd ended: see its last lines", file=sys.stderr, flush=True)
                return 1
        return 0

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _begin(self) -> None:
        connection, _ = self._listener.accept()
        with contextlib.suppress(OSError):
            connection.sendall(json.dumps(dict(os.environ)).encode() + b"\n")
        self._alive.add(connection)
        self._selector.register(connection, selectors.EVENT_READ)

    def _ended(self, connection: socket.socket) -> bool:
        with contextlib.suppress(OSError):
            if connection.recv(4096):
                return False
        self._selector.unregister(connection)
        self._alive.discard(connection)
        connection.close()
        return True


def reap() -> set[int]:
    """Take leave of children that ended, orphans among them (PID 1 inherits them)."""
    ended = set()
    with contextlib.suppress(ChildProcessError):
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            ended.add(pid)
    return ended


def session(folder: Path = FOLDER) -> None:
    """Become the command that the leader sent, in the container's environment. Raises GroupError."""
    command = os.environ.get("SSH_ORIGINAL_COMMAND", "")
    if not command:
        raise GroupError("this sshd starts MPI's daemons alone: there is no shell")
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(folder / SOCKET))
    environment: dict[str, str] = json.loads(connection.makefile("rb").readline())
    connection.set_inheritable(True)
    os.execve("/bin/sh", ["sh", "-c", command], environment)
