"""Start the BLS and end it by SIGTERM again and again, at a moment when it asks the front which clients have left.

    PYTHONPATH=tests:operator python tests/bench/ends.py --times 50

The stand-in engine; no request is in flight, the latest has just ended: the loop asks for two seconds after it.
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

from triton import bls_client as bls
from triton.harness import TritonServer

EXIT_SECONDS = 60


def end_once(repository: Path, pause: float, requests: int = 1) -> tuple[int | None, float, str]:
    """Of a server that got SIGTERM `pause` seconds after an answer: exit code, None: it did not end; seconds; log."""
    with TritonServer(repository) as server:
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
        repository = bls.repository(Path(folder) / "repository", "stand-in", max_draft_len=4)
        for number in range(options.times):
            code, seconds, log = end_once(repository, random.uniform(0, 0.3))
            ends[code] += 1
            print(f"{number:3} ended with {code} after {seconds:.1f} s", flush=True)
            if code != 0 and options.logs:
                (options.logs / f"{number}.log").write_text(log)
    print(dict(ends))
    return int(set(ends) != {0})


if __name__ == "__main__":
    sys.exit(main())
