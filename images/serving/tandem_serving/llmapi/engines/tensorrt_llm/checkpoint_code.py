"""The code of checkpoints that TensorRT-LLM runs.

It trusts a draft's code always (_torch/models/modeling_speculative.py), the target's with trust_remote_code.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem_serving import checkpoint

OWN_CONFIGS = frozenset(("deepseek_v32", "kimi_k2", "glm_moe_dsa", "kimi_k3", "kimi_linear", "laguna", "k3_dspark"))
"""Values of `model_type` whose config.json TensorRT-LLM reads by itself (_torch/pyexecutor/config_utils.py)."""


def missing(folders: Mapping[str, Path], trusts_target: bool) -> str:
    """What to do where it would run code that is not there; "": nothing. `folders`: by role."""
    for role, folder in folders.items():
        config = checkpoint.read_json(folder / "config.json")
        trusted = role != "target" or trusts_target
        file, kind = checkpoint.missing_code(folder, config), str(config.get("model_type"))
        if file and kind not in OWN_CONFIGS and (trusted or not _knows(kind)):
            return (
                f"{role}: config.json refers to {file} (auto_map), which is not in {folder}: downloads bring no code;"
                f" {_advice(role, trusted, kind)}, or name another checkpoint"
            )
    return ""


def _advice(role: str, trusted: bool, model_type: str) -> str:
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
