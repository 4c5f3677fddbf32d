"""Does the image's own engine run the checkpoints, and do they fit their GPUs? Asked of a module in the image."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tandem_serving.prepare.kv_cache import GIB
from tandem_serving.prepare.verdict import CheckResult

READY = "EnginesReady"
NOT_SUPPORTED = "CheckpointNotSupported"


def check_checkpoints(plan: Mapping[str, Any], memory: Sequence[float] = ()) -> CheckResult:
    """The first thing that is wrong with a model of launch.json's `preflight` part, or that all are well.

    `memory`: GiB of each GPU; empty: as the plan says, and where it says nothing the models may be too large.
    """
    asked = plan["engine_check"]
    try:
        engine = importlib.import_module(asked["module"])
    except ImportError as error:
        text = f"the image has no {asked['module']} ({error}): take the profile's image, or one made of it"
        return CheckResult(READY, "False", NOT_SUPPORTED, text)
    devices = gpus(plan)
    folders = {role: Path(plan[role]["path"]) for role in ("target", "draft") if plan.get(role)}
    for role, folder in folders.items():
        try:
            engine.check(folder, *_several(devices.get(role, ())))
        except ValueError as error:
            return CheckResult(READY, "False", NOT_SUPPORTED, f"{role}: {error}")
    return _memory(plan, engine, folders, memory)


def gpus(plan: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """GPUs of each model, of several those that it is split over; empty where it runs on none."""
    found: Mapping[str, int | list[int]] = (plan.get("engine_check") or {}).get("devices") or {}
    return {role: tuple(each) if isinstance(each, list) else (each,) for role, each in found.items()}


def _several(devices: Sequence[int]) -> tuple[int, ...]:
    """How many, as an argument; none for one, since engines that split nothing do not take it."""
    return (len(devices),) if len(devices) > 1 else ()


def _memory(
    plan: Mapping[str, Any], engine: Any, folders: Mapping[str, Path], memory: Sequence[float]
) -> CheckResult:
    asked = plan["engine_check"]
    devices = gpus(plan)
    sequences, longest = asked["sequences"], asked["max_seq_len"]
    needed = {role: engine.memory(folders[role], sequences, longest, *_several(devices[role])) for role in devices}
    used = sorted({device for each in devices.values() for device in each})
    of_each = (plan.get("gpu") or {}).get("memory_gib")
    known = memory or ([of_each] * (1 + used[-1]) if of_each and used else [])
    room = f"KV cache of {sequences} sequences" + (f" of {longest} tokens" if longest else "")
    for device in used if known else ():
        here = {role: needed[role] for role in devices if device in devices[role]}
        if sum(each.total for each in here.values()) > known[device] * GIB:
            return CheckResult(READY, "False", "MemoryTooSmall", _too_small(here, room, known[device]))
    parts = [f"{role}: {_described(each)}" for role, each in needed.items()]
    return CheckResult(READY, "True", "EnginesFit", "; ".join([f"the engine runs the checkpoints, {room}", *parts]))


def _too_small(needed: Mapping[str, Any], room: str, memory: float) -> str:
    parts = " and ".join(f"{role} ({_described(each)})" for role, each in needed.items())
    apart = ", write placement.strategy: Separate in mode BLS" if len(needed) > 1 else ""
    total = sum(each.total for each in needed.values())
    return (
        f"{parts} need {total / GIB:.1f} GiB of one GPU, with {room}, and it has {memory:.1f}:"
        " lower serving.maxBatchSize or the tokens of a sequence (mode BLS: target.engine.build.maxSeqLen; LLMAPI:"
        f" runtime.extraLlmArgs.max_seq_len){apart}, or choose larger GPUs"
    )


def _described(memory: Any) -> str:
    return f"weights {memory.weights / GIB:.1f}, KV cache {memory.kv_cache / GIB:.1f} GiB"
