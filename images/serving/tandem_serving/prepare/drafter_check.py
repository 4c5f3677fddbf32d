"""Is what drafts in the engine there: EAGLE-3's heads, or the target's own layers for MTP? By names of
tensors and config.json, without loading anything."""

from __future__ import annotations

import pickletools
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors

from tandem_serving import checkpoint
from tandem_serving.checkpoint import CheckpointError, ModelLimits
from tandem_serving.prepare import cached, hub_cache
from tandem_serving.prepare.verdict import CheckResult

PAIR = "PairCompatible"
EAGLE = ("Eagle", "Eagle3", "eagle3")
"""EAGLE-3 as TensorRT-LLM spells it, which makes it of the first, too, and vLLM."""
MTP = ("MTP", "mtp")
_MTP_LAYER = re.compile(r"(^|\.)(mtp|mtp_layers|mtp_block)(\.|$)|\.eh_proj\.|nextn")
"""In names of MTP's tensors: of DeepSeek and GLM (`eh_proj`), of Qwen3-Next, Nemotron and others (`mtp`)."""
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_MOST_PICKLE = 64 << 20
"""Bytes of a pickled list of tensors that are read; those of heads have some 10 KB."""


def method(speculative: Mapping[str, Any]) -> str:
    """How an engine's `speculative_config` says that it drafts: TensorRT-LLM's `decoding_type`, vLLM's `method`."""
    return str(speculative.get("decoding_type") or speculative.get("method"))


def check_heads(target: Path, limits: ModelLimits, folder: Path, speculative: Mapping[str, Any]) -> CheckResult:
    """Whether heads are there, whole, and for this target. Raises CheckpointError.

    `target` is its folder, `limits` its limits; `speculative`: the engine's `speculative_config`.
    """
    cached.check(folder)
    if folder.is_dir():
        hub_cache.check("heads", folder)
    files = checkpoint.weight_files(folder)
    if not files:
        raise CheckpointError(f"heads: {folder} has no weights (*.safetensors or *.bin): check draft.model.uri")
    names = set().union(*map(_names, files))
    config = checkpoint.drafter(checkpoint.read_json(folder / "config.json"))
    eagle3 = method(speculative) in EAGLE and speculative.get("eagle3_model_arch") != "mistral_large3"
    if eagle3 and (wrong := _not_eagle3(names) or _of_another(config, target)):
        return CheckResult(PAIR, "False", "HeadsNotForTarget", f"{folder.name}: {wrong}")
    words = config.get("vocab_size")
    if words != limits.vocab_size:
        text = f"target has {limits.vocab_size} vocabulary rows, the heads say {words}"
        # Only the engine knows what the heads make of it.
        return CheckResult(PAIR, "Unknown", "VocabularyDiffers", f"{text}: were they trained for this target?")
    there = f"the heads are there, for the target's {words} words"
    return CheckResult(PAIR, "True", "HeadsMatch", there + _shorter(config, limits))


def _shorter(config: Mapping[str, Any], limits: ModelLimits) -> str:
    """A warning of heads for shorter sequences than the target's: beyond, engines stop drafting, or read past what
    they prepared (TensorRT-LLM's pull request 4879)."""
    length = checkpoint.longest_sequence(config)
    if not isinstance(length, int) or length >= limits.max_sequence_len:
        return ""
    return (
        f"; warning: the heads' context is {length} tokens, the target's {limits.max_sequence_len}: longer sequences"
        " go on without speculation, or fail; where the heads were trained for more, correct max_position_embeddings"
        " in their config.json"
    )


def check_model(role: str, folder: Path) -> None:
    """Raises CheckpointError for what only drafts inside an engine, where a model of its own is needed."""
    names = _listed(folder)
    if any("hidden_norm" in name for name in names):
        has, advice = "EAGLE-3's heads", "write decodingType: Eagle3 (mode LLMAPI)"
    elif any(name.startswith("medusa_head.") for name in names):
        has, advice = "Medusa's heads", "write decodingType: Medusa (mode BLS)"
    elif "fc.weight" in names and any(name.startswith("layers.") for name in names):
        has, advice = "heads of EAGLE-1 or 2", "name EAGLE-3's and write decodingType: Eagle3 (mode LLMAPI)"
    else:
        return
    if any(name.startswith("model.") for name in names):  # a model with such heads in it
        return
    raise CheckpointError(
        f"{role}: {folder} has {has} and no model: {advice}, or name a model of the target's family"
    )


