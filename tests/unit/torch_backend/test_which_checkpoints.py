"""Which checkpoints the torch backend runs, and what they take: from files, without torch."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from reference_engine.config import CheckpointError
from reference_engine.torch_backend import checkpoints
from unit.reference_engine import tiny_llama

REPOSITORY = Path(__file__).resolve().parents[3]
INDEX = "model.safetensors.index.json"
Change = Callable[[Path], object]


def config(**changes: Any) -> Change:
    return lambda folder: (folder / "config.json").write_text(json.dumps({**tiny_llama.CONFIG, **changes}))


def file(name: str, text: str = "{}") -> Change:
    return lambda folder: (folder / name).write_text(text)


def stored_as(kind: type[np.generic]) -> Change:
    return lambda folder: save_file({"odd": np.zeros((2, 2), kind)}, folder / "model.safetensors")


def index(**files: str) -> Change:
    return file(INDEX, json.dumps({"weight_map": files}))


def removed(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


QUANTIZED = "the checkpoint is quantized, as its {} says: the torch backend runs float16, bfloat16, float32; take"
REFUSED: list[tuple[str, Change, str]] = [
    ("an architecture that was not tried", config(model_type="gpt2"), "model_type is 'gpt2': the torch backend was"),
    ("none", config(model_type=None), "model_type is None"),
    (
        "a rope that a graph cannot have",
        config(rope_parameters={"rope_type": "longrope"}),
        "rope_type is 'longrope': the",
    ),
    ("in transformers 4's names", config(rope_scaling={"type": "dynamic", "factor": 2.0}), "rope_type is 'dynamic'"),
    ("quantized", config(quantization_config={"quant_method": "fp8"}), QUANTIZED.format("quantization_config")),
    ("compressed", config(compression_config={"format": "pack"}), QUANTIZED.format("compression_config")),
    ("ModelOpt's", file("hf_quant_config.json"), QUANTIZED.format("hf_quant_config.json")),
    ("AutoGPTQ's", file("quantize_config.json"), QUANTIZED.format("quantize_config.json")),
    ("AutoAWQ's", file("quant_config.json"), QUANTIZED.format("quant_config.json")),
    ("a type", config(dtype="float8_e4m3fn"), "dtype is 'float8_e4m3fn': the torch backend runs float16"),
    ("a type, in transformers 4's name", config(torch_dtype="float64", dtype=None), "dtype is 'float64'"),
    ("integers in the file", stored_as(np.int8), "model.safetensors stores odd as I8"),
    (
        "a tensor that only the index has",
        index(**{"odd.weight": "model.safetensors", "model.norm.weight": "model.safetensors"}),
        f"model.safetensors lacks odd.weight, which {INDEX} lists (1 tensors in all)",
    ),
    ("a file that only the index has", index(**{"lm_head.weight": "model-00002.safetensors"}), "cannot read"),
    ("no weights", removed("model.safetensors"), "cannot read"),
    ("no config.json", removed("config.json"), "cannot read the checkpoint"),
    ("config.json that is no object", file("config.json", "[]"), "is no JSON object"),
]


@pytest.mark.parametrize(("reason", "change", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused(tmp_path: Path, reason: str, change: Change, message: str) -> None:
    folder = tiny_llama.write(tmp_path)
    checkpoints.check(folder)
    change(folder)
    with pytest.raises(CheckpointError) as caught:
        checkpoints.check(folder)
    assert message in str(caught.value)


@pytest.mark.parametrize("dtype", [{"dtype": "bfloat16"}, {"torch_dtype": "float16"}, {}])
def test_types_that_run(tmp_path: Path, dtype: dict[str, str]) -> None:
    folder = tiny_llama.write(tmp_path)
    config(**dtype)(folder)
    checkpoints.check(folder)


SHAPE = {
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "hidden_size": 3584,
    "max_position_embeddings": 32768,
    "vocab_size": 152064,
    "dtype": "bfloat16",
}
TOKEN = 2 * 28 * 4 * 128 * 2


@pytest.mark.parametrize(
    ("reason", "changes", "asked", "tokens", "token"),
    [
        ("16 sequences, and a row of padding", {}, 8192, 17 * 8192, TOKEN),
        ("the model's own limit", {}, 0, 17 * 32768, TOKEN),
        ("no more than the model's limit", {}, 65536, 17 * 32768, TOKEN),
        ("a head of another width", {"head_dim": 256}, 8192, 17 * 8192, 2 * TOKEN),
        ("as many heads for keys", {"num_key_value_heads": None}, 8192, 17 * 8192, 7 * TOKEN),
        ("float32", {"dtype": "float32"}, 8192, 17 * 8192, 2 * TOKEN),
    ],
)
def test_keys_and_values(
    tmp_path: Path, reason: str, changes: dict[str, Any], asked: int, tokens: int, token: int
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**SHAPE, **changes}))
    save_file({"a": np.zeros((3, 5), np.float16), "b": np.zeros(7, np.float16)}, tmp_path / "model.safetensors")
    found = checkpoints.memory(tmp_path, 16, asked)
    assert found.kv_cache == tokens * token, reason
    width = 4 if changes.get("dtype") == "float32" else 2
    assert found.weights == (3 * 5 + 7) * width, "in the type that they have on the GPU"
    assert found.total == found.weights + found.kv_cache + found.overhead
    more = checkpoints.memory(tmp_path, 16, asked, pass_tokens=4096)
    assert more.overhead - found.overhead >= 3 * 4 * (4096 - 1024) * 152064, "logits of a pass are float32, in copies"


def test_what_does_not_fit_is_refused_with_what_it_needs() -> None:
    """Before weights are read: otherwise the GPU's memory would end in the middle of the graphs' capture."""
    needed = checkpoints.Memory(weights=15 << 30, kv_cache=8 << 30, overhead=3 << 30)
    needed.check(26 << 30)
    with pytest.raises(
        CheckpointError, match=r"15\.0, a KV cache of 8\.0 and 3\.0 GiB for graphs .* the 25\.9 GiB that"
    ):
        needed.check((26 << 30) - (100 << 20))


# GiB that `python -m bench.gpu.memory` found beyond weights and KV cache, CUDA's context included
# (docs/reference/benchmarks/torch-backend-memory.json); 128,256 is the vocabulary.
MEASURED = [(512, 0.87 + 0.52), (1024, 1.72 + 0.52), (4096, 6.65 + 0.52)]


@pytest.mark.parametrize(("pass_tokens", "taken"), MEASURED)
def test_the_estimate_is_above_what_was_measured_and_near_it(tmp_path: Path, pass_tokens: int, taken: float) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**SHAPE, "vocab_size": 128256}))
    save_file({"a": np.zeros(1, np.float16)}, tmp_path / "model.safetensors")
    estimated = checkpoints.memory(tmp_path, 16, 1024, pass_tokens=pass_tokens).overhead / (1 << 30)
    assert taken < estimated < taken + 2


@pytest.mark.parametrize("tied", [False, True])
def test_a_gpu_s_share_is_what_splitting_keeps(tmp_path: Path, tied: bool) -> None:
    """A bias, embeddings and norms are on each; tied, the head is a part of the embeddings beside them."""
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    matrices = {"model.embed_tokens.weight": (8, 4), "model.layers.0.mlp.up_proj.weight": (6, 4)}
    matrices |= {} if tied else {"lm_head.weight": (8, 4)}
    tensors = {name: np.zeros(shape, np.float16) for name, shape in matrices.items()}
    save_file({**tensors, "model.norm.weight": np.zeros(4, np.float16)}, tmp_path / "model.safetensors")
    one, two = (checkpoints.memory(tmp_path, 16, 0, gpus) for gpus in (1, 2))
    assert one.weights == 2 * (8 * 4 + 6 * 4 + 4 + (0 if tied else 8 * 4))
    assert two.weights == 2 * (8 * 4 + 4 + (6 * 4 + 8 * 4) // 2)
    assert two.kv_cache == one.kv_cache // 2


SPLIT: list[tuple[dict[str, Any], int, str]] = [
    ({}, 1, ""),
    ({}, 2, ""),
    ({"num_key_value_heads": 3, "num_attention_heads": 6}, 2, "num_key_value_heads is 3, .* tensorParallelSize: 1"),
    ({"num_key_value_heads": 4, "num_attention_heads": 8}, 3, "num_attention_heads is 8, .* tensorParallelSize: 2"),
    ({"model_type": "phi3"}, 2, "a model of type phi3 is not split over GPUs: write tensorParallelSize: 1"),
    ({"model_type": "olmo2"}, 1, ""),
]


@pytest.mark.parametrize(("changes", "gpus", "message"), SPLIT)
def test_over_how_many_gpus(tmp_path: Path, changes: dict[str, Any], gpus: int, message: str) -> None:
    folder = tiny_llama.write(tmp_path)
    (folder / "config.json").write_text(json.dumps({**tiny_llama.CONFIG, **changes}))
    if not message:
        checkpoints.check(folder, gpus)
        return
    with pytest.raises(CheckpointError, match=message):
        checkpoints.check(folder, gpus)


def test_only_the_files_that_are_loaded_count(tmp_path: Path) -> None:
    """Mistral's folders have the weights a second time, in the publisher's format."""
    folder = tiny_llama.write(tmp_path)
    before = checkpoints.memory(folder, 1, 0)
    save_file({"again": np.zeros((64, 64), np.float32)}, folder / "consolidated.safetensors")
    assert checkpoints.memory(folder, 1, 0) == before


def test_a_shape_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = tiny_llama.write(tmp_path)
    config(max_position_embeddings=None)(folder)
    values = json.loads((folder / "config.json").read_text())
    del values["max_position_embeddings"]
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=r"config\.json lacks 'max_position_embeddings'"):
        checkpoints.memory(folder, 1, 0)


def test_it_needs_neither_torch_nor_transformers() -> None:
    """The preflight runs it in a pod without a GPU; importing torch takes seconds."""
    code = (
        "import sys; import reference_engine.torch_backend.checkpoints;"
        " sys.exit(bool({'torch', 'transformers', 'triton'} & sys.modules.keys()))"
    )
    path = str(REPOSITORY / "images/reference")
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path}, check=False).returncode == 0
