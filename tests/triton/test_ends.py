"""SIGTERM while the loop asks the front which clients have left: the server ends with 0, and soon.

Some calls always fell into the moment in which Triton has ended the threads for them, and not yet told the model: the
server ended by signal 11, 4 of 12 times with one loop, of which there are four here. `tests/bench/ends.py` does it
50 times: all ended with 0, within 4 s.
"""

from pathlib import Path

import pytest

from bench.ends import end_once
from triton import bls_client as bls

TIMES = 3
LOOPS, REQUESTS = 4, 8
"""Whoever had none does not ask."""
SECONDS = 10
"""Triton gives each model a second, and asks every second whether all are unloaded."""


@pytest.mark.parametrize("collects", [False, True], ids=["answered once", "collected"])
def test_the_server_ends_in_order_while_the_loop_asks_who_has_left(tmp_path: Path, collects: bool) -> None:
    repository = bls.repository(
        tmp_path / "repository", "stand-in", max_draft_len=4, bls_instance_count=LOOPS, collects=collects
    )
    for _ in range(TIMES):
        code, seconds, log = end_once(repository, pause=0.15, requests=REQUESTS)
        assert code == 0, log[-4000:]
        assert seconds < SECONDS
        assert "Traceback" not in log, log[-4000:]
