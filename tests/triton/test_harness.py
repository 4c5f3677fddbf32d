"""The harness itself: what it says when a server does not start, and what it leaves."""

import os
import time
from pathlib import Path

import pytest

from triton.harness import ServerError, TritonServer
from triton.repository import assemble, variables

pytestmark = pytest.mark.nightly


def runs(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def test_a_server_that_does_not_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    repository = assemble(tmp_path / "repository", ["tensorrt_llm_engine"], variables(tmp_path / "nowhere", None))
    server = TritonServer(repository)
    with pytest.raises(ServerError, match=r"cannot read .*/nowhere/config\.json: No such file or directory"):
        server.start()
    assert not server._home.exists()
    assert not [name for name in shared_memory() if name.startswith(server.shm_prefix)]
    with pytest.raises(ServerError, match="call start"):
        _ = server.pid


def test_stopping_ends_the_models_processes_too(tmp_path: Path) -> None:
    pair = Path(__file__).resolve().parents[2] / "images/reference/pair"
    repository = assemble(tmp_path / "repository", ["tensorrt_llm_engine"], variables(pair / "draft", None))
    with TritonServer(repository) as server:
        group = server.pid
        assert [name for name in shared_memory() if name.startswith(server.shm_prefix)]
    deadline = time.monotonic() + 240
    while runs(group):  # what was killed is there until it is collected
        assert time.monotonic() < deadline, f"of process group {group} something is left"
        time.sleep(0.05)
    assert not [name for name in shared_memory() if name.startswith(server.shm_prefix)]
