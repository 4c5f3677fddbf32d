"""Running short commands to their end."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cluster.deps import search_path
from cluster.errors import ClusterError


def call(*command: str, stdin: str | None = None) -> str:
    """Return what ``command`` prints.

    Raises:
        ClusterError: with the command and its own words when it fails.
    """
    done = attempt(command, stdin)
    if done.returncode:
        raise ClusterError(f"`{' '.join(command)}` failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def pipe(source: Path, *command: str) -> None:
    """Run ``command`` with the file ``source`` as its input.

    Raises:
        ClusterError: with the command and its own words when it fails.
    """
    with source.open("rb") as content:
        done = subprocess.run(command, stdin=content, capture_output=True, check=False)
    if done.returncode:
        words = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise ClusterError(f"`{' '.join(command)}` with {source} failed: {words}")


def command_path(name: str) -> str:
    """Return the full path of a command.

    Raises:
        ClusterError: when this machine does not have it.
    """
    if path := shutil.which(name, path=search_path()):
        return path
    raise ClusterError(f"there is no {name!r}: `python -m cluster deps` installs what is needed")


def succeeds(*command: str) -> bool:
    """Tell whether ``command`` ends with status 0."""
    return attempt(command).returncode == 0


def attempt(command: Sequence[str], stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``command`` to its end, whatever its status; its output is kept."""
    environment = {**os.environ, "PATH": search_path()}
    return subprocess.run(command, input=stdin, env=environment, capture_output=True, text=True, check=False)
