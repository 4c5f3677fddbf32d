"""The commands of a pod, run on a revision with a stand-in server."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SERVING = Path(__file__).parents[3] / "images" / "serving"
# Stands for tritonserver: says its arguments and environment, leaves an orphan, waits for a signal.
SERVER = """
import os, signal, subprocess, sys, time
print("arguments", sys.argv[1:], "mark", os.environ.get("MARK"), flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("ready", flush=True)
time.sleep(60)
"""


def change(revision: Path, **parts: Any) -> None:
    """Change parts of the launch plan."""
    path = revision / "launch.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | parts))


def start(revision: Path, *arguments: str) -> subprocess.Popen[str]:
    """A command of a pod."""
    return subprocess.Popen(
        [sys.executable, str(SERVING / "entrypoint.py"), *arguments, "--revision", str(revision)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def serve(revision: Path) -> subprocess.Popen[str]:
    """The command `serve` of a pod."""
    return start(revision, "serve", "--models", str(revision.parent / "models"))


def started(process: subprocess.Popen[str]) -> str:
    """What the server says of its arguments; it is ready then."""
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    said = next(line for line in lines if line.startswith("arguments"))
    assert next(lines) == "ready\n"
    return said
