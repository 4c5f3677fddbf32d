"""The programs that a release is made with: helm and crane, built from the Go modules that the repository pins."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from builder.errors import BuildError
from builder.progress import say
from cluster import binaries
from cluster.errors import ClusterError


def run(command: Sequence[str | Path], folder: Path | None = None) -> str:
    """Return what a program prints; raises BuildError with its words when it fails or is not there."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise BuildError(f"{words[0]} is not installed: install it, then run this again") from error
    if done.returncode:
        raise BuildError(f"`{' '.join([Path(words[0]).name, *words[1:3]])}` failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def helm(*arguments: str | Path) -> str:
    """Return what helm prints; raises BuildError."""
    return run([_binary("helm"), *arguments])


def crane(*arguments: str | Path) -> str:
    """Return what crane prints; raises BuildError. It reaches registries on loopback by HTTP, others by HTTPS."""
    return run([_binary("crane"), *arguments])


def on_loopback(registry: str) -> bool:
    """Whether crane reaches a registry by HTTP, so that helm must, too."""
    return re.match(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/|$)", registry) is not None


def _binary(name: str) -> Path:
    try:
        return binaries.ensure([name], say)[name]
    except ClusterError as error:
        raise BuildError(str(error)) from error
