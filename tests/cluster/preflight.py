"""What a machine must allow before a real node can run on it; simulated nodes need nothing of this."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from cluster import cgroups, deps
from cluster.binaries import cache_dir
from cluster.errors import ClusterError
from cluster.shell import attempt

# One try in throw-away namespaces, of what a node does first and what containerd does for each pod.
TRY_OVERLAY = (
    'mount -t tmpfs tmpfs /run && cd "$1" && mkdir lower upper work merged && '
    "mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged"
)


def check(folder: Path) -> None:
    """Raise ClusterError with everything that keeps a real node from running with its files in ``folder``."""
    if problems := find_problems(folder):
        listed = "\n".join(f"- {problem}" for problem in problems)
        raise ClusterError(
            f"a real node cannot run here:\n{listed}\n"
            "Simulated nodes need none of this: python -m cluster up --nodes simulated:1"
        )


def find_problems(folder: Path) -> list[str]:
    """Return what is wrong, a sentence each, with what to do."""
    problems = [sentence for sentence in (_hidden(folder), _hidden(cache_dir())) if sentence]
    if missing := deps.missing(deps.NODE_NEEDS):
        problems.append(f"programs are missing (`python -m cluster deps` installs them):\n{deps.describe(missing)}")
    if os.geteuid() != 0:
        return [*problems, "it needs root: namespaces, mounts and network interfaces; run the command with sudo"]
    return [*problems, *_control_groups(), *([] if missing else _namespaces(folder))]


def _hidden(folder: Path) -> str | None:
    for top in (Path("/var"), Path("/run")):
        if folder.resolve().is_relative_to(top):
            return f"{folder} is below {top}, which nodes have of their own: set TANDEM_STATE_DIR and XDG_CACHE_HOME"
    return None


def _control_groups() -> list[str]:
    found = cgroups.hierarchies(Path("/proc/mounts").read_text())
    if not found:
        return ["no control groups are mounted: mount them at /sys/fs/cgroup"]
    closed = [str(root) for root, _ in found if not os.access(root, os.W_OK)]
    return [f"control groups cannot be written: {', '.join(closed)}; is this a container?"] if closed else []


def _namespaces(folder: Path) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".try-") as scratch:
        namespaces = ("--mount", "--propagation=slave", "--net", "--ipc", "--pid", "--fork", "--mount-proc")
        done = attempt(("unshare", *namespaces, "sh", "-c", TRY_OVERLAY, "sh", scratch))
    with contextlib.suppress(OSError):  # of no use when this was all that was in it
        folder.rmdir()
    if done.returncode == 0:
        return []
    return [
        f"the kernel refuses namespaces or overlay mounts in {folder}: {done.stderr.strip()}; "
        "in a container it must be a privileged one, with its state directory (TANDEM_STATE_DIR) on a real disk"
    ]
