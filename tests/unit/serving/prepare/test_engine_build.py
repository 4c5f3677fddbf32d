"""The build of an engine, with stand-ins of the image's two tools that write what the real ones write."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tandem_fetcher.prune import prune
from tandem_serving.prepare import cached, engine_build
from tandem_serving.prepare.engine_build import EngineBuildPlan, run

KEY = "e" * 32
SERVING = Path(__file__).parents[4] / "images" / "serving"
# Both say how they were called, write a file into --output_dir and one where they were started; the build fails as
# FAIL says.
TOOL = f"""#!{sys.executable}
import os, pathlib, signal, sys
calls = pathlib.Path(os.environ["CALLS"])
with calls.open("a") as file:
    file.write(" ".join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]) + "\\n")
output = pathlib.Path(next(word for word in sys.argv if word.startswith("--output_dir=")).split("=", 1)[1])
fail = os.environ.get("FAIL", "")
for i in range(30):
    print(f"line {{i}}" + os.environ.get("PADDING", ""))
if fail == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if fail and fail in sys.argv[0]:
    sys.exit("ValueError: max_draft_len")
output.mkdir(parents=True)
for name in ("config.json", "rank0.engine"):
    (output / name).write_text("{{}}")
pathlib.Path("model.cache").write_text("{{}}")
"""


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the examples, `trtllm-build` on the PATH, a Llama checkpoint, and the log of calls."""
    script = tmp_path / "examples" / "models/core/llama" / "convert_checkpoint.py"
    script.parent.mkdir(parents=True)
    script.write_text(TOOL)
    tool = tmp_path / "bin" / "trtllm-build"
    tool.parent.mkdir()
    tool.write_text(TOOL)
    tool.chmod(0o755)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llama"}')
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path


def part(image: Path) -> dict[str, Any]:
    """What launch.json says of the target's engine."""
    home = image / "cache" / "engines" / KEY
    return {
        "model": str(image / "model"),
        "folder": str(home / "engine"),
        "script": "",
        "convert": [f"--output_dir={home}/.partial/checkpoint", "--tp_size=1"],
        "build": [f"--output_dir={home}/.partial/engine", "--max_draft_len=4"],
    }


def built(image: Path, **changes: Any) -> tuple[dict[str, str], int]:
    """The check and the exit code."""
    verdict, code = run(
        "target", EngineBuildPlan.parse({"target": {**part(image), **changes}}, "target"), image / "examples"
    )
    (check,) = verdict["checks"]
    assert check["type"] == "EnginesReady"
    return check, code


def calls(image: Path) -> list[str]:
    path = image / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_both_tools_run_with_their_arguments_and_leave_an_engine(image: Path) -> None:
    check, code = built(image)
    home = image / "cache" / "engines" / KEY
    assert (check["status"], code) == ("True", 0), check
    assert calls(image) == [
        f"convert_checkpoint.py --output_dir={home}/.partial/checkpoint --tp_size=1",
        f"trtllm-build --output_dir={home}/.partial/engine --max_draft_len=4",
    ]
    assert sorted(path.name for path in (home / "engine").iterdir()) == ["build.json", "config.json", "rank0.engine"]
    assert not (home / ".partial").exists(), "the converted checkpoint is as large as the model"


