import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tandem_serving.boot.control import CONTROL, KEY_FILE, SCRIPT, restrict
from tandem_serving.boot.dead_models import LOOK_SECONDS
from tandem_serving.boot.launch import LaunchError, LaunchPlan, assemble, read_plan

SERVING = Path(__file__).parents[4] / "images" / "serving"
# Stands for tritonserver: says its arguments and environment, leaves an orphan, waits for a signal.
SERVER = """
import os, signal, subprocess, sys, time
print("arguments", sys.argv[1:], "mark", os.environ.get("MARK"), flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def revision(tmp_path: Path) -> Path:
    """A revision folder with one model and a stand-in server."""
    source = tmp_path / "image" / "models" / "engine"
    (source / "1").mkdir(parents=True)
    (source / "1" / "model.py").write_text("# a model\n")
    folder = tmp_path / "revision"
    folder.mkdir()
    (tmp_path / "image" / "engine_package").mkdir()
    (tmp_path / "image" / "engine_package" / "__init__.py").write_text("")
    (folder / "engine.config.pbtxt").write_text('name: "engine"\n')
    plan = {
        "models": {"engine": {"config": "engine.config.pbtxt", "source": str(source)}},
        "server": {"command": [sys.executable, "-c", SERVER, "--flag"]},
        "env": {"MARK": "set"},
        "preflight": {"target": {"path": "/nowhere"}},
    }
    (folder / "launch.json").write_text(json.dumps(plan))
    return folder


def change(revision: Path, **parts: Any) -> None:
    path = revision / "launch.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | parts))


def start(revision: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SERVING / "entrypoint.py"), *arguments, "--revision", str(revision)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def serve(revision: Path) -> subprocess.Popen[str]:
    return start(revision, "serve", "--models", str(revision.parent / "models"))


def started(process: subprocess.Popen[str]) -> str:
    """What the server says of its arguments; it is ready then."""
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    said = next(line for line in lines if line.startswith("arguments"))
    assert next(lines) == "ready\n"
    return said


def test_serve_assembles_starts_forwards_and_returns_the_code(revision: Path) -> None:
    process = serve(revision)
    said = started(process)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 7, errors
    models = revision.parent / "models"
    assert f"['--flag', '--model-repository={models}', '--http-restricted-api=" in said
    assert "mark set" in said
    assert (models / "engine" / "config.pbtxt").read_text() == 'name: "engine"\n'
    assert (models / "engine" / "engine_package" / "__init__.py").is_file(), "models import their packages"
    assert (models / "engine" / "1" / "model.py").read_text() == "# a model\n"


def test_a_model_may_bring_a_backend_instead_of_code(revision: Path, tmp_path: Path) -> None:
    version = tmp_path / "image" / "models" / "engine" / "1"
    (version / "model.py").rename(version / "libtriton_some.so")
    assemble(read_plan(revision), tmp_path / "models")
    assert (tmp_path / "models" / "engine" / "1" / "libtriton_some.so").is_file()


def test_the_plan_knows_better_than_the_image(revision: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARK", "the image's")
    change(revision, server={"command": [sys.executable, "-c", SERVER, "--model-repository=elsewhere"]})
    process = serve(revision)
    said = started(process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert "['--model-repository=elsewhere', '--http-restricted-api=" in said
    assert said.endswith("mark set\n")


OPTIONS = ("http-restricted-api", "grpc-restricted-protocol")


def test_control_apis_need_a_key_that_is_in_no_log(revision: Path) -> None:
    """New at each start, and for the container's own user alone."""
    path, keys = revision.parent / "models" / KEY_FILE, []
    for _ in range(2):
        process = serve(revision)
        assert process.stdout is not None
        log, arguments = process.stdout.readline() + process.stdout.readline(), started(process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        keys.append(path.read_text())
        group = f"shared-memory,model-repository,trace,logging:tandem-control-key={keys[-1]}"
        assert "starting: " in log
        assert keys[-1] not in log
        assert all(f"--{option}={group}" in arguments for option in OPTIONS)
        assert path.stat().st_mode & 0o777 == 0o600
    assert keys[0] != keys[1]
    assert all(re.fullmatch("[0-9a-f]{64}", key) for key in keys)


# What trtllm-llmapi-launch does with its arguments: it writes them to the log, and starts them as words.
LAUNCHER = """#!/bin/bash
set -ex
task="${@:1}"
$task
"""


@pytest.mark.parametrize("between", [[], ["trtllm-llmapi-launch"]], ids=["ranks of a pod", "of a group"])
def test_below_mpirun_the_first_server_alone_gets_the_key(between: list[str], tmp_path: Path) -> None:
    """Neither the arguments of mpirun have it, which go to all pods of a group, nor what is logged."""
    for name, text in {
        "mpirun": '#!/bin/sh\nshift 2\nexec "$@"\n',
        "trtllm-llmapi-launch": LAUNCHER,
        "tritonserver": '#!/bin/sh\nprintf "%s\\n" "$@" > "${0%/*}/arguments"\n',
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    server, models = str(tmp_path / "tritonserver"), tmp_path / "models"
    models.mkdir()
    launchers = [str(tmp_path / "mpirun"), "-n", "1", *(str(tmp_path / name) for name in between)]
    further = [] if between else [":", "-n", "2", server, "--b"]
    found = restrict([*launchers, server, "--a", *further], models)
    key = (models / KEY_FILE).read_text()
    assert found == [*launchers, str(models / SCRIPT), "--a", *further]
    done = subprocess.run(found[: len(launchers) + 2], capture_output=True, text=True, check=True)
    assert key not in done.stdout + done.stderr
    group = f"{','.join(CONTROL)}:tandem-control-key={key}"
    assert (tmp_path / "arguments").read_text().splitlines() == ["--a", *(f"--{o}={group}" for o in OPTIONS)]
    assert (models / SCRIPT).stat().st_mode & 0o777 == 0o700


def test_the_server_may_use_all_that_the_container_may(revision: Path) -> None:
    """Sockets of many clients, and memory that GPUs' drivers lock, beyond the low soft limits of a runtime."""
    tell = "import resource as r; print([r.getrlimit(k) for k in (r.RLIMIT_NOFILE, r.RLIMIT_MEMLOCK)])"
    change(revision, server={"command": [sys.executable, "-c", tell]})
    entrypoint = [sys.executable, str(SERVING / "entrypoint.py"), "serve", "--revision", str(revision)]
    low = 'ulimit -S -n 99 && ulimit -S -l 1 && exec "$@"'
    lowered = ["sh", "-c", low, "sh", *entrypoint, "--models", str(revision / "m")]
    said = subprocess.run(lowered, capture_output=True, text=True, check=True).stdout
    hard = [resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK)]
    assert said.splitlines()[-1] == str([(limit, limit) for limit in hard])


def test_a_server_ended_by_a_signal_gives_128_plus_it(revision: Path) -> None:
    change(revision, server={"command": [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]})
    process = serve(revision)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGKILL


# Stands for tritonserver and the process of a model, by its name; it does not ask how that ended, as Triton does not.
WITH_MODEL = """
import os, pathlib, shutil, subprocess, time
stub = pathlib.Path(os.environ["FOLDER"], "triton_python_backend_stub")
shutil.copy(shutil.which("sleep"), stub)
print("model", subprocess.Popen([stub, "60"]).pid, flush=True)
time.sleep(60)
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
    said, _ = process.communicate(timeout=30)
    assert f"a model has died (process {model})" in said
    assert process.returncode == 1


RUN = """
import os, sys, time
from tandem_serving.boot.supervise import Supervisor
server = Supervisor(os.environ, finish=lambda: time.sleep(60))
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
        said, _ = process.communicate(timeout=30)
    assert f"a model has died (process {model})" in said
    assert process.returncode == 1


def test_assembling_twice_gives_the_same(revision: Path, tmp_path: Path) -> None:
    plan = read_plan(revision)
    for _ in range(2):
        assemble(plan, tmp_path / "models")
    assert sorted(path.name for path in (tmp_path / "models" / "engine").iterdir()) == [
        "1",
        "config.pbtxt",
        "engine_package",
    ]


def test_a_model_without_code_gets_an_empty_version(revision: Path, tmp_path: Path) -> None:
    (revision / "ensemble.config.pbtxt").write_text('name: "ensemble"\n')
    models = json.loads((revision / "launch.json").read_text())["models"]
    change(revision, models={**models, "ensemble": {"config": "ensemble.config.pbtxt"}})
    for _ in range(2):
        assemble(read_plan(revision), tmp_path / "models")
    assert list((tmp_path / "models" / "ensemble" / "1").iterdir()) == []
    assert (tmp_path / "models" / "ensemble" / "config.pbtxt").read_text() == 'name: "ensemble"\n'


def broken(revision: Path, what: str) -> None:
    plan = revision / "launch.json"
    source = revision.parent / "image" / "models" / "engine"
    ways: dict[str, Callable[[], object]] = {
        "no plan": plan.unlink,
        "no JSON": lambda: plan.write_text("{"),
        "no object": lambda: plan.write_text("[]"),
        "no models": lambda: change(revision, models={}),
        "no command": lambda: change(revision, server={}),
        "no config": (revision / "engine.config.pbtxt").unlink,
        "no model": (source / "1" / "model.py").unlink,
        "no server": lambda: change(revision, server={"command": ["/nowhere/tritonserver"]}),
    }
    ways[what]()


BROKEN = [
    ("no plan", "launch.json cannot be read (No such file or directory): mount the revision"),
    ("no JSON", "launch.json is malformed"),
    ("no object", "launch.json is malformed"),
    ("no models", "names no models or no server command"),
    ("no command", "names no models or no server command"),
    ("no config", "missing: "),
    ("no model", "1/model.py. Configurations come with"),
    ("no server", "/nowhere/tritonserver cannot be started"),
]


@pytest.mark.parametrize(("what", "message"), BROKEN, ids=[what for what, _ in BROKEN])
def test_what_is_missing_is_said(revision: Path, what: str, message: str) -> None:
    broken(revision, what)
    process = serve(revision)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.startswith("cannot serve: ")
    assert message in errors
    assert "Traceback" not in errors


def test_empty_plan_is_no_server(tmp_path: Path) -> None:
    with pytest.raises(LaunchError):
        assemble(LaunchPlan({}, (), {}), tmp_path)


def test_preflight_runs_whatever_the_verdict(revision: Path, tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    process = start(revision, "preflight", "--termination-log", str(log))
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert json.loads(out) == json.loads(log.read_text())
    assert json.loads(out)["checks"][0]["reason"] == "ModelInvalid"


def test_preflight_that_cannot_run_fails(revision: Path) -> None:
    (revision / "launch.json").unlink()
    process = start(revision, "preflight", "--termination-log", os.devnull)
    assert "cannot run the checks" in process.communicate(timeout=60)[1]
    assert process.returncode == 1


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (["tensorrt_llm_bls"], "no answer on port 9"),
        (["tensorrt_llm", "tensorrt_llm_unary"], "no answer on port 9"),
        ([], "has none of tensorrt_llm_bls, tensorrt_llm_unary"),
    ],
    ids=["mode BLS", "mode LLMAPI", "not assembled yet"],
)
def test_probe_says_in_one_line_what_is_wrong(models: list[str], message: str, tmp_path: Path) -> None:
    for model in models:
        (tmp_path / model).mkdir()
    arguments = ["probe", "--port", "9", "--timeout", "1", "--models", str(tmp_path)]
    process = subprocess.run(
        [sys.executable, str(SERVING / "entrypoint.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == 1
    assert message in process.stderr
    assert process.stderr.count("\n") == 1


# Stands for tritonserver whose model finds an engine dead, and then does not end by itself, whatever it is told.
WITH_DEAD_ENGINE = """
import json, os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
path = pathlib.Path(os.environ["TANDEM_ENGINE_FAILURE"])
print("found" if path.exists() else "nothing", "port", os.environ["TANDEM_METRICS_PORT"], flush=True)
failure = {"model": "tensorrt_llm", "reason": "EngineFailing", "message": "CUDA runtime error"}
time.sleep(float(os.environ["WELL_SECONDS"]))
path.write_text(json.dumps({"engineFailure": failure}))
print("published", flush=True)
time.sleep(60)
"""


def serve_dead(revision: Path, log: Path, seconds: float = 0) -> "subprocess.Popen[str]":
    drain = {"port": 1, "seconds": 60}
    server = {"command": [sys.executable, "-c", WITH_DEAD_ENGINE]}
    change(revision, server=server, env={"WELL_SECONDS": str(seconds)}, drain=drain)
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
    published = time.monotonic()
    rest, errors = process.communicate(timeout=30)
    assert time.monotonic() - published < 2.5, "readiness goes with the server"
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
    process = serve_dead(revision, log, seconds=6)
    assert process.stdout is not None
    while not process.stdout.readline().startswith("nothing port"):
        pass
    process.send_signal(signal.SIGTERM)
    while (line := process.stdout.readline()) != "published\n":
        assert line, "it ended before"
    time.sleep(2)
    assert process.poll() is None
    kill_tree(process.pid)
    process.communicate(timeout=30)
    assert log.read_text() == ""


def kill_tree(pid: int) -> None:
    """The server, which does not end by itself here."""
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        os.kill(child, signal.SIGKILL)
