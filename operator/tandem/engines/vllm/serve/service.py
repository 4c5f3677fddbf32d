"""The resource of a start of vLLM's server: each flag is a field, an argument of the engine, or noted. Pure."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tandem.api import API_VERSION, KIND, ports
from tandem.api.profile import Profile
from tandem.engines.gpus import GpuPlan
from tandem.engines.vllm import Vllm, names
from tandem.engines.vllm.serve import speculation
from tandem.engines.vllm.serve.command import ImportRefused, ServeCommand
from tandem.engines.vllm.serve.flags import NOT_MAPPED, THINKING, TOOL_CALLS, VARIABLES
from tandem.engines.vllm.serve.parse import POSITIONAL, Flags, flag, parse, typed
from tandem.engines.vllm.serve.sheet import Sheet
from tandem.engines.vllm.versions import MINORS, is_known

_DTYPES = {"half": "float16", "float": "float32"}
_SHELL = re.compile(r"\$[A-Za-z_{(]")
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY|CREDENTIAL")
_SHORTCUTS = {"spec_method": "method", "spec_model": "model", "spec_tokens": "num_speculative_tokens"}


@dataclass(frozen=True)
class Imported:
    """A manifest. `skipped`: what of the command is not in it, and what to do; `notes`: what is otherwise than with
    vLLM's own server. A line each."""

    manifest: dict[str, Any]
    skipped: tuple[str, ...]
    notes: tuple[str, ...]


def runs_vllm(profile: Profile) -> bool:
    """Whether a profile's services are vLLM's."""
    return profile.engine.kind == Vllm.kind


def service_of(command: ServeCommand, profile: Profile, name: str = "") -> Imported:
    """The resource, for a profile with vLLM; `name` of it: the model's by default. Raises ImportRefused."""
    engine = Vllm(profile)
    sheet = Sheet(engine.minor, any_argument=not is_known(engine.version))
    sheet.put("runtime", {"mode": str(Vllm.mode), "profile": profile.name})
    flags = _usable(parse(command.arguments), sheet)
    model = flags.pop(POSITIONAL, None) or flags.pop("model", None)
    flags.pop("model", None)
    if not model:
        raise ImportRefused("the command names no model: give `vllm serve MODEL ...`")
    sheet.model("target.model", model, "the model")
    _write(sheet, flags)
    _environment(sheet, command.variables, engine)
    if command.container_engine:
        why = "of its options only variables are read: what it mounts goes into podTemplate"
        sheet.note(f"{command.container_engine} run", why)
    if command.image:
        sheet.note(f"image {command.image}", "the profile names the image; runtime.image would name another")
    manifest = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name or _name(model)}}
    return Imported({**manifest, "spec": sheet.ordered()}, tuple(sheet.skipped), tuple(sheet.notes))


def _usable(flags: Flags, sheet: Sheet) -> Flags:
    """Those whose values are known."""
    for name, value in [*flags.items()]:
        if _SHELL.search(json.dumps(value)):
            sheet.skip(flag(name), "its value is a shell's variable: write what it stands for")
            del flags[name]
    if flags.pop("headless", False) or flags.get("node_rank", "0") != "0":
        raise ImportRefused("this command starts a worker of several nodes: give the one of node rank 0")
    return flags


def _write(sheet: Sheet, flags: Flags) -> None:
    config = flags.pop("speculative_config", None)
    config = typed("speculative_config", config) if config else {}
    if not isinstance(config, dict):
        raise ImportRefused("--speculative-config is no JSON object: put it in single quotes")
    given = {name: flags.pop(short) for short, name in _SHORTCUTS.items() if short in flags}
    config |= {name: typed(name, value) for name, value in given.items()}
    for name in sorted(flags, key=lambda name: name != "tokenizer"):  # its revision looks for it
        _flag(sheet, name, flags[name])
    if config:
        speculation.write(sheet, config)
    else:
        sheet.put("speculation.decodingType", "None")
    if "max_num_seqs" not in flags:
        sheet.note(
            "--max-num-seqs", "it is not given: serving.maxBatchSize is 16 here, and vLLM's own default is higher"
        )
    _per_node(sheet, int(flags.get("nnodes", 1)))


def _flag(sheet: Sheet, name: str, written: Any) -> None:
    value = typed(name, written)
    if name in _FIELDS:
        _FIELDS[name](sheet, value)
    elif name in NOT_MAPPED:
        sheet.skip(flag(name), NOT_MAPPED[name])
    elif sheet.any_argument or name in names.arguments(sheet.minor):
        sheet.argument(name, value)
    else:
        sheet.skip(flag(name), f"vLLM {sheet.minor} has no such flag: {_elsewhere(name)}")


def _elsewhere(name: str) -> str:
    versions = [minor for minor in MINORS if name in names.arguments(minor)]
    return f"it is in {', '.join(versions)}: give a --profile with that" if versions else "remove it"


