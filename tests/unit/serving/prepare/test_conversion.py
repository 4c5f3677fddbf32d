"""Checkpoints to scripts, and the plan's arguments in the words of each (examples/models of TensorRT-LLM 1.2)."""

import json
from pathlib import Path
from typing import Any

import pytest

from tandem_serving import checkpoint
from tandem_serving.prepare.conversion import (
    GEMMA,
    LLAMA,
    PHI,
    QWEN,
    SCRIPTS,
    WITHOUT_AUTO,
    Impossible,
    arguments,
    check_quantization,
    folder,
)

PLAN = ["--model_dir=M", "--output_dir=O", "--tp_size=2", "--pp_size=1", "--workers=2", "--dtype=auto"]
COMMON = " ".join(PLAN[:5])

WORDS: list[tuple[str, dict[str, Any], str]] = [
    # reason, config.json, the arguments
    ("most take them as they are", {"model_type": "llama", "torch_dtype": "bfloat16"}, f"{COMMON} --dtype=auto"),
    ("no auto: the checkpoint's type", {"model_type": "internlm2", "torch_dtype": "bfloat16"}, "--dtype=bfloat16"),
    ("no auto: as newer libraries write it", {"model_type": "gpt_neox", "dtype": "bfloat16"}, "--dtype=bfloat16"),
    (
        "no auto: float32 is halved, as elsewhere",
        {"model_type": "bloom", "torch_dtype": "float32"},
        "--dtype=float16",
    ),
    ("no auto, and a checkpoint that says no type", {"model_type": "bloom"}, "--dtype=float16"),
    (
        "Gemma's: the kind of checkpoint, one size, and no workers",
        {"model_type": "gemma2"},
        "--ckpt-type=hf --model-dir=M --output-model-dir=O --world-size=2 --dtype=auto",
    ),
]


@pytest.mark.parametrize(("config", "expected"), [row[1:] for row in WORDS], ids=[row[0] for row in WORDS])
def test_arguments(config: dict[str, Any], expected: str) -> None:
    assert " ".join(arguments(folder(config), PLAN, config)).endswith(expected)


@pytest.mark.parametrize("model_type", ["llama", "internlm2", "gemma"])
def test_a_type_that_is_written_stays(model_type: str) -> None:
    written = [*PLAN[:5], "--dtype=float32"]
    assert arguments(SCRIPTS[model_type], written, {"torch_dtype": "bfloat16"})[-1] == "--dtype=float32"


@pytest.mark.parametrize("model_type", ["gemma", "phi3"])
def test_what_is_not_split_over_layers(model_type: str) -> None:
    with pytest.raises(Impossible, match="write pipelineParallelSize: 1") as refused:
        arguments(SCRIPTS[model_type], [*PLAN[:3], "--pp_size=2"], {})
    assert refused.value.reason == "PipelineNotSupported"


AS_IT_IS = "or write runtime.mode: LLMAPI, which runs it as it is"
QUANTIZED: list[tuple[str, str, dict[str, Any], dict[str, Any], str]] = [
    # why, script, config.json, files next to it, part of the message; empty: it is read
    ("not quantized", LLAMA, {}, {}, ""),
    ("AWQ of Llama", LLAMA, {"quantization_config": {"quant_method": "awq", "bits": 4}}, {}, ""),
    ("GPTQ of 8 bits, Qwen", QWEN, {"quantization_config": {"quant_method": "gptq", "bits": 8}}, {}, ""),
    (
        "GPTQ of 8 bits, Llama",
        LLAMA,
        {"quantization_config": {"quant_method": "gptq", "bits": 8}},
        {},
        "(gptq, 8 bits)",
    ),
    (
        "GPTQ in another order",
        QWEN,
        {"quantization_config": {"quant_method": "gptq", "bits": 4, "desc_act": True}},
        {},
        "(gptq, 4 bits with desc_act), which TensorRT-LLM's convert_checkpoint.py of models/core/qwen does not read",
    ),
    ("AWQ of a script without", GEMMA, {"quantization_config": {"quant_method": "awq"}}, {}, "(awq, 4 bits)"),
    ("Llama's FP8", LLAMA, {"quantization_config": {"quant_method": "fbgemm_fp8"}}, {}, ""),
    ("Llama's FP8 in Qwen", QWEN, {"quantization_config": {"quant_method": "fbgemm_fp8"}}, {}, "(fbgemm_fp8)"),
    ("FP8 in blocks", QWEN, {"quantization_config": {"quant_method": "fp8"}}, {}, AS_IT_IS),
    ("ModelOpt's file", LLAMA, {}, {"hf_quant_config.json": {"quantization": {"quant_algo": "FP8"}}}, AS_IT_IS),
    ("ModelOpt in config.json", LLAMA, {"quantization_config": {"quant_method": "modelopt"}}, {}, AS_IT_IS),
    (
        "compressed-tensors",
        LLAMA,
        {"quantization_config": {"quant_method": "compressed-tensors"}},
        {},
        "the checkpoint is quantized (compressed-tensors), which TensorRT-LLM's convert_checkpoint.py of"
        " models/core/llama does not read: name the checkpoint that is not quantized, bring the engine as"
        " engine.prebuilt, built from a checkpoint of examples/quantization/quantize.py",
    ),
    ("compressed-tensors of old", LLAMA, {"compression_config": {"format": "x"}}, {}, "(compressed-tensors)"),
    ("bitsandbytes", LLAMA, {"quantization_config": {"quant_method": "bitsandbytes"}}, {}, "(bitsandbytes)"),
    ("of a text model", GEMMA, {"text_config": {"quantization_config": {"quant_method": "fp8"}}}, {}, "(fp8)"),
    ("AutoGPTQ's file", LLAMA, {}, {"quantize_config.json": {"bits": 4}}, ""),
    ("a method without a name", LLAMA, {"quantization_config": {"load_in_4bit": True}}, {}, "(of an unknown kind)"),
    ("ModelOpt, Phi", PHI, {}, {"hf_quant_config.json": {}}, "(modelopt)"),
]


@pytest.mark.parametrize(
    ("script", "config", "files", "message"), [row[1:] for row in QUANTIZED], ids=[row[0] for row in QUANTIZED]
)
def test_quantized_checkpoints(
    tmp_path: Path, script: str, config: dict[str, Any], files: dict[str, Any], message: str
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    found = checkpoint.quantization(tmp_path, config)
    if not message:
        check_quantization(script, found)
        return
    with pytest.raises(Impossible) as refused:
        check_quantization(script, found)
    assert refused.value.reason == "QuantizationNotConverted"
    assert message in str(refused.value)


def test_every_script_is_of_a_decoder() -> None:
    folders = SCRIPTS.values()
    assert all(name.startswith(("models/core/", "models/contrib/")) for name in folders)
    assert set(WITHOUT_AUTO) <= set(folders)
