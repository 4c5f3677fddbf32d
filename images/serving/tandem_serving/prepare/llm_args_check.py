"""Does the engine of the image take its arguments? And do the weights fit the GPUs?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem_serving import checkpoint
from tandem_serving.checkpoint import weight_files
from tandem_serving.llmapi import engines
from tandem_serving.llmapi.engine import ArgumentsRefused
from tandem_serving.prepare import splitting
from tandem_serving.prepare.kv_cache import GIB, WORKSPACE
from tandem_serving.prepare.verdict import CheckResult

READY = "EnginesReady"
LATER = "the server's pod tries its arguments on its GPUs, before it loads the model"


def read_arguments(plan: Mapping[str, Any], revision: Path) -> Mapping[str, Any]:
    """The LLM API's arguments of launch.json's `preflight` part; `revision` has the file. Empty in mode BLS."""
    if not plan.get("llm_args"):
        return {}
    import yaml  # here: only images with the LLM API have it

    arguments = yaml.safe_load((revision / plan["llm_args"]["file"]).read_text(encoding="utf-8"))
    return arguments if isinstance(arguments, dict) else {}


def check_llm_args(plan: Mapping[str, Any], revision: Path) -> CheckResult:
    """The models' facts, and the dry run on `llm_args` of launch.json's `preflight` part."""
    engine = engines.find(plan["llm_args"]["engine"])
    arguments = read_arguments(plan, revision)
    folders = {role: Path(plan[role]["path"]) for role in ("target", "draft", "heads") if plan.get(role)}
    if wrong := _indivisible(folders, engine.split(arguments)) or _weights(plan):
        return wrong
    if code := engine.missing_code(folders, arguments):
        return CheckResult(READY, "False", "CodeMissing", code)
    try:
        engine.dry_run(arguments)
    except ArgumentsRefused as error:
        return CheckResult(READY, "False", "ArgumentsRefused", str(error))
    except Exception as error:  # noqa: BLE001 - libraries that miss the driver, and checks that ask for it: any class
        text = f"{engine.name} of this image cannot check its arguments without a GPU ({error}): {LATER}"
        return CheckResult(READY, "Unknown", "ArgumentsNotChecked", text)
    return CheckResult(READY, "True", "ArgumentsAccepted", f"{engine.name} of this image takes the arguments")


_LIKE_THE_TARGET = {
    "target": "",
    "draft": ", since mode LLMAPI splits the draft like the target, or name another draft.model.uri, or write"
    " runtime.mode: BLS, where draft.tensorParallelSize is its own",
    "heads": ", since the heads are split like the target, or name another draft.model.uri",
}


def _indivisible(folders: Mapping[str, Path], split: tuple[int, int]) -> CheckResult | None:
    """A verdict where a model cannot be split as the arguments say; each is, in the same way."""
    tensor, pipeline = split
    for role, folder in folders.items():
        config = checkpoint.language_model(checkpoint.read_json(folder / "config.json"))
        if problem := splitting.problem(config, tensor, pipeline if role == "target" else 1, "target."):
            return CheckResult(READY, "False", "ModelNotDivisible", f"{role}: {problem}{_LIKE_THE_TARGET[role]}")
    return None


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
