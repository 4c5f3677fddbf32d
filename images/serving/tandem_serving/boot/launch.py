"""Starts Triton in a pod: assembles the model repository from the mounted revision and runs the server.

The revision folder holds `launch.json`:
  {"models": {NAME: {"config": FILE in the revision, "source": FOLDER with the model's `1/`; none: no code}},
   "server": {"command": ["tritonserver", ...], or ["mpirun", ...] with a server for each rank}, "env": {NAME: VALUE},
   "kv_cache": {MODEL: {"engine": FOLDER, "devices": [GPU, ...], "max_tokens": TOKENS or null}}: see kv_cache.py,
   "group": {"hosts": PODS, "slots": RANKS of each}: where a replica is several pods; see mpi.py,
   "tokenizer": {"from": FOLDER, "to": FOLDER}: what the OpenAI endpoint needs of the target's, for its container,
   "drain": {"port": METRICS PORT, "seconds": LONGEST REQUEST}: see drain.py,
   "builds": {ROLE: ...}: see engine_build.py, "preflight": ...: see preflight.py}
This process stays as PID 1, see supervise.py, and ends with the server's exit code.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tandem_serving import addresses
from tandem_serving.boot import control, drain, mpi, shared_memory, supervise
from tandem_serving.checkpoint import CheckpointError
from tandem_serving.engine import failure as engine_failure
from tandem_serving.engine import metrics_page
from tandem_serving.prepare import cached, checkpoint_check, kv_cache

PLAN = "launch.json"
PARTS = ("preflight", "kv_cache", "builds", "group", "drain", "tokenizer")
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"),
    *("generation_config.json", "config.json"),  # they say what ends a text
)
MORE_TEMPLATES = "additional_chat_templates"
"""Folder of chat templates by name, such as the one for tools."""


class LaunchError(Exception):
    """The server cannot be started; the message says what is missing and what to do."""


@dataclass(frozen=True)
class ModelSource:
    """A model of the repository: its config.pbtxt in the revision, the folder that holds its `1/`.

    `source` is None for an ensemble, which has no code.
    """

    config: Path
    source: Path | None


@dataclass(frozen=True)
class LaunchPlan:
    """What launch.json says."""

    models: Mapping[str, ModelSource]
    command: tuple[str, ...]
    env: Mapping[str, str]
    preflight: Mapping[str, Any] = field(default_factory=dict)
    kv_cache: Mapping[str, Any] = field(default_factory=dict)
    builds: Mapping[str, Any] = field(default_factory=dict)
    group: Mapping[str, Any] = field(default_factory=dict)
    drain: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: Mapping[str, str] = field(default_factory=dict)


def read_plan(revision: Path) -> LaunchPlan:
    """Parse launch.json. Raises LaunchError."""
    path = revision / PLAN
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        models = {
            name: ModelSource(revision / model["config"], Path(model["source"]) if "source" in model else None)
            for name, model in data.get("models", {}).items()
        }
        command = tuple(str(word) for word in data.get("server", {}).get("command", []))
        env = {str(name): str(value) for name, value in data.get("env", {}).items()}
        parts = {name: dict(data.get(name, {})) for name in PARTS}
        return LaunchPlan(models, command, env, **parts)
    except OSError as error:
        raise LaunchError(f"{path} cannot be read ({error.strerror}): mount the revision's ConfigMap") from None
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise LaunchError(f"{path} is malformed ({error!r}): apply the resource again") from None


def assemble(plan: LaunchPlan, models: Path) -> None:
    """Make the model repository: config.pbtxt copied, `1` linked to the source, or empty. Raises LaunchError.

    The Python packages next to the folder of the source (`tandem_serving` for Tandem's own models) are
    linked into the model's folder: Triton's stub puts it on sys.path, and ignores PYTHONPATH.
    """
    if not plan.models or not plan.command:
        raise LaunchError(f"{PLAN} names no models or no server command: apply the resource again")
    missing = [str(model.config) for model in plan.models.values() if not model.config.is_file()]
    folders = [model.source / "1" for model in plan.models.values() if model.source]
    missing += [str(folder / "model.py") for folder in folders if not _code(folder)]
    if missing:
        raise LaunchError(
            f"missing: {', '.join(missing)}. Configurations come with the revision's ConfigMap, models with "
            "the profile's images and the init container that copies Tandem's own: check both"
        )
    for name, model in plan.models.items():
        _assemble_model(model, models / name)


def _code(version: Path) -> list[Path]:
    """A Python model's code, or the backend that a model brings itself."""
    return [path for name in ("model.py", "libtriton_*.so") for path in version.glob(name) if path.is_file()]


def _assemble_model(model: ModelSource, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier start of this container
    folder.mkdir(parents=True)
    shutil.copyfile(model.config, folder / "config.pbtxt")
    if model.source is None:
        (folder / "1").mkdir()  # Triton wants a version, though there is nothing in it
        return
    (folder / "1").symlink_to(model.source / "1", target_is_directory=True)
    for package in model.source.parent.parent.glob("*/__init__.py"):
        (folder / package.parent.name).symlink_to(package.parent, target_is_directory=True)


def size_kv_caches(plan: LaunchPlan, models: Path, memory: Callable[[], Sequence[int]] = kv_cache.gpu_memory) -> None:
    """Add the sizes that depend on the pod's GPUs to the engines' configurations. Raises LaunchError.

    `memory`: bytes of each GPU.
    """
    if not plan.kv_cache:
        return
    try:
        shares = {name: _share(part) for name, part in plan.kv_cache.items()}
        budgets = kv_cache.budgets(shares, memory())
    except (kv_cache.KvCacheError, CheckpointError) as error:
        raise LaunchError(str(error)) from None
    for name, tokens in budgets.items():
        print(f"{name}: KV cache of {tokens} tokens", flush=True)
        with (models / name / "config.pbtxt").open("a", encoding="utf-8") as config:
            config.write(
                f'parameters {{ key: "max_tokens_in_paged_kv_cache" value {{ string_value: "{tokens}" }} }}\n'
            )


def check_memory(plan: LaunchPlan, memory: Callable[[], Sequence[int]] = kv_cache.gpu_memory) -> None:
    """Whether the models fit the GPUs that the pod has, where the image's engine says what they take.

    `memory`: bytes of each GPU. Raises LaunchError.
    """
    devices = checkpoint_check.gpus(plan.preflight)
    if not devices:
        return
    count = 1 + max(device for each in devices.values() for device in each)
    try:
        sizes = [size / kv_cache.GIB for size in memory()]
    except kv_cache.KvCacheError as error:
        raise LaunchError(str(error)) from None
    if len(sizes) < count:
        raise LaunchError(f"the models need {count} GPUs, the pod has {len(sizes)}")
    result = checkpoint_check.check_checkpoints(plan.preflight, sizes)
    if result.status != "True":
        raise LaunchError(result.message)
    print(result.message, flush=True)


def _share(part: Mapping[str, Any]) -> kv_cache.Share:
    return kv_cache.Share(kv_cache.read_engine(Path(part["engine"])), tuple(part["devices"]), part.get("max_tokens"))


STACK_BYTES = 64 << 20
"""Of the stack, as NVIDIA's containers are started; a thread gets as much room, of which it takes what it uses."""


def copy_tokenizer(plan: LaunchPlan) -> None:
    """Copy the tokenizer and the chat template to where the OpenAI endpoint reads them."""
    if not plan.tokenizer:
        return
    source, target = Path(plan.tokenizer["from"]), Path(plan.tokenizer["to"])
    (target / MORE_TEMPLATES).mkdir(exist_ok=True)
    templates = [f"{MORE_TEMPLATES}/{path.name}" for path in (source / MORE_TEMPLATES).glob("*.jinja")]
    for name in (*TOKENIZER_FILES, *templates):
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def raise_limits() -> None:
    """Raise the soft limits on open files and locked memory to the hard ones, that of the stack to NVIDIA's.

    Upstream's guides start containers with `--ulimit memlock=-1 --ulimit stack=67108864`; a pod cannot ask for
    limits, so a hard one is the node's, and where it is low the log says what to change there.
    """
    for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (hard, hard))
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    if locked != resource.RLIM_INFINITY:
        print(
            f"locked memory is limited to {locked >> 10} KiB: NCCL and RDMA may fail to register buffers; write"
            " LimitMEMLOCK=infinity into the unit of the node's container runtime (containerd, CRI-O)",
            flush=True,
        )
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = STACK_BYTES if hard == resource.RLIM_INFINITY else min(STACK_BYTES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))