def _not_eagle3(names: set[str]) -> str:
    """Each layer of EAGLE-3 norms the target's hidden states (`hidden_norm`), which no other model has
    (_torch/models/modeling_speculative.py). "" where names are not known."""
    if not names or any("hidden_norm" in name for name in names):
        return ""
    advice = "name heads that were trained as EAGLE-3 for this target"
    if any(name.startswith("model.layers.") for name in names):
        return f"it is a whole model, not heads: {advice}, or write speculation.decodingType: DraftTarget"
    if any(name.startswith("layers.") for name in names):
        return f"its heads are of EAGLE-1 or 2, not of EAGLE-3: {advice}"
    if any(name.startswith(("medusa_head.", "0.")) for name in names):
        return f"its heads are Medusa's: {advice}, or write decodingType: Medusa in mode BLS"
    return f"it has no layer of EAGLE-3 (such as midlayer.hidden_norm.weight): {advice}"


def _of_another(config: Mapping[str, Any], target: Path) -> str:
    """Heads read the target's hidden states: of one width."""
    needed = config.get("target_hidden_size") or config.get("hidden_size")
    width = checkpoint.language_model(checkpoint.read_json(target / "config.json")).get("hidden_size")
    if not needed or not width or needed == width:
        return ""
    return f"its heads are for a target of hidden_size {needed}, and this one has {width}: name heads trained for it"


def check_mtp(target: Path) -> CheckResult:
    """Whether the target has layers for multi-token prediction. Raises CheckpointError."""
    config = checkpoint.language_model(checkpoint.read_json(target / "config.json"))
    names = _listed(target)
    stated = next((n for n in ("num_nextn_predict_layers", "mtp_num_hidden_layers") if config.get(n)), "")
    layers = config.get("num_hidden_layers")
    if any(_MTP_LAYER.search(name) or _beyond(name, layers) for name in names) or (stated and not names):
        return CheckResult(PAIR, "True", "MtpLayersFound", "the target has layers for multi-token prediction")
    promise = f"config.json states {stated} {config[stated]}, and the checkpoint" if stated else "the checkpoint"
    return CheckResult(
        PAIR,
        "False",
        "MtpLayersMissing",
        f"target: {promise} has no layers for multi-token prediction: name a checkpoint with them"
        " (DeepSeek-V3 and R1, GLM-4.5 and Qwen3-Next have some; quantized copies may lack them), or write"
        " another speculation.decodingType, such as NGram",
    )


def _beyond(name: str, layers: object) -> bool:
    """Whether a tensor is of a layer after the model's own, as DeepSeek numbers those of MTP."""
    found = _LAYER.search(name)
    return found is not None and isinstance(layers, int) and int(found[1]) >= layers


def _listed(folder: Path) -> set[str]:
    """Names of a checkpoint's tensors; empty where no file says them. Raises CheckpointError."""
    if (path := folder / "model.safetensors.index.json").is_file():
        listed = checkpoint.read_json(path).get("weight_map")
        return set(listed) if isinstance(listed, dict) else set()
    return set().union(*map(_names, checkpoint.weight_files(folder)))


def _names(path: Path) -> set[str]:
    """Names of a file's tensors; empty where its format does not say them. Raises CheckpointError."""
    return _safetensors(path) if path.suffix == ".safetensors" else _pickled(path)


def _safetensors(path: Path) -> set[str]:
    try:
        with safetensors.safe_open(str(path), framework="numpy") as weights:
            return set(weights.keys())
    except (safetensors.SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}): download it again") from None


def _pickled(path: Path) -> set[str]:
    """Texts of what torch pickled, names of tensors among them; read, not run. Empty for another format."""
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = (each for each in archive.namelist() if each.endswith("/data.pkl"))
            if archive.getinfo(name).file_size > _MOST_PICKLE:
                return set()
            return {text for _, text, _ in pickletools.genops(archive.read(name)) if isinstance(text, str)}
    except (zipfile.BadZipFile, OSError, ValueError):
        return set()
