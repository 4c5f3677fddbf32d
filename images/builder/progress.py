"""Runs the slow programs: output goes to a log, a sign of life to the terminal, the log's end into the error."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import typer

from builder.errors import BuildError

HEARTBEAT_SECONDS = 5
_TAIL_BYTES = 4000
_TAIL_LINES = 15


def say(text: str) -> None:
    """Print progress to standard error: results alone go to standard output."""
    typer.echo(text, err=True)


@contextmanager
def step(what: str) -> Iterator[None]:
    """Say that ``what`` begins, and how many seconds it took when it is done."""
    say(f">> {what}")
    started = time.monotonic()
    yield
    say(f"   done in {time.monotonic() - started:.1f} s")


def run(command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
    """Run a program to its end; every 5 s print the last line it wrote.

    ``log`` is appended to. Raises BuildError with the end of the log when the program fails or is not installed;
    the program is ended when this process is interrupted.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        try:
            process = _start(command, output, env)
        except FileNotFoundError as error:
            raise BuildError(f"{command[0]} is not installed: `python -m cluster deps` installs it") from error
        try:
            status = _wait(process, log)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()
    if status != 0:
        tail = "\n".join(f"   | {line}" for line in _last_lines(log))
        raise BuildError(f"`{command[0]}` failed (exit status {status}):\n{tail}\n   the whole log: {log}")


def _start(command: Sequence[str], output: IO[bytes], env: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=env,
        # A group of its own, to end a script's children with it.
        start_new_session=True,
        # The user's umask may make files that the images' users cannot read.
        umask=0o022,
        # Passes the cache's lock on, and nothing else: Python opens files for itself alone unless told otherwise.
        close_fds=False,
    )


def _wait(process: subprocess.Popen[bytes], log: Path) -> int:
    started = time.monotonic()
    while True:
        try:
            return process.wait(HEARTBEAT_SECONDS)
        except subprocess.TimeoutExpired:
            lines = _last_lines(log)
            say(f"   {time.monotonic() - started:3.0f} s  {lines[-1][:100] if lines else ''}")


def _last_lines(log: Path) -> list[str]:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        text = file.read().decode(errors="replace")
    return [line.rstrip() for line in text.splitlines() if line.strip()][-_TAIL_LINES:]