def _to(path: str, convert: Callable[[Any], Any] = lambda value: value) -> Callable[[Sheet, Any], None]:
    return lambda sheet, value: sheet.put(path, convert(value))


def _tokenizer(sheet: Sheet, value: Any) -> None:
    sheet.model("target.model.tokenizer", str(value), flag("tokenizer"))


def _tokenizer_revision(sheet: Sheet, value: Any) -> None:
    if not sheet.get("target.model.tokenizer.uri"):  # the model's own, at another revision
        sheet.put("target.model.tokenizer.uri", sheet.get("target.model.uri"))
    sheet.put("target.model.tokenizer.revision", value)


def _served_name(sheet: Sheet, value: Any) -> None:
    first, *others = value
    sheet.put("serving.openAI.servedModelName", first)
    if others:
        sheet.note(flag("served_model_name"), f"a service has one name: {', '.join(others)} is left out")


def _port(sheet: Sheet, value: Any) -> None:
    if value in ports.SERVER.values():
        sheet.note(flag("port"), f"{value} is Triton's own: the OpenAI endpoint is on port {ports.OPENAI}")
    else:
        sheet.put("serving.openAI.port", value)


def _tool_calls(sheet: Sheet, value: Any) -> None:
    if value in TOOL_CALLS:
        sheet.put("serving.openAI.toolCalls", TOOL_CALLS[value])
    else:
        sheet.skip(
            flag("tool_call_parser"), f"the endpoint reads calls as {', '.join(TOOL_CALLS)} do, not as {value}"
        )


def _thinking(sheet: Sheet, value: Any) -> None:
    if value in THINKING:
        sheet.put("serving.openAI.thinking", {})
    else:
        why = "write the markers between which the model thinks into serving.openAI.thinking"
        sheet.skip(flag("reasoning_parser"), why)


def _replicas(sheet: Sheet, value: Any) -> None:
    sheet.put("replicas", value)
    if value > 1:
        why = "each replica is a whole engine: experts are not spread over several (--enable-expert-parallel)"
        sheet.note(flag("data_parallel_size"), why)


def _executor(sheet: Sheet, value: Any) -> None:
    if value != "mp":
        sheet.skip(flag("distributed_executor_backend"), NOT_MAPPED["distributed_executor_backend"])


_FIELDS: Mapping[str, Callable[[Sheet, Any], None]] = {
    "revision": _to("target.model.revision"),
    "tokenizer": _tokenizer,
    "tokenizer_revision": _tokenizer_revision,
    "tensor_parallel_size": _to("target.tensorParallelSize"),
    "pipeline_parallel_size": _to("target.pipelineParallelSize"),
    "dtype": _to("target.dtype", lambda value: _DTYPES.get(value, value)),
    "enable_prefix_caching": _to("target.kvCache.enableBlockReuse"),
    "max_num_seqs": _to("serving.maxBatchSize"),
    "data_parallel_size": _replicas,
    "nnodes": lambda sheet, value: None,  # placement.gpu.perNode says it
    "served_model_name": _served_name,
    "port": _port,
    "tool_call_parser": _tool_calls,
    "enable_auto_tool_choice": lambda sheet, value: None,  # toolCalls says it
    "reasoning_parser": _thinking,
    "distributed_executor_backend": _executor,
}


def _per_node(sheet: Sheet, nodes: int) -> None:
    if nodes > 1:
        total = sheet.get("target.tensorParallelSize", 1) * sheet.get("target.pipelineParallelSize", 1)
        sheet.put("placement.gpu.perNode", max(1, total // nodes))


def _environment(sheet: Sheet, variables: Mapping[str, Any], engine: Vllm) -> None:
    own = {*engine.profile.engine.env, *engine.environment(GpuPlan())}
    kept: list[dict[str, Any]] = []
    for name, value in variables.items():
        if why := VARIABLES.get(name):
            sheet.skip(name, why)
        elif name in own:
            sheet.skip(name, "Tandem sets it")
        elif isinstance(value, Mapping):
            kept.append({"name": name, "valueFrom": value})
        elif _SECRET.search(name):
            sheet.skip(name, "put it into a Secret, and write podTemplate.spec.containers[].env with valueFrom")
        elif _SHELL.search(value):
            sheet.skip(name, "its value is a shell's variable: write what it stands for")
        else:
            kept.append({"name": name, "value": value})
    if kept:
        sheet.put("podTemplate.spec.containers", [{"name": "triton", "env": kept}])


def _name(model: str) -> str:
    """Of the object, from the model's."""
    words = re.sub(r"[^a-z0-9]+", "-", model.rstrip("/").rpartition("/")[2].lower()).strip("-")
    words = words if words[:1].isalpha() else f"model-{words}"
    return words[:40].rstrip("-")
