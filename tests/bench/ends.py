"""Start the BLS and end it by SIGTERM again and again, while it calls the engine without a request: its canary.

    PYTHONPATH=tests:operator python tests/bench/ends.py --times 50

The stand-in engine; no request is in flight, the latest has just ended; the canary goes out several times a second.
Prints how each server ended, and the seconds that it took; exit code 1 if any did not end with 0.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench.bls.measure import set_parameters
from triton import bls_client as bls
from triton.harness import TritonServer

EXIT_SECONDS = 60
CANARY_SECONDS = 0.01


def repository(folder: Path, **changes: Any) -> Path:
    """Models whose BLS sends its canary at each look at the engine."""
    made = bls.repository(folder, "stand-in", max_draft_len=4, **changes)
    set_parameters(made / "speculative_bls/config.pbtxt", {"canary_seconds": str(CANARY_SECONDS)})
    return made


def end_once(models: Path, pause: float, requests: int = 1) -> tuple[int | None, float, str]:
    """Of a server that got SIGTERM `pause` seconds after an answer: exit code, None: it did not end; seconds; log."""
    with TritonServer(models) as server:
        for _ in range(requests):
            bls.stream(server.grpc_url, bls.inputs("def f(", max_tokens=8, stream=True))
        process = server._process
        assert isinstance(process, subprocess.Popen)
        time.sleep(pause)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            code: int | None = process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        return code, time.monotonic() - began, server.log


def main() -> int:
    """Run; see above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--logs", type=Path, help="folder for the logs of those that did not end with 0")
    options = parser.parse_args()
    ends: Counter[int | None] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        models = repository(Path(folder) / "repository")
        for number in range(options.times):
            code, seconds, log = end_once(models, random.uniform(0, 0.3))
            ends[code] += 1
            print(f"{number:3} ended with {code} after {seconds:.1f} s", flush=True)
            if code != 0 and options.logs:
                (options.logs / f"{number}.log").write_text(log)
    print(dict(ends))
    return int(set(ends) != {0})


if __name__ == "__main__":
    sys.exit(main())
