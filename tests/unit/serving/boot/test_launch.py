import json
import os
import resource
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from support.serving.pod import SERVER, SERVING, change, serve, start, started
from tandem_serving.boot.launch import LaunchError, LaunchPlan, assemble, copy_tokenizer, read_plan
from tandem_serving.boot.shared_memory import FOLDER, OPTION


def test_serve_assembles_starts_forwards_and_returns_the_code(revision: Path) -> None:
    process = serve(revision)
    said = started(process)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 7, errors
    models = revision.parent / "models"
    assert f"['--flag', '--model-repository={models}', '--http-restricted-api=" in said
    assert "mark set" in said
    assert (models / "engine" / "config.pbtxt").read_text() == 'name: "engine"\n'
    assert (models / "engine" / "engine_package" / "__init__.py").is_file(), "models import their packages"
    assert (models / "engine" / "1" / "model.py").read_text() == "# a model\n"


def test_what_a_killed_server_left_in_shared_memory_is_removed(revision: Path) -> None:
    prefix = f"tandem-test-{uuid.uuid4().hex}-"
    left = FOLDER / f"{prefix}1"
    left.touch()
    named = f"--backend-config=python,{OPTION}{prefix}"
    change(revision, server={"command": [sys.executable, "-c", SERVER, named]})
    process = serve(revision)
    started(process)
    assert not left.exists()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=240)


def test_a_model_may_bring_a_backend_instead_of_code(revision: Path, tmp_path: Path) -> None:
    version = tmp_path / "image" / "models" / "engine" / "1"
    (version / "model.py").rename(version / "libtriton_some.so")
    assemble(read_plan(revision), tmp_path / "models")
    assert (tmp_path / "models" / "engine" / "1" / "libtriton_some.so").is_file()


def test_the_tokenizer_is_copied_for_the_openai_endpoint(revision: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "checkpoint", tmp_path / "tokenizer"
    for folder in (source, target):
        folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "model.safetensors"):
        (source / name).write_text(name)
    (source / "additional_chat_templates").mkdir()
    (source / "additional_chat_templates/tool_use.jinja").write_text("for tools")
    copy_tokenizer(read_plan(revision))
    assert not list(target.iterdir()), "a plan from before there was an endpoint"
    change(revision, tokenizer={"from": str(source), "to": str(target)})
    for _ in range(2):  # a container starts again
        copy_tokenizer(read_plan(revision))
    copied = {path.name: path.read_text() for path in target.rglob("*") if path.is_file()}
    whole = {name: name for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")}
    assert copied == {**whole, "tool_use.jinja": "for tools"}


def test_the_plan_knows_better_than_the_image(revision: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARK", "the image's")
    change(revision, server={"command": [sys.executable, "-c", SERVER, "--model-repository=elsewhere"]})
    process = serve(revision)
    said = started(process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=240)
    assert "['--model-repository=elsewhere', '--http-restricted-api=" in said
    assert said.endswith("mark set\n")


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


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [("-S -s 8192", 64 << 20), ("-s 16384", 16 << 20), ("-S -s 99999", 99999 << 10)],
    ids=["a runtime's usual", "no more than the hard one", "one that is higher stays"],
)
def test_the_stack_is_as_nvidia_starts_containers(limits: str, wanted: int, revision: Path) -> None:
    tell = "import resource as r; print(r.getrlimit(r.RLIMIT_STACK)[0])"
    change(revision, server={"command": [sys.executable, "-c", tell]})
    entrypoint = [sys.executable, str(SERVING / "entrypoint.py"), "serve", "--revision", str(revision)]
    lowered = ["sh", "-c", f'ulimit {limits} && exec "$@"', "sh", *entrypoint, "--models", str(revision / "m")]
    said = subprocess.run(lowered, capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1] == str(wanted)


def test_low_locked_memory_is_logged_with_what_to_change(revision: Path) -> None:
    """A pod cannot ask for more: it is the node's."""
    change(revision, server={"command": [sys.executable, "-c", ""]})
    entrypoint = [sys.executable, str(SERVING / "entrypoint.py"), "serve", "--revision", str(revision)]
    lowered = ["sh", "-c", 'ulimit -l 64 && exec "$@"', "sh", *entrypoint, "--models", str(revision / "m")]
    said = subprocess.run(lowered, capture_output=True, text=True, check=True).stdout
    assert "locked memory is limited to 64 KiB" in said
    assert "LimitMEMLOCK=infinity" in said


def test_a_server_whose_models_have_no_gpu_is_not_started(revision: Path) -> None:
    """Without a GPU as with one: no pod has so many."""
    asked = {"module": "never.asked", "sequences": 1, "max_seq_len": 0, "devices": {"target": 999}}
    change(revision, preflight={"engine_check": asked})
    _, errors = serve(revision).communicate(timeout=240)
    assert errors.startswith("cannot serve: ")
    assert "the models need 1000 GPUs" in errors or "the NVIDIA driver is not in this container" in errors


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
    _, errors = process.communicate(timeout=240)
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
    out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert json.loads(out) == json.loads(log.read_text())
    assert json.loads(out)["checks"][0]["reason"] == "ModelInvalid"


def test_preflight_that_cannot_run_fails(revision: Path) -> None:
    (revision / "launch.json").unlink()
    process = start(revision, "preflight", "--termination-log", os.devnull)
    assert "cannot run the checks" in process.communicate(timeout=240)[1]
    assert process.returncode == 1


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (["tensorrt_llm_bls"], "no answer on port 9"),
        (["tensorrt_llm", "tensorrt_llm_stream"], "no answer on port 9"),
        ([], "has none of tensorrt_llm_bls, tensorrt_llm:"),
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
        timeout=240,
        check=False,
    )
    assert process.returncode == 1
    assert message in process.stderr
    assert process.stderr.count("\n") == 1


# Stands for tritonserver whose model finds an engine dead, and then does not end by itself, whatever it is told.
