"""SIGTERM while the BLS calls an engine without a request: the server ends with 0, and soon.

A call can fall into the moment in which Triton has ended the threads for them, and not yet informed the model: the
server then ends by signal 11. `tests/bench/ends.py` does it many times.
"""

from pathlib import Path

from bench.ends import end_once, repository

TIMES = 3
INSTANCES, REQUESTS = 4, 8
"""Those that had none send no canary."""
SECONDS = 10
"""Triton gives each model a second, and asks every second whether all are unloaded."""


def test_the_server_ends_in_order_while_engines_are_called(tmp_path: Path) -> None:
    models = repository(tmp_path / "repository", bls_instance_count=INSTANCES)
    for _ in range(TIMES):
        code, seconds, log = end_once(models, pause=0.15, requests=REQUESTS)
        assert code == 0, log[-4000:]
        assert seconds < SECONDS
        assert "Traceback" not in log, log[-4000:]
