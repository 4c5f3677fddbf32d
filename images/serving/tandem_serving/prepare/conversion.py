"""TensorRT-LLM's scripts that convert checkpoints: which one fits a checkpoint, and which arguments it takes. Pure.

A script a family of models, `convert_checkpoint.py` in release 1.2's `examples/models/`. The launch plan has the
arguments in the words of most of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

GEMMA = "models/core/gemma"
WITHOUT_AUTO = ("models/core/internlm2", "models/contrib/bloom", "models/contrib/gptneox")
"""Scripts that do not know `--dtype=auto`."""
# `model_type` of config.json to the script's folder.
SCRIPTS = {
    **dict.fromkeys(("llama", "mistral", "mixtral"), "models/core/llama"),
    **dict.fromkeys(("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"), "models/core/qwen"),
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text"), GEMMA),
    **dict.fromkeys(("phi", "phi3", "phi3small", "phimoe"), "models/core/phi"),
    **dict.fromkeys(("gpt2", "gpt_bigcode", "starcoder2", "nemotron"), "models/core/gpt"),
    **dict.fromkeys(("cohere", "cohere2"), "models/core/commandr"),
    "internlm2": "models/core/internlm2",
    "falcon": "models/contrib/falcon",
    "bloom": "models/contrib/bloom",
    "gptj": "models/contrib/gptj",
    "gpt_neox": "models/contrib/gptneox",
}


class Impossible(Exception):
    """No script converts it; the message says what to do."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def folder(config: Mapping[str, Any]) -> str:
    """Folder of the script for the checkpoint of this config.json. Raises Impossible."""
    kind = str(config.get("model_type"))
    if kind not in SCRIPTS:
        raise Impossible(
            "ArchitectureUnknown",
            f"no conversion is known for model_type {kind!r}: bring the engine as engine.prebuilt, or write"
            " runtime.mode: LLMAPI",
        )
    return SCRIPTS[kind]


def arguments(script: str, given: Sequence[str], config: Mapping[str, Any]) -> list[str]:
    """The plan's arguments (`--name=value`) in the words of the script in the folder `script`. Raises Impossible."""
    options = dict(word.split("=", 1) for word in given)
    if script in WITHOUT_AUTO and options.get("--dtype") == "auto":
        options["--dtype"] = _own_type(config)
    if script == GEMMA:
        options = _gemma(options)
    return [f"{name}={value}" for name, value in options.items()]


def _own_type(config: Mapping[str, Any]) -> str:
    """What `auto` is in the other scripts: as in the checkpoint, but float16 for float32."""
    own = config.get("dtype") or config.get("torch_dtype")
    return "bfloat16" if own == "bfloat16" else "float16"


def _gemma(options: Mapping[str, str]) -> dict[str, str]:
    """It reads checkpoints of four kinds, splits them over tensors alone, and has one worker."""
    if options.get("--pp_size", "1") != "1":
        raise Impossible(
            "PipelineNotSupported",
            "TensorRT-LLM converts Gemma without pipeline parallelism: write pipelineParallelSize: 1 and a larger"
            " tensorParallelSize",
        )
    names = {"--model_dir": "--model-dir", "--output_dir": "--output-model-dir", "--tp_size": "--world-size"}
    kept = {names.get(name, name): value for name, value in options.items() if name not in ("--pp_size", "--workers")}
    return {"--ckpt-type": "hf", **kept}
