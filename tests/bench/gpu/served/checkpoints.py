"""The checkpoints that benchmarks serve, made where they are missing."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def checkpoints_in(folder: Path) -> dict[str, Any]:
    """What is known of the checkpoints in `folder`: its steps.json; empty without one. See bench.gpu.checkpoints.

    Raises subprocess.CalledProcessError.
    """
    if not (folder / "target").exists():  # in a process of its own, which gives its GPU memory back
        subprocess.run([sys.executable, "-m", "bench.gpu.checkpoints", "--out", str(folder)], check=True)
    steps = folder / "steps.json"
    return json.loads(steps.read_text()) if steps.exists() else {}
