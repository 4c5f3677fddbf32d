"""Does the image's own argument class of the LLM API take the arguments? And do the weights fit the GPUs?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem_serving.checkpoint import weight_files
from tandem_serving.llmapi.dry_run import ArgumentsRefused, argument_class, try_arguments
from tandem_serving.prepare.kv_cache import GIB, WORKSPACE
from tandem_serving.prepare.verdict import CheckResult

READY = "EnginesReady"
LATER = "the server's pod tries its arguments on its GPUs, before it loads the model"


def check_llm_args(plan: Mapping[str, Any], revision: Path) -> CheckResult:
    """The dry run on `llm_args` of launch.json's `preflight` part; `revision` has the file."""
    import yaml  # in images with the LLM API alone, as tensorrt_llm needs it

    if (small := _weights(plan)) is not None:
        return small
    part = plan["llm_args"]
    arguments = _whole(yaml.safe_load((revision / part["file"]).read_text(encoding="utf-8")))
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
