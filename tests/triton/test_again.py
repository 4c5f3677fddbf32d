"""A test runs twice where it is proven that Triton took a model for dead that only stood still; nowhere else."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

TESTS = """
import os, signal, subprocess
import pytest
from triton.harness import ABORTED, TritonServer

BEGUN = []
PORTS = {}

@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with TritonServer(tmp_path_factory.mktemp("empty")) as made:
        yield made

def end(server, words, number):
    with (server._home / "log").open("a") as log:
        log.write(words + "\\n")
    os.kill(server.pid, number)
    server._process.wait(240)

def abort(server, words=ABORTED):
    end(server, f"terminate called after throwing an instance of '{words}'", signal.SIGABRT)

def crash(server):
    end(server, "Stub process 'x_0_0' is not healthy.", signal.SIGSEGV)

def refuse():
    raise RuntimeError("Stub process 'x_0_0' is not healthy.")

def stand_still():
    subprocess.run(["sh", "-c", f"kill -STOP {os.getpid()}; sleep 2; kill -CONT {os.getpid()}"], check=True)

def test_it(server):
    BEGUN.append(server)
    PORTS.setdefault(server, server.ports)
    assert server.ready()
    assert server.ports == PORTS[server], "others know them"
    DOES

def test_the_next(server):
    assert server.ready()
"""
ENDED = "assert server.ready()"


@pytest.mark.parametrize("chosen", ["test_it or test_the_next", "test_it"], ids=["the server goes on", "it stops"])
def test_whom_triton_aborts_runs_again(tmp_path: Path, chosen: str) -> None:
    said = run(
        tmp_path, f"if len(BEGUN) == 1: abort(server)\n    {ENDED}\n    assert len(BEGUN) == 2", chosen, workers=1
    )
    assert f"{chosen.count('test')} passed" in said
    assert "failed" not in said
    assert said.count("TWICE test_made.py::test_it: Triton broke its server: terminate called after") == 1
    assert said.count("TWICE") == 1


def test_a_server_of_the_test_s_own_counts_too(tmp_path: Path) -> None:
    own = "with TritonServer(server.repository) as own:\n        if len(BEGUN) == 1: abort(own)\n        "
    own += "assert own.ready()"
    assert run(tmp_path, own, "test_it").count("TWICE") == 1


@pytest.mark.parametrize("tells", ["crash(server)", "refuse()"], ids=["the log says so", "the client is told"])
def test_a_model_that_is_given_up_while_the_machine_stands_still(tmp_path: Path, tells: str) -> None:
    said = run(tmp_path, f"if len(BEGUN) == 1: stand_still(), {tells}\n    {ENDED}", "test_it or test_the_next")
    assert "2 passed" in said
    assert said.count("TWICE") == 1
    assert re.search("Stub process 'x_0_0' is not healthy.?; the machine stood still for [12]\\.[0-9] s", said)


@pytest.mark.parametrize(
    ("does", "twice"),
    [
        (f"abort(server)\n    {ENDED}", 1),
        (f"abort(server, 'std::runtime_error')\n    {ENDED}", 0),
        (f"if len(BEGUN) == 1: crash(server)\n    {ENDED}", 0),
        (f"if len(BEGUN) == 1: refuse()\n    {ENDED}", 0),
        ("stand_still()\n    assert len(BEGUN) > 1, 'the first time'", 0),
    ],
    ids=["twice", "for another reason", "a model died by itself", "and its client is told", "the server lives"],
)
def test_what_else_fails_stays_a_failure(tmp_path: Path, does: str, twice: int) -> None:
    said = run(tmp_path, does, "test_it")
    assert "1 failed" in said
    assert said.count("TWICE") == twice


def run(folder: Path, does: str, chosen: str, workers: int = 0) -> str:
    """What pytest says of tests that do this."""
    (folder / "test_made.py").write_text(TESTS.replace("DOES", does))
    command = [sys.executable, "-m", "pytest", "-p", "triton.again", "-p", "no:cacheprovider", "-n", str(workers)]
    command += ["-k", chosen, "test_made.py"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env, timeout=300, check=False)
    return done.stdout + done.stderr
