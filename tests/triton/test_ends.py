"""SIGTERM while the BLS calls an engine without a request: the server ends with 0.

A call can fall into the moment in which Triton has ended the threads for them, and not yet informed the model: the
server then ends by signal 11. `tests/bench/ends.py` does it many times.
"""

from pathlib import Path

from bench.ends import end_once, repository

INSTANCES, REQUESTS = 4, 8
"""Those that had none send no canary."""


def test_the_server_ends_in_order_while_engines_are_called(tmp_path: Path) -> None:
    models = repository(tmp_path / "repository", bls_instance_count=INSTANCES)
    code, _, log = end_once(models, pause=0.15, requests=REQUESTS)
    assert code == 0, log[-4000:]
    assert "Traceback" not in log, log[-4000:]
