"""Are a service's engines what it asks for, and do they fit their GPUs? Read from files, without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from tandem_serving import checkpoint
from tandem_serving.checkpoint import CheckpointError
from tandem_serving.prepare import cached, kv_cache
from tandem_serving.prepare.kv_cache import GIB, KvCacheError, Share
from tandem_serving.prepare.verdict import CheckResult

READY = "EnginesReady"


def check_engines(plan: Mapping[str, Any]) -> CheckResult:
    """The first thing that is wrong with an engine of launch.json's `preflight` part, or that all are well."""
    try:
        for role, wanted in plan["engines"].items():
            if wrong := _mismatch(wanted, _version() or str(plan.get("tensorrt_llm") or "")):
                reason, text = wrong
                return CheckResult(READY, "False", reason, f"{role} engine {wanted['path']}: {text}")
        fits = _memory(plan)
    except CheckpointError as error:
        reason = "EngineGone" if isinstance(error, cached.Gone) else "EngineInvalid"
        return CheckResult(READY, "False", reason, str(error))
    except KvCacheError as error:
        return CheckResult(READY, "False", "MemoryTooSmall", str(error))
    text = f"engines for {' and '.join(plan['engines'])} are as asked for{fits}"
    warnings = [f"; {warning}" for role, wanted in plan["engines"].items() if (warning := _narrow(role, wanted))]
    return CheckResult(READY, "True", "EnginesFit", "".join([text, *warnings]))


def _version() -> str:
    """TensorRT-LLM's in this image, which need not be the profile's (runtime.image); empty where it does not say."""
    try:
        return metadata.version("tensorrt_llm").partition("+")[0]
    except metadata.PackageNotFoundError:
        return ""


def _mismatch(wanted: Mapping[str, Any], version: str) -> tuple[str, str] | None:
    """Reason and message of the first difference between an engine and what it must be."""
    folder = Path(wanted["path"])
    cached.check(folder)
    config = checkpoint.read_json(folder / "config.json")
    built, mapping = config.get("build_config") or {}, (config.get("pretrained_config") or {}).get("mapping") or {}
    found = str(config.get("version") or "").partition("+")[0]
    if version and found != version:
        return (
            "EngineVersionDiffers",
            f"built by TensorRT-LLM {found or 'unknown'}, the image has {version}: build it again",
        )
    for name in ("tp_size", "pp_size"):
        if mapping.get(name, 1) != wanted[name]:
            return (
                "EngineMappingDiffers",
                f"has {name} {mapping.get(name, 1)}, the resource {wanted[name]}: make them equal",
            )
    ranks = len(list(folder.glob("rank*.engine")))
    if ranks != wanted["tp_size"] * wanted["pp_size"]:
        return "EngineIncomplete", f"has {ranks} rank*.engine of {wanted['tp_size'] * wanted['pp_size']}: copy all"
    return _built_otherwise(wanted, built)


def _built_otherwise(wanted: Mapping[str, Any], built: Mapping[str, Any]) -> tuple[str, str] | None:
    """The same of how the engine was built."""
    for name, field in (("max_draft_len", "speculation.maxDraftLen"), ("max_batch_size", "serving.maxBatchSize")):
        if (built.get(name) or 0) < wanted[name]:
            return (
                "EngineLimitTooLow",
                f"built with {name} {built.get(name) or 0}, needed {wanted[name]}: lower {field}",
            )
    paged = (built.get("plugin_config") or {}).get("use_paged_context_fmha")
    if wanted.get("use_paged_context_fmha") and not paged:
        return (
            "EngineWithoutPagedContext",
            "built without use_paged_context_fmha, by which each step finds the keys and values of the text so far:"
            " build it again with --use_paged_context_fmha=enable",
        )
    if wanted.get("gather_generation_logits") and not built.get("gather_generation_logits"):
        return (
            "EngineWithoutLogits",
            "built without gather_generation_logits, which speculation.acceptance.method Logits needs: build it again"
            " with --gather_generation_logits, or write TokenMatch",
        )
    return None


def _narrow(role: str, wanted: Mapping[str, Any]) -> str:
    """What a step cannot take of a full batch, in words; empty where it takes all, or where texts come once.

    Each round brings the whole text, and TensorRT-LLM counts all of it (docs/engines.md, "Tokens of a step").
    """
    folder, rows = Path(wanted["path"]), int(wanted["max_batch_size"])
    tokens = checkpoint.max_num_tokens(folder)
    longest = checkpoint.read_limits(folder).max_sequence_len + int(wanted["max_draft_len"])
    if not wanted.get("whole_texts") or not tokens or tokens >= rows * longest:
        return ""
    return (
        f"warning: a step of the {role} takes {max(1, tokens // longest)} of {rows} texts of {longest} tokens, and"
        f" {rows} of {tokens // rows}: where texts are longer, build with max_num_tokens >= {rows} * their length"
        f" ({rows * longest} for the longest), or lower serving.maxBatchSize"
    )


def _memory(plan: Mapping[str, Any]) -> str:
    """What is left for the KV caches, in words; empty where the GPU's memory is not known. Raises KvCacheError."""
    gpu = plan.get("gpu")
    if not gpu:
        return ""
    shares = {
        role: Share(kv_cache.read_engine(Path(plan["engines"][role]["path"])), tuple(devices))
        for role, devices in gpu["devices"].items()
    }
    count = 1 + max(device for share in shares.values() for device in share.devices)
    tokens = kv_cache.budgets(shares, [int(gpu["memory_gib"] * GIB)] * count)
    return f"; about {min(tokens.values())} tokens of KV cache fit next to them into {gpu['memory_gib']:g} GiB a GPU"
