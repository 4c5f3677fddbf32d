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
MODES = {
    "none": 1,
    "draft_tokens_external": 2,
    "medusa": 4,
    "lookahead_decoding": 8,
    "explicit_draft_tokens": 16,
    "eagle": 32,
}
"""`speculative_decoding_mode` in an engine's config.json, by trtllm-build's words (models/modeling_utils.py)."""
SHAPES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
"""Keys that config.json has of a checkpoint and of its engine alike."""


def check_engines(plan: Mapping[str, Any]) -> CheckResult:
    """The first thing that is wrong with an engine of launch.json's `preflight` part, or that all are well."""
    try:
        for role, wanted in plan["engines"].items():
            checkpoint_folder = Path((plan.get(role) or {}).get("path") or wanted["path"])
            if wrong := _mismatch(wanted, checkpoint_folder, _version() or str(plan.get("tensorrt_llm") or "")):
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


def _mismatch(wanted: Mapping[str, Any], model: Path, version: str) -> tuple[str, str] | None:
    """Reason and message of the first difference between an engine and what it must be. `model`: its checkpoint's
    folder."""
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
    for name, field in (("tp_size", "tensorParallelSize"), ("pp_size", "pipelineParallelSize")):
        if (has := mapping.get(name, 1)) != wanted[name]:
            return (
                "EngineMappingDiffers",
                f"has {name} {has}, the resource {wanted[name]}: write {field}: {has}, or build the engine again from"
                f" a checkpoint that was converted with --{name}={wanted[name]}",
            )
    ranks = len(list(folder.glob("rank*.engine")))
    if ranks != wanted["tp_size"] * wanted["pp_size"]:
        return "EngineIncomplete", f"has {ranks} rank*.engine of {wanted['tp_size'] * wanted['pp_size']}: copy all"
    return _of_another_model(config, model) or _built_otherwise(wanted, built)


def _of_another_model(engine: Mapping[str, Any], model: Path) -> tuple[str, str] | None:
    """The same of the model that the engine was built from, by what both configurations state."""
    pretrained = engine.get("pretrained_config") or {}
    config = checkpoint.language_model(checkpoint.read_json(model / "config.json"))
    for name in SHAPES:
        there, here = pretrained.get(name), config.get(name)
        if isinstance(there, int) and isinstance(here, int) and there != here:
            return (
                "EngineModelDiffers",
                f"built from another model: its {name} is {there}, that of {model} {here}: name the engine's own"
                " checkpoint as model.uri, or build the engine from this one",
            )
    return None


def _built_otherwise(wanted: Mapping[str, Any], built: Mapping[str, Any]) -> tuple[str, str] | None:
    """The same of how the engine was built."""
    mode = wanted.get("speculative_decoding_mode")
    has = _mode(built)
    if mode and has and has != mode:
        return (
            "EngineModeDiffers",
            f"built with speculative_decoding_mode {has}: build it again with"
            f" --speculative_decoding_mode={mode} --max_draft_len={wanted['max_draft_len']}",
        )
    if low := _too_low(wanted, built):
        return low
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

    Each round brings the whole text, and TensorRT-LLM counts all of it (docs/reference/engines.md, "Tokens of
    a step").
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


def _too_low(wanted: Mapping[str, Any], built: Mapping[str, Any]) -> tuple[str, str] | None:
    """The same of its limits."""
    mode = wanted.get("speculative_decoding_mode")
    for name, field in (("max_draft_len", "speculation.maxDraftLen"), ("max_batch_size", "serving.maxBatchSize")):
        limit = built.get(name) or 0
        if limit < wanted[name]:
            lower = f", or lower {field}" if limit else ""
            for_drafts = f" --speculative_decoding_mode={mode}" if mode and name == "max_draft_len" else ""
            return (
                "EngineLimitTooLow",
                f"built with {name} {limit}, needed {wanted[name]}: build it again with{for_drafts}"
                f" --{name}={wanted[name]}{lower}",
            )
    return None


def _mode(built: Mapping[str, Any]) -> str:
    """The speculative decoding mode of an engine in trtllm-build's words; empty where it does not say."""
    has = built.get("speculative_decoding_mode")
    return next((name for name, number in MODES.items() if has == number), str(has or "").lower())


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
