"""How the server ends: by a signal, for a dead model, for an engine that has failed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.serving.pod import SERVING, change, serve, start
from tandem_serving.boot.dead_models import LOOK_SECONDS


def test_a_server_ended_by_a_signal_gives_128_plus_it(revision: Path) -> None:
    change(revision, server={"command": [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]})
    process = serve(revision)
    process.communicate(timeout=240)
    assert process.returncode == 128 + signal.SIGKILL


# Stands for tritonserver and the process of a model, by its name; it does not ask how that ended, as Triton does not.
WITH_MODEL = """
import os, pathlib, shutil, subprocess, time
stub = pathlib.Path(os.environ["FOLDER"], "triton_python_backend_stub")
shutil.copy(shutil.which("sleep"), stub)
print("model", subprocess.Popen([stub, "600"]).pid, flush=True)
time.sleep(600)
"""


def test_a_server_whose_model_died_is_ended(revision: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITH_MODEL]
    change(revision, server={"command": command}, env={"FOLDER": str(tmp_path)})
    process = serve(revision)
    assert process.stdout is not None
    model = int(next(line for line in iter(process.stdout.readline, "") if line.startswith("model ")).split()[1])
    time.sleep(2 * LOOK_SECONDS + 0.5)
    assert process.poll() is None, "it lives"
    os.kill(model, signal.SIGSEGV)
    said, _ = process.communicate(timeout=240)
    assert f"a model has died (process {model})" in said
    assert process.returncode == 1


RUN = """
import os, sys, time
from tandem_serving.boot.supervise import Supervisor
server = Supervisor(os.environ, finish=lambda: time.sleep(600))
server.start([sys.executable, "-c", sys.argv[1]])
sys.exit(server.wait())
"""


def test_a_model_that_dies_while_requests_are_finished_ends_the_server(tmp_path: Path) -> None:
    """Nobody serves them any longer, and what the model counted stays on the page: it would be waited for in vain."""
    environment = {**os.environ, "FOLDER": str(tmp_path), "PYTHONPATH": str(SERVING)}
    command = [sys.executable, "-u", "-c", RUN, WITH_MODEL]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        model = int(next(line for line in process.stdout if line.startswith("model ")).split()[1])
        process.send_signal(signal.SIGTERM)
        time.sleep(LOOK_SECONDS + 0.5)
        os.kill(model, signal.SIGSEGV)
        said, _ = process.communicate(timeout=240)
    assert f"a model has died (process {model})" in said
    assert process.returncode == 1


WITH_DEAD_ENGINE = """
import json, os, pathlib, signal, time
terms = []
signal.signal(signal.SIGTERM, lambda *_: terms.append(1))
path = pathlib.Path(os.environ["TANDEM_ENGINE_FAILURE"])
print("found" if path.exists() else "nothing", "port", os.environ["TANDEM_METRICS_PORT"], flush=True)
failure = {"model": "tensorrt_llm", "reason": "EngineFailing", "message": "CUDA runtime error"}
while os.environ["WELL"] and not terms:
    time.sleep(0.05)
path.write_text(json.dumps({"engineFailure": failure}))
print("published", flush=True)
end = time.monotonic() + 600
while time.monotonic() < end:
    time.sleep(1)
"""


def serve_dead(revision: Path, log: Path, well: bool = False) -> "subprocess.Popen[str]":
    """A server whose engine fails at once, or is `well` until SIGTERM; it does not end by itself."""
    drain = {"port": 1, "seconds": 60}
    server = {"command": [sys.executable, "-c", WITH_DEAD_ENGINE]}
    change(revision, server=server, env={"WELL": "yes" if well else ""}, drain=drain)
    models = str(revision.parent / "models")
    return start(revision, "serve", "--models", models, "--termination-log", str(log))


@pytest.mark.parametrize("exists", [True, False])
def test_a_server_whose_engine_failed_is_ended_at_once_and_says_why(
    revision: Path, tmp_path: Path, exists: bool
) -> None:
    log = tmp_path / "termination-log"
    if exists:
        log.write_text("something that is longer than what is written" * 20)
    (tmp_path / "models").mkdir()
    (tmp_path / "models/engine-failure.json").write_text("of an earlier start of this container")
    process = serve_dead(revision, log)
    assert process.stdout is not None
    said = ""
    while not said.endswith("\npublished\n"):
        said += process.stdout.readline()
    rest, errors = process.communicate(timeout=240)
    assert "nothing port 1" in said
    assert process.returncode == 1, errors
    assert '"reason": "EngineFailing"' in rest
    if exists:
        assert json.loads(log.read_text())["engineFailure"]["message"] == "CUDA runtime error"
    else:
        assert not log.exists()
        assert "nothing but this log tells of it" in rest


def test_an_engine_that_fails_as_the_server_stops_is_no_failure(revision: Path, tmp_path: Path) -> None:
    """Its calls fail because the server ends."""
    log = tmp_path / "termination-log"
    log.touch()
    process = serve_dead(revision, log, well=True)
    assert process.stdout is not None
    while not process.stdout.readline().startswith("nothing port"):
        pass
    process.send_signal(signal.SIGTERM)
    while (line := process.stdout.readline()) != "published\n":
        assert line, "it ended before"
    time.sleep(2)
    assert process.poll() is None
    kill_tree(process.pid)
    process.communicate(timeout=240)
    assert log.read_text() == ""


def kill_tree(pid: int) -> None:
    """The server, which does not end by itself here."""
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        os.kill(child, signal.SIGKILL)