def test_what_the_tools_leave_where_they_were_started_is_not_left_in_the_image(
    image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image's folder is read-only in a pod."""
    started = image / "app"
    started.mkdir()
    monkeypatch.chdir(started)
    built(image)
    assert list(started.iterdir()) == []
    assert not [*(image / "cache").rglob("model.cache")], "nor in the cache"


def test_a_script_is_told_in_its_own_words(image: Path) -> None:
    script = image / "examples" / "models/core/internlm2" / "convert_checkpoint.py"
    script.parent.mkdir()
    script.write_text(TOOL)
    (image / "model" / "config.json").write_text('{"model_type": "internlm2", "torch_dtype": "bfloat16"}')
    built(image, convert=[*part(image)["convert"], "--dtype=auto"])
    assert calls(image)[0].endswith(" --dtype=bfloat16")


FACTS: list[tuple[str, dict[str, Any], str, str]] = [
    # why, config.json, reason, part of the message
    (
        "heads",
        {"num_attention_heads": 14, "num_key_value_heads": 2},
        "ModelNotDivisible",
        "target engine: 14 attention heads and 2 KV heads cannot be split over 4 GPUs: write tensorParallelSize: 1, 2"
        " or 14",
    ),
    (
        "quantization",
        {"quantization_config": {"quant_method": "modelopt"}},
        "QuantizationNotConverted",
        "the checkpoint is quantized (modelopt)",
    ),
    (
        "code",
        {"auto_map": {"AutoConfig": "configuration_x.XConfig"}},
        "CodeMissing",
        "config.json refers to configuration_x.py (auto_map), which TensorRT-LLM's scripts run",
    ),
]


@pytest.mark.parametrize("script", ["", "/app/examples/medusa/convert_checkpoint.py"], ids=["by family", "Medusa"])
@pytest.mark.parametrize(("config", "reason", "message"), [row[1:] for row in FACTS], ids=[row[0] for row in FACTS])
def test_what_the_tools_would_not_convert_is_not_begun(
    image: Path, script: str, config: dict[str, Any], reason: str, message: str
) -> None:
    (image / "model" / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    convert = [word.replace("--tp_size=1", "--tp_size=4") for word in part(image)["convert"]]
    check, code = built(image, convert=convert, script=script)
    assert (check["status"], check["reason"], code) == ("False", reason, 0)
    assert message in check["message"]
    assert calls(image) == []


def test_medusas_heads_are_looked_for(image: Path) -> None:
    """The script would end with a trace that names no field."""
    heads = image / "heads"
    heads.mkdir()
    script = image / "examples" / "models/core/llama" / "convert_checkpoint.py"
    convert = [*part(image)["convert"], f"--medusa_model_dir={heads}"]
    check, code = built(image, convert=convert, script=str(script))
    assert (check["status"], check["reason"], code) == ("False", "ModelInvalid", 0)
    assert f"{heads} has no medusa_lm_head.safetensors: write where Medusa's heads are" in check["message"]
    assert calls(image) == []
    for name in ("medusa_lm_head.pt", "medusa_lm_head.safetensors"):
        (heads / name).touch()
        assert built(image, convert=convert, script=str(script))[0]["status"] == "True"
        (heads / name).unlink()


def test_an_equal_engine_is_not_built_again(image: Path) -> None:
    built(image)
    check, code = built(image)
    assert (check["status"], code, len(calls(image))) == ("True", 0, 2)


def test_an_engine_that_is_asked_for_again_is_not_pruned_soon(image: Path) -> None:
    built(image)
    home = image / "cache" / "engines" / KEY
    for path in (home, home / ".tandem"):
        os.utime(path, (0, 0))
    built(image)
    assert prune(image / "cache", [], 3600, dry_run=False).removed == ()


def test_an_engine_is_known_for_tandems(image: Path) -> None:
    built(image)
    home = image / "cache" / "engines" / KEY
    found = prune(image / "cache", [], 0, dry_run=False)
    assert (found.removed, found.left, home.exists()) == ((f"engines/{KEY}",), {}, False)


def test_an_engine_that_another_namespace_uses_is_left(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANDEM_NAMESPACE", "team-a")
    built(image)
    found = prune(image / "cache", [], 0, dry_run=False, namespace="team-b")
    assert (found.removed, found.left) == ((), {f"engines/{KEY}": "Shared"})
    assert prune(image / "cache", [], 0, dry_run=False, namespace="team-a").removed == (f"engines/{KEY}",)


def test_a_build_that_waited_for_prune_locks_what_has_the_name_now(tmp_path: Path) -> None:
    home = tmp_path / "engines" / KEY
    home.mkdir(parents=True)
    entered, leave = threading.Event(), threading.Event()

    def build() -> None:
        with engine_build._lock(home):
            entered.set()
            leave.wait(60)

    with (home / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        thread = threading.Thread(target=build)
        thread.start()
        assert not entered.wait(0.5)
        home.rename(tmp_path / "removed")
    assert entered.wait(60)
    with (home / ".lock").open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    leave.set()
    thread.join()


def test_a_model_that_is_gone_is_told_as_such(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = image / "cache" / "models" / KEY
    monkeypatch.setattr(cached, "CACHE", image / "cache")
    check, code = built(image, model=str(model))
    assert (check["reason"], code, calls(image)) == ("ModelGone", 0, [])
    assert f"{model} is gone from the cache volume" in check["message"]


def test_an_engine_has_its_name_only_when_it_is_on_the_disk(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def sync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        synced.append(f"{path.parent.name}/{path.name}")

    monkeypatch.setattr(os, "fsync", sync)
    built(image)
    files = [f"engine/{name}" for name in ("build.json", "config.json", "rank0.engine")]
    assert sorted(synced[:3]) == files
    assert synced[3:] == [".partial/engine", f"engines/{KEY}"], "the folder, and after the rename its name"


def test_two_at_once_build_once(image: Path) -> None:
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(built(image)[1])) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (results, len(calls(image))) == ([0, 0], 2)


def test_what_a_killed_pod_left_is_removed(image: Path) -> None:
    partial = image / "cache" / "engines" / KEY / ".partial"
    (partial / "engine").mkdir(parents=True)
    (partial / "engine" / "rank7.engine").write_text("half")
    check, _ = built(image)
    assert check["status"] == "True"
    assert not (partial.parent / "engine" / "rank7.engine").exists()


@pytest.mark.parametrize(
    ("fail", "code", "said"),
    [
        ("trtllm-build", 0, ["trtllm-build failed with code 1", "line 29", "ValueError: max_draft_len"]),
        ("convert_checkpoint", 0, ["convert_checkpoint.py failed with code 1", "line 29"]),
        ("killed", 1, ["convert_checkpoint.py was killed (code -9: out of memory"]),
    ],
)
def test_a_tool_that_fails(
    image: Path, monkeypatch: pytest.MonkeyPatch, fail: str, code: int, said: list[str]
) -> None:
    monkeypatch.setenv("FAIL", fail)
    check, exit_code = built(image)
    assert (check["status"], check["reason"]) == ("False", "BuildFailed")
    assert exit_code == code, "again only where it helps"
    assert [text for text in said if text not in check["message"]] == []
    assert "line 3\n" not in check["message"], "the last lines only"
    assert not (image / "cache" / "engines" / KEY / "engine").exists()


def test_of_long_lines_the_last_ones_are_told(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIL", "trtllm-build")
    monkeypatch.setenv("PADDING", " of a log that says much" * 5)
    check, _ = built(image)
    assert check["message"].endswith("ValueError: max_draft_len"), "what failed stands at the end"


@pytest.mark.parametrize(
    ("config", "changes", "reason", "message"),
    [
        ('{"model_type": "rwkv"}', {}, "ArchitectureUnknown", "no conversion is known for model_type 'rwkv'"),
        ("{}", {}, "ArchitectureUnknown", "model_type 'None'"),
        ("no json", {}, "ModelInvalid", "cannot be read"),
        ('{"model_type": "qwen2"}', {}, "ImageLacksTools", "qwen/convert_checkpoint.py is not in this image"),
        ("{}", {"script": "/nowhere/medusa.py"}, "ImageLacksTools", "/nowhere/medusa.py is not in this image"),
    ],
)
def test_what_cannot_be_built(image: Path, config: str, changes: dict[str, str], reason: str, message: str) -> None:
    (image / "model" / "config.json").write_text(config)
    check, code = built(image, **changes)
    assert (check["status"], check["reason"], code) == ("False", reason, 0)
    assert message in check["message"]
    assert calls(image) == []


def test_without_trtllm_build(image: Path) -> None:
    (image / "bin" / "trtllm-build").unlink()
    check, code = built(image)
    assert (check["reason"], code) == ("ImageLacksTools", 0)


def test_a_cache_that_cannot_be_written(image: Path) -> None:
    (image / "cache").write_text("a file")
    check, code = built(image)
    assert (check["reason"], code) == ("CacheFailed", 1)


def test_the_entry_points_verb(image: Path) -> None:
    (image / "revision").mkdir()
    (image / "revision" / "launch.json").write_text(json.dumps({"builds": {"target": part(image)}}))
    command = [sys.executable, str(SERVING / "entrypoint.py"), "build", "--revision", str(image / "revision")]
    command += ["--examples", str(image / "examples"), "--termination-log", str(image / "log"), "--role"]
    done = subprocess.run([*command, "target"], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((image / "log").read_text())["checks"][0]["status"] == "True"
    assert "line 29" in done.stdout, "the tools' output is the log"
    unknown = subprocess.run([*command, "draft"], capture_output=True, text=True, timeout=240, check=False)
    assert unknown.returncode == 1
    assert "launch.json has no build for draft: apply the resource again" in unknown.stderr


def test_a_build_that_is_stopped_ends(image: Path) -> None:
    slow = image / "bin" / "trtllm-build"
    slow.write_text(f"#!{sys.executable}\nimport time\nprint('slow', flush=True)\ntime.sleep(600)\n")
    (image / "revision").mkdir()
    (image / "revision" / "launch.json").write_text(json.dumps({"builds": {"target": part(image)}}))
    command = [sys.executable, str(SERVING / "entrypoint.py"), "build", "--revision", str(image / "revision")]
    command += ["--examples", str(image / "examples"), "--termination-log", str(image / "log"), "--role", "target"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any(line == "slow\n" for line in process.stdout)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=240) != 0
