"""Does the image's own argument class of the LLM API take the arguments? And do the weights fit the GPUs?"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem_serving import checkpoint
from tandem_serving.checkpoint import weight_files
from tandem_serving.llmapi import dialect
from tandem_serving.llmapi.dry_run import ArgumentsRefused, argument_class, try_arguments
from tandem_serving.prepare import splitting
from tandem_serving.prepare.kv_cache import GIB, WORKSPACE
from tandem_serving.prepare.verdict import CheckResult

READY = "EnginesReady"
OWN_CONFIGS = frozenset(("deepseek_v32", "kimi_k2", "glm_moe_dsa", "kimi_k3", "kimi_linear", "laguna", "k3_dspark"))
"""Values of `model_type` whose config.json TensorRT-LLM reads by itself (_torch/pyexecutor/config_utils.py)."""
LATER = "the server's pod tries its arguments on its GPUs, before it loads the model"


def read_arguments(plan: Mapping[str, Any], revision: Path) -> Mapping[str, Any]:
    """The LLM API's arguments of launch.json's `preflight` part; `revision` has the file. Empty in mode BLS."""
    if not plan.get("llm_args"):
        return {}
    import yaml  # in images with the LLM API alone, as tensorrt_llm needs it

    arguments = yaml.safe_load((revision / plan["llm_args"]["file"]).read_text(encoding="utf-8"))
    return arguments if isinstance(arguments, dict) else {}


def check_llm_args(plan: Mapping[str, Any], revision: Path) -> CheckResult:
    """The models' facts, and the dry run on `llm_args` of launch.json's `preflight` part."""
    part = plan["llm_args"]
    arguments = _whole(read_arguments(plan, revision))
    folders = {role: Path(plan[role]["path"]) for role in ("target", "draft", "heads") if plan.get(role)}
    if wrong := _indivisible(folders, arguments) or _weights(plan) or _without_code(folders, part, arguments):
        return wrong
    try:
        found = argument_class(part["package"])
    except Exception as error:  # noqa: BLE001 - libraries that miss the driver fail to load with errors of any class
        text = f"{part['package']} cannot be imported without a GPU ({error}): {LATER}"
        return CheckResult(READY, "Unknown", "ArgumentsNotChecked", text)
    try:
        try_arguments(found, arguments, part["package"])
    except ArgumentsRefused as error:
        return CheckResult(READY, "False", "ArgumentsRefused", str(error))
    except Exception as error:  # noqa: BLE001 - some checks ask for the GPU: RuntimeError of torch, `dtype` in 1.2
        text = f"{part['package']} cannot check its arguments without a GPU ({error}): {LATER}"
        return CheckResult(READY, "Unknown", "ArgumentsNotChecked", text)
    return CheckResult(READY, "True", "ArgumentsAccepted", f"{part['package']} of this image takes the arguments")


_LIKE_THE_TARGET = {
    "target": "",
    "draft": ", since mode LLMAPI splits the draft like the target, or name another draft.model.uri, or write"
    " runtime.mode: BLS, where draft.tensorParallelSize is its own",
    "heads": ", since the heads are split like the target, or name another draft.model.uri",
}


def _indivisible(folders: Mapping[str, Path], arguments: Mapping[str, Any]) -> CheckResult | None:
    """A verdict where a model cannot be split as the arguments say; each is, in the same way."""
    tensor = 1 if arguments.get("enable_attention_dp") else arguments.get("tensor_parallel_size") or 1
    pipeline = arguments.get("pipeline_parallel_size") or 1
    for role, folder in folders.items():
        config = checkpoint.language_model(checkpoint.read_json(folder / "config.json"))
        if problem := splitting.problem(config, tensor, pipeline if role == "target" else 1, "target."):
            return CheckResult(READY, "False", "ModelNotDivisible", f"{role}: {problem}{_LIKE_THE_TARGET[role]}")
    return None


def _without_code(
    folders: Mapping[str, Path], part: Mapping[str, Any], arguments: Mapping[str, Any]
) -> CheckResult | None:
    """A verdict where TensorRT-LLM would run code of a checkpoint that is not there.

    It trusts a draft's code always (_torch/models/modeling_speculative.py), the target's with trust_remote_code.
    """
    for role, folder in folders.items() if part["package"] == dialect.TENSORRT_LLM else ():
        config = checkpoint.read_json(folder / "config.json")
        trusted = role != "target" or bool(arguments.get("trust_remote_code"))
        file, kind = checkpoint.missing_code(folder, config), str(config.get("model_type"))
        if file and kind not in OWN_CONFIGS and (trusted or not _knows(kind)):
            text = (
                f"{role}: config.json refers to {file} (auto_map), which is not in {folder}: downloads bring no code;"
                f" {_code_advice(role, trusted, kind)}, or name another checkpoint"
            )
            return CheckResult(READY, "False", "CodeMissing", text)
    return None


def _code_advice(role: str, trusted: bool, model_type: str) -> str:
    mount = "mount the model with its code (pvc://, oci://)"
    if not trusted:
        return f"{mount} and write runtime.extraLlmArgs.trust_remote_code: true, if you trust it"
    if role == "target" and _knows(model_type):
        return "remove runtime.extraLlmArgs.trust_remote_code"
    return f"{mount}, if you trust it"


def _knows(model_type: str) -> bool:
    """Whether the image's transformers reads such a config.json without code; True where that cannot be asked."""
    try:
        known: Mapping[str, Any] = importlib.import_module("transformers").CONFIG_MAPPING
    except (ImportError, AttributeError):
        return True
    return model_type in known


def _whole(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """With something in the place of a drafter, an object that the server adds: the class wants one, of any kind."""
    from tandem_serving.llmapi.arguments import USER_PROVIDED, with_drafter

    kind = (arguments.get("speculative_config") or {}).get("decoding_type")
    return with_drafter(arguments, object()) if kind in USER_PROVIDED else arguments


def _weights(plan: Mapping[str, Any]) -> CheckResult | None:
    """A verdict only when the weights alone do not fit: the engine sizes its KV cache by what is left."""
    gpu = plan.get("gpu")
    if not gpu:
        return None
    ranks = len(gpu["devices"]["target"])
    sizes = {role: _size(Path(plan[role]["path"])) / ranks for role in ("target", "draft", "heads") if plan.get(role)}
    needed, memory = sum(sizes.values()) + WORKSPACE, gpu["memory_gib"] * GIB
    if needed <= memory:
        return None
    parts = " + ".join(f"{role} {size / GIB:.1f}" for role, size in sizes.items())
    return CheckResult(
        READY,
        "False",
        "MemoryTooSmall",
        f"weights on each of {ranks} GPUs: {parts} GiB, and about {WORKSPACE / GIB:.0f} GiB to work with; a GPU has"
        f" {gpu['memory_gib']:g} GiB: raise target.tensorParallelSize, or choose larger GPUs",
    )


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in weight_files(folder))
