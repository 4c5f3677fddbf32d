import json
from pathlib import Path
from typing import Any

import pytest

from support.serving.model_folders import ModelFolder, byte_level
from tandem_serving import checkpoint
from tandem_serving.checkpoint import ModelLimits
from tandem_serving.requests.tokenizer import Tokenizer

LIMITS = [
    ({"max_position_embeddings": 2048, "vocab_size": 300}, ModelLimits(2048, 300), "Hugging Face"),
    (
        {"build_config": {"max_seq_len": 4096}, "pretrained_config": {"vocab_size": 128}},
        ModelLimits(4096, 128),
        "a TensorRT-LLM engine",
    ),
    (
        {"build_config": {"max_seq_len": 131072, "max_num_tokens": 8192}, "pretrained_config": {"vocab_size": 128}},
        ModelLimits(8192, 128),
        "an engine that takes no more at once",
    ),
    (
        {"build_config": {"max_seq_len": 4096, "max_draft_len": 8}, "pretrained_config": {"vocab_size": 128}},
        ModelLimits(4088, 128),
        "an engine that keeps room for draft tokens",
    ),
    (
        {
            "build_config": {"max_seq_len": 9000, "max_num_tokens": 8192, "max_draft_len": 8},
            "pretrained_config": {"vocab_size": 128},
        },
        ModelLimits(8192, 128),
        "an engine that has that room beyond what it takes at once",
    ),
    (
        {"model_type": "llama4", "text_config": {"max_position_embeddings": 2048, "vocab_size": 300}},
        ModelLimits(2048, 300),
        "a model that reads images too",
    ),
    ({"model_type": "gpt_bigcode", "n_positions": 8192, "vocab_size": 300}, ModelLimits(8192, 300), "GPT-2's kin"),
    ({"model_type": "bloom", "seq_length": 2048, "vocab_size": 300}, ModelLimits(2048, 300), "BLOOM"),
]


@pytest.mark.parametrize(("config", "limits", "reason"), LIMITS, ids=[row[2] for row in LIMITS])
def test_limits(tmp_path: Path, config: dict[str, object], limits: ModelLimits, reason: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert checkpoint.read_limits(tmp_path) == limits, reason


WEIGHTS = [
    # files of a folder, those that are read, why
    (("a.safetensors", "b.safetensors", "a.bin"), ("a.safetensors", "b.safetensors"), "one kind"),
    (("a.bin", "b.pth"), ("a.bin",), "the first kind that is there"),
    (("consolidated.safetensors", "model.safetensors"), ("model.safetensors",), "the same weights twice"),
    (("consolidated.safetensors",), ("consolidated.safetensors",), "no others"),
    ((), (), "none"),
]


@pytest.mark.parametrize(("files", "expected", "reason"), WEIGHTS, ids=[row[2] for row in WEIGHTS])
def test_weight_files(tmp_path: Path, files: tuple[str, ...], expected: tuple[str, ...], reason: str) -> None:
    for name in files:
        (tmp_path / name).touch()
    assert tuple(path.name for path in checkpoint.weight_files(tmp_path)) == expected, reason


END_IDS = [
    # config.json, generation_config.json, tokenizer_config.json's eos_token, end tokens, why
    ({"eos_token_id": 5}, None, None, [5], "config.json alone"),
    (
        {"eos_token_id": 5},
        {"eos_token_id": [7, 8]},
        None,
        [7, 8],
        "a number of config.json that is a word is left over",
    ),
    ({"eos_token_id": 1}, {"eos_token_id": 7}, None, [7, 1], "a special token of config.json ends a text, too"),
    ({"text_config": {"eos_token_id": 5}}, None, None, [5], "of a model that reads images"),
    ({}, None, "<|endoftext|>", [0], "the tokenizer's by name"),
    ({}, None, {"content": "<|im_end|>"}, [1], "as an added token"),
    ({"eos_token_id": 0}, {"eos_token_id": 0}, "<|im_end|>", [1, 0], "a fine-tuned chat model: its turns end, too"),
    ({"eos_token_id": 0}, {"eos_token_id": [0, 1]}, "<|im_end|>", [1, 0], "all agree; the tokenizer's comes first"),
    ({"eos_token_id": None}, {"eos_token_id": None}, "<none>", [], "nobody names one"),
    ({"eos_token_id": -1}, None, None, [], "no token"),
]


@pytest.mark.parametrize(
    ("config", "generation", "named", "expected", "reason"), END_IDS, ids=[row[-1] for row in END_IDS]
)
def test_end_ids(
    tmp_path: Path, config: dict[str, object], generation: object, named: object, expected: list[int], reason: str
) -> None:
    tokenizer = byte_level(special=("<|endoftext|>", "<|im_end|>"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": named}))
    if generation:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert Tokenizer(tmp_path).end_ids == expected, reason


def test_a_tokenizer_of_another_folder_and_the_model_s_own_files(tmp_path: Path) -> None:
    model, other = tmp_path / "model", tmp_path / "tokenizer"
    for folder in (model, other):
        folder.mkdir()
    byte_level(special=("<|endoftext|>", "<|im_end|>")).save(str(other / "tokenizer.json"))
    (other / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 9]}))
    assert Tokenizer(other, model).end_ids == [1, 0, 9]


def test_no_tokenizer_says_so(model_folder: ModelFolder) -> None:
    folder = model_folder()
    (folder / "tokenizer.json").unlink()
    with pytest.raises(checkpoint.CheckpointError, match=r"tokenizer\.json is missing"):
        Tokenizer(folder)


@pytest.mark.parametrize(("bound", "length"), [(0, 512), (128, 128), (4096, 512)])
def test_a_bound_shortens_sequences(bound: int, length: int) -> None:
    assert ModelLimits(512, 300).at_most(bound) == ModelLimits(length, 300)


@pytest.mark.parametrize(
    ("config", "tokens", "reason"),
    [
        ({"build_config": {"max_num_tokens": 8192}}, 8192, "an engine"),
        ({"build_config": {"max_num_tokens": None}}, None, "an engine that does not say"),
        ({"max_position_embeddings": 2048}, None, "a checkpoint"),
    ],
)
def test_tokens_of_a_step(config: dict[str, Any], tokens: int | None, reason: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert checkpoint.max_num_tokens(tmp_path) == tokens, reason
