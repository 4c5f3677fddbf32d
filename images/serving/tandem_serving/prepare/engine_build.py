"""Builds a TensorRT engine with the image's own tools: checkpoint conversion, then trtllm-build.

In the cache volume an engine has a folder named by its content:
  <key>/engine    the engine; there from one moment to the next, when it is whole
  <key>/.partial  what the tools write: the converted checkpoint, the engine on its way
  <key>/.lock     held by the one that builds: a second waits, and finds the engine
  <key>/.tandem   the folder's name, by which `tandem cache prune` knows that Tandem made it
  <key>/.used-by-NAMESPACE  that has asked for it, as the fetcher writes it
The verdict is a condition, like the preflight's. A build that trying again cannot help is a verdict of False with
exit code 0; what another pod may do better (a tool that was killed, a volume that fails) has exit code 1.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from tandem_serving import checkpoint
from tandem_serving.checkpoint import CheckpointError
from tandem_serving.prepare import cached, conversion, splitting
from tandem_serving.prepare.build_progress import BuildProgress
from tandem_serving.prepare.verdict import CheckResult, bounded

EXAMPLES = Path("/app/examples")
"""Where NVIDIA's image has TensorRT-LLM's examples."""
MEDUSA = "medusa"
"""Folder of the script that converts a model with Medusa heads, which the plan names."""
HEADS_OPTION = "medusa_model_dir"
HEADS = ("medusa_lm_head.safetensors", "medusa_lm_head.pt")
"""Files of which that script reads one."""
TAIL_LINES, TAIL_BYTES = 20, 1000
"""Lines of a tool's output that a verdict repeats, as far as it has room for them: what failed stands at the end."""


