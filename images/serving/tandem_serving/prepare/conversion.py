"""TensorRT-LLM's scripts that convert checkpoints: which one fits a checkpoint, and which arguments it takes. Pure.

A script a family of models, `convert_checkpoint.py` in release 1.2's `examples/models/`. The launch plan has the
arguments in the words of most of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LLAMA, QWEN, PHI, GEMMA = (f"models/core/{name}" for name in ("llama", "qwen", "phi", "gemma"))
QUANTIZED_BITS: Mapping[str, Mapping[str, Sequence[int]]] = {
    LLAMA: {"awq": (4,), "gptq": (4,)},
    QWEN: {"awq": (4,), "gptq": (4, 8)},
}
"""Bits of quantized checkpoints that a script reads, by `quant_method` (their `update_quant_config_from_hf`)."""
WITHOUT_AUTO = ("models/core/internlm2", "models/contrib/bloom", "models/contrib/gptneox")
"""Scripts that do not know `--dtype=auto`."""
WITHOUT_PIPELINE = (GEMMA, PHI)
"""Scripts that split a model over tensors alone."""
# `model_type` of config.json to the script's folder.
SCRIPTS = {
    **dict.fromkeys(("llama", "mistral", "mixtral"), LLAMA),
    **dict.fromkeys(("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"), QWEN),
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text"), GEMMA),
    **dict.fromkeys(("phi", "phi3", "phi3small", "phimoe"), PHI),
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
    if script in WITHOUT_PIPELINE and options.get("--pp_size", "1") != "1":
        raise Impossible(
            "PipelineNotSupported",
            f"TensorRT-LLM's script of {script} converts without pipeline parallelism: write pipelineParallelSize: 1"
            " and a larger tensorParallelSize",
        )
    if script == GEMMA:
        options = _gemma(options)
    return [f"{name}={value}" for name, value in options.items()]


def check_quantization(script: str, quantization: Mapping[str, Any]) -> None:
    """Whether the script in the folder `script` reads a checkpoint that says so of its quantization
    (`checkpoint.quantization`; empty: it has none). Raises Impossible.

    What a script does not know it converts as if it were not quantized.
    """
    method = str(quantization.get("quant_method") or "")
    if not quantization or (script, method) == (LLAMA, "fbgemm_fp8"):
        return
    bits = quantization.get("bits", 4)
    ordered = " with desc_act" if quantization.get("desc_act") else ""
    if bits in QUANTIZED_BITS.get(script, {}).get(method, ()) and not ordered:
        return
    kind = f"{method}, {bits} bits{ordered}" if method in ("awq", "gptq") else method or "of an unknown kind"
    raise Impossible(
        "QuantizationNotConverted",
        f"the checkpoint is quantized ({kind}), which TensorRT-LLM's convert_checkpoint.py of {script} does not"
        " read: name the checkpoint that is not quantized, bring the engine as engine.prebuilt, built from a"
        f" checkpoint of examples/quantization/quantize.py{_as_it_is(method)}",
    )


def _as_it_is(method: str) -> str:
    """Advice for what the LLM API reads (_torch/model_config.py)."""
    return ", or write runtime.mode: LLMAPI, which runs it as it is" if method in ("modelopt", "fp8", "mxfp4") else ""


def _own_type(config: Mapping[str, Any]) -> str:
    """What `auto` is in the other scripts: as in the checkpoint, but float16 for float32."""
    own = config.get("dtype") or config.get("torch_dtype")
    return "bfloat16" if own == "bfloat16" else "float16"


def _gemma(options: Mapping[str, str]) -> dict[str, str]:
    """It reads checkpoints of four kinds, splits them over tensors alone, and has one worker."""
    names = {"--model_dir": "--model-dir", "--output_dir": "--output-model-dir", "--tp_size": "--world-size"}
    kept = {names.get(name, name): value for name, value in options.items() if name not in ("--pp_size", "--workers")}
    return {"--ckpt-type": "hf", **kept}
