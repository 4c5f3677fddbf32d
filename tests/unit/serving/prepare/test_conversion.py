"""Checkpoints to scripts, and the plan's arguments in the words of each (examples/models of TensorRT-LLM 1.2)."""

from typing import Any

import pytest

from tandem_serving.prepare.conversion import SCRIPTS, WITHOUT_AUTO, Impossible, arguments, folder

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


def test_gemma_is_not_split_over_layers() -> None:
    with pytest.raises(Impossible, match="write pipelineParallelSize: 1") as refused:
        arguments(SCRIPTS["gemma"], [*PLAN[:3], "--pp_size=2"], {})
    assert refused.value.reason == "PipelineNotSupported"


def test_every_script_is_of_a_decoder() -> None:
    folders = SCRIPTS.values()
    assert all(name.startswith(("models/core/", "models/contrib/")) for name in folders)
    assert set(WITHOUT_AUTO) <= set(folders)