class BuildError(Exception):
    """The engine cannot be built; `again`: another try may do better."""

    def __init__(self, reason: str, message: str, *, again: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.again = again


@dataclass(frozen=True)
class EngineBuildPlan:
    """A part of launch.json's `builds`; see `tandem.engines.tensorrt_engines.builds.EngineBuildPlan`."""

    model: Path
    folder: Path
    script: str
    convert: tuple[str, ...]
    build: tuple[str, ...]

    @classmethod
    def parse(cls, builds: Mapping[str, Any], role: str) -> EngineBuildPlan:
        """The build of a role. Raises BuildError."""
        if role not in builds:
            raise BuildError("PlanMalformed", f"launch.json has no build for {role}: apply the resource again")
        part = builds[role]
        arguments = (tuple(map(str, part[name])) for name in ("convert", "build"))
        return cls(Path(part["model"]), Path(part["folder"]), str(part["script"]), *arguments)


def progress_of(build: EngineBuildPlan) -> BuildProgress:
    """What shows how far a build is."""
    options = _options(build)
    with contextlib.suppress(CheckpointError):  # the build says what is wrong with it
        config = checkpoint.language_model(checkpoint.read_json(build.model / "config.json"))
        layers = config.get("num_hidden_layers")
        ranks = math.prod(int(options.get(name, 1)) for name in ("tp_size", "pp_size"))
        return BuildProgress(build.folder.parent / ".partial", ranks, layers if isinstance(layers, int) else 0)
    return BuildProgress(build.folder.parent / ".partial")


def run(
    role: str, build: EngineBuildPlan, examples: Path = EXAMPLES, progress: BuildProgress | None = None
) -> tuple[dict[str, Any], int]:
    """Build the engine of a role, unless it is there. The verdict, and the exit code."""
    try:
        message = _build(build, examples, progress or progress_of(build))
    except BuildError as error:
        check = CheckResult("EnginesReady", "False", error.reason, f"{role} engine: {error}")
        return {"checks": [bounded(check)]}, int(error.again)
    except OSError as error:
        text = f"{role} engine: {build.folder.parent} cannot be written ({error.strerror}): check the cache volume"
        return {"checks": [bounded(CheckResult("EnginesReady", "False", "CacheFailed", text))]}, 1
    return {"checks": [bounded(CheckResult("EnginesReady", "True", "EngineBuilt", f"{role} engine {message}"))]}, 0


def _build(build: EngineBuildPlan, examples: Path, progress: BuildProgress) -> str:
    home = build.folder.parent
    partial = home / ".partial"
    with _lock(home):
        _mark(home)
        if build.folder.is_dir():
            with contextlib.suppress(OSError):  # a volume that is only read keeps its times
                os.utime(home)  # asked for: not pruned soon, though no revision may refer to it yet
            return f"was there: {build.folder}"
        _look_at(build.model)
        shutil.rmtree(partial, ignore_errors=True)  # of a pod that was killed
        partial.mkdir()
        _tool("convert_checkpoint.py", [sys.executable, *_conversion(build, examples)], progress)
        _tool("trtllm-build", ["trtllm-build", *build.build], progress)
        engine = partial / "engine"
        if not (engine / "config.json").is_file() or not (engine / "rank0.engine").is_file():
            raise BuildError("BuildFailed", f"trtllm-build ended well and left no engine in {engine}: see its log")
        (engine / "build.json").write_text(json.dumps({"convert": build.convert, "build": build.build}, indent=1))
        for path in (*engine.iterdir(), engine):
            _sync(path)
        engine.rename(build.folder)
        _sync(home)
        shutil.rmtree(partial)
    return f"built: {build.folder}"


def _mark(home: Path) -> None:
    (home / ".tandem").write_text(f"{home.parent.name}/{home.name}\n", encoding="utf-8")
    if namespace := os.environ.get("TANDEM_NAMESPACE"):
        (home / f".used-by-{namespace}").touch()


def _look_at(model: Path) -> None:
    try:
        cached.check(model)
    except cached.Gone as error:
        raise BuildError("ModelGone", str(error)) from None


def _sync(path: Path) -> None:
    """Put a file, or a folder's names, on the disk: a name that outlives the node has its content."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _lock(home: Path) -> Iterator[None]:
    """The kernel lets go of it when the holder dies. Where the file system has no locks, one Job per key is all."""
    while (file := _locked(home)) is None:
        pass
    with file:
        yield


def _locked(home: Path) -> TextIO | None:
    """The folder's lock, held; None where the folder was pruned meanwhile: then there is another lock to hold."""
    home.mkdir(parents=True, exist_ok=True)
    path = home / ".lock"
    with contextlib.suppress(FileNotFoundError):
        file = path.open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            print(f"the cache's file system has no locks ({error.strerror}): going on without", flush=True)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()
    return None


def _conversion(build: EngineBuildPlan, examples: Path) -> list[str]:
    """The script that converts this checkpoint, and its arguments."""
    try:
        config = checkpoint.read_json(build.model / "config.json")
        family = MEDUSA if build.script else conversion.folder(config)
        conversion.check_quantization(family, checkpoint.quantization(build.model, config))
        _check_facts(build, config)
        arguments = build.convert if build.script else conversion.arguments(family, build.convert, config)
    except CheckpointError as error:
        raise BuildError("ModelInvalid", str(error)) from None
    except conversion.Impossible as error:
        raise BuildError(error.reason, str(error)) from None
    script = Path(build.script) if build.script else examples / family / "convert_checkpoint.py"
    if not script.is_file():
        raise BuildError(
            "ImageLacksTools",
            f"{script} is not in this image: it has no TensorRT-LLM with engines (up to 1.2); write another profile,"
            " or bring the engine as engine.prebuilt",
        )
    return [str(script), *arguments]


def _check_facts(build: EngineBuildPlan, config: Mapping[str, Any]) -> None:
    """What the tools would find out by themselves, later, and in other words. Raises BuildError."""
    _check_heads(build)
    options = _options(build)
    tensor, pipeline = (int(options.get(name, 1)) for name in ("tp_size", "pp_size"))
    if problem := splitting.problem(checkpoint.language_model(config), tensor, pipeline):
        raise BuildError("ModelNotDivisible", problem)
    if file := checkpoint.missing_code(build.model, config):
        raise BuildError(
            "CodeMissing",
            f"config.json refers to {file} (auto_map), which TensorRT-LLM's scripts run, and it is not in"
            f" {build.model}: downloads bring no code; mount the model with it (pvc://, oci://) if you trust it, or"
            " remove auto_map where the model is one that transformers knows by itself",
        )


def _options(build: EngineBuildPlan) -> dict[str, str]:
    """The conversion's, by their names without dashes."""
    return dict(word.removeprefix("--").split("=", 1) for word in build.convert if "=" in word)


def _check_heads(build: EngineBuildPlan) -> None:
    """Medusa's, where the plan names them. Raises BuildError."""
    option = _options(build).get(HEADS_OPTION)
    folder = Path(option) if option else None
    if folder is None or any((folder / name).is_file() for name in HEADS):
        return
    raise BuildError(
        "ModelInvalid",
        f"{folder} has no {HEADS[0]}: write where Medusa's heads are in speculation.medusa.heads; downloads bring no"
        f" {HEADS[1]}, which is pickled: mount it (pvc://), or convert it",
    )


def _tool(name: str, command: Sequence[str], progress: BuildProgress) -> None:
    """Run a tool; its output goes to the log. Raises BuildError with the last lines.

    It runs where it may leave files of its own: trtllm-build ends by writing `model.cache` where it was started, and
    the image's own folder is read-only.
    """
    progress.start(name)
    print(f"starting: {' '.join(command)}", flush=True)
    lines: deque[str] = deque(maxlen=TAIL_LINES)
    try:
        process = subprocess.Popen(
            command,
            cwd=progress.partial,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise BuildError(
            "ImageLacksTools", f"{command[0]} cannot be started ({error.strerror}): check the image"
        ) from None
    with process:
        try:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                lines.append(line.rstrip())
                progress.read(line)
        except BaseException:  # the pod is stopped: the tool would go on
            process.kill()
            raise
    code = process.returncode
    if code:
        killed = code < 0 or code > 128
        how = (
            f"was killed (code {code}: out of memory, or the pod was stopped)"
            if killed
            else f"failed with code {code}"
        )
        tail = "\n".join(lines).encode()[-TAIL_BYTES:].decode(errors="ignore")
        raise BuildError("BuildFailed", f"{name} {how}; its last lines:\n{tail}", again=killed)
