"""A pod of a group whose ranks join the leader's by themselves: it waits for the leader, and ends with its ranks, or
with the leader."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SERVING = Path(__file__).parents[4] / "images" / "serving"
ENTRYPOINT = f"""
import sys
from pathlib import Path
sys.path[:0] = [{str(SERVING)!r}, str(Path(__file__).parent)]
from tandem_serving.boot import entrypoint
from tandem_serving.llmapi import engines
engines.ENGINES["Fake"] = "fake"
sys.exit(entrypoint.main())
"""
ENGINE = """
import os, time
from pathlib import Path
from types import SimpleNamespace

def run_ranks(arguments):
    print("ranks of", arguments["model"], os.environ["MARK"], flush=True)
    while not (Path(__file__).parent / "ended").exists():
        time.sleep(0.05)

ENGINE = SimpleNamespace(run_ranks=run_ranks)
"""


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    """A pod's files, with an engine whose ranks run until there is a file `ended`."""
    plan = {
        "env": {"MARK": "marked"},
        "server": {"command": ["x"]},
        "preflight": {"llm_args": {"file": "llm_args.yaml", "engine": "Fake"}},
    }
    (tmp_path / "launch.json").write_text(json.dumps(plan))
    (tmp_path / "llm_args.yaml").write_text("model: /models/target\n")
    (tmp_path / "entrypoint.py").write_text(ENTRYPOINT)
    (tmp_path / "fake.py").write_text(ENGINE)
    return tmp_path


@contextmanager
def node(pod: Path, port: int, **variables: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(pod / "entrypoint.py"), "node", f"--revision={pod}", f"--port={port}"]
    environment = {**os.environ, "LWS_LEADER_ADDRESS": "127.0.0.1", **variables}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout
    return next(line for line in process.stdout if words in line)


def test_it_waits_for_the_leader_and_ends_with_its_ranks(pod: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as leader:
        port = leader.getsockname()[1]
        leader.close()
        with node(pod, port) as process:
            said(process, "waiting for 127.0.0.1")
            with socket.create_server(("127.0.0.1", port)):
                assert said(process, "ranks of") == "ranks of /models/target marked\n"
                (pod / "ended").touch()
                assert process.wait(60) == 1


def test_its_ranks_outlive_a_signal_until_the_leader_is_gone(pod: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as leader, node(pod, leader.getsockname()[1]) as process:
        said(process, "ranks of")
        process.send_signal(signal.SIGTERM)
        said(process, "the ranks go on until the leader is gone")
        assert process.poll() is None
        leader.close()
        assert process.wait(60) == 128 + signal.SIGTERM


def test_outside_of_a_group_it_says_so(pod: Path) -> None:
    with node(pod, 1, LWS_LEADER_ADDRESS="") as process:
        assert "cannot work: this pod is in no group" in said(process, "cannot work")
        assert process.wait(60) == 1
