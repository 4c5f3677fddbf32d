"""`make mutants`: how many of the defects that mutmut puts into rollout/ and cluster/ the unit tests find.

A sample of them, drawn by a seed. Each runs against the tests that reach its function, until one fails.
"""

import json
import math
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build/mutants"
READ = ("tests", "crds", "charts", "images", "examples", "docs", "pyproject.toml")
SURVIVED, NO_TESTS = 0, (5, 33)
"""mutmut's exit codes."""


def mutmut(*names: str) -> dict[str, int | None]:
    """Run mutants of these names, having made all and seen what each test reaches; the exit codes of all by name."""
    environment = {**os.environ, "PYTHONPATH": "tests:images", "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run([ROOT / "build/mutmut/bin/mutmut", "run", *names], cwd=WORK, env=environment, check=True)
    files = (WORK / "mutants").rglob("*.meta")
    return {name: code for file in files for name, code in json.loads(file.read_text())["exit_code_by_key"].items()}


def main(count: int, seed: int) -> None:
    """Print the mutants that survive, and the share that was killed with its 95% interval (Wilson's)."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    (WORK / "src").symlink_to(ROOT / "operator")  # no other name goes
    for name in READ:
        (WORK / name).symlink_to(ROOT / name)
    mutants = sorted(mutmut("tandem.cluster.identity.*"))  # of the smallest module
    drawn = random.Random(seed).sample(mutants, count)
    codes = mutmut(*drawn)
    survivors = sorted(name for name in drawn if codes[name] in (SURVIVED, *NO_TESTS))
    share, square = 1 - len(survivors) / count, 1.96**2 / count
    half = math.sqrt(square * share * (1 - share) + square**2 / 4)
    low, high = ((share + square / 2 + side) / (1 + square) for side in (-half, half))
    print(*survivors, f"{share:.1%} killed, of {count} of {len(mutants)} (95%: {low:.1%} to {high:.1%})", sep="\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