def serve(revision: Path, models: Path, termination_log: Path = supervise.TERMINATION_LOG) -> int:
    """Assemble, start and watch the server. Raises LaunchError."""
    plan = read_plan(revision)
    try:
        cached.check_all(plan.preflight)
    except cached.Gone as error:
        raise LaunchError(str(error)) from None
    assemble(plan, models)
    copy_tokenizer(plan)
    check_memory(plan)
    size_kv_caches(plan, models)
    raise_limits()
    command = list(plan.command)
    if not any(word.startswith("--model-repository") for word in command):
        command.append(f"--model-repository={models}")
    environment = {**os.environ, **plan.env, **_for_models(plan, models)}
    if plan.group:
        environment.update(_meet_workers(plan.group))
    print(f"models: {', '.join(plan.models)}; starting: {' '.join(command)}", flush=True)
    print(f"{', '.join(control.CONTROL)}: answered with the key in {models / control.KEY_FILE}", flush=True)
    server = supervise.Supervisor(environment, lambda: _finish(plan.drain), termination_log)
    shared_memory.clear(command)
    guarded = control.restrict(command, models, addresses.server_options())  # only now: the key is not for the log
    try:
        server.start(guarded)
    except OSError as error:
        raise LaunchError(f"{command[0]} cannot be started ({error.strerror}): check the image") from None
    return server.wait()


def _for_models(plan: LaunchPlan, models: Path) -> dict[str, str]:
    """Variables by which models know where to report that an engine has failed, and the port of the metrics page."""
    failure = models / "engine-failure.json"
    failure.unlink(missing_ok=True)  # of an earlier start of this container
    port = {metrics_page.PORT: str(plan.drain["port"])} if plan.drain else {}
    return {engine_failure.VARIABLE: str(failure), **port}


def _finish(drain_plan: Mapping[str, int]) -> None:
    if drain_plan:
        print("SIGTERM: finishing requests", flush=True)
        idle = drain.wait_idle(lambda: drain.requests_left(drain_plan["port"]), drain_plan["seconds"])
        print("no request is left" if idle else "out of time: requests end unfinished", flush=True)


def _meet_workers(group: Mapping[str, int]) -> dict[str, str]:
    """What mpirun needs in its environment; see mpi.py. A SIGTERM while it waits ends this process."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    return mpi.prepare(group, os.environ)
