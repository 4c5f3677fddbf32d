"""Which checkpoints the torch backend runs, and what one takes of a GPU's memory: from files alone.

Imports neither torch nor transformers, for who asks before a server starts (images/serving, `prepare`).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors

from reference_engine import weights
from reference_engine.config import CheckpointError

# Dense decoders whose logits were compared with transformers' own (tests/unit/torch_backend).
TRIED = ("gemma2", "granite", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3", "smollm3", "starcoder2")
WHOLE = ("olmo2", "phi3")
"""Of these, what one GPU only runs: olmo2 norms all heads together, phi3 stores q, k and v, gate and up as one."""
TRIED_ROPE = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary embedding: likewise. For those that follow the text's length (dynamic, longrope) transformers reads
the length on the host, which a CUDA graph cannot do."""

BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
"""Bytes of a number, by the `dtype` of config.json."""
DEFAULT_DTYPE = "float16"
_STORED = ("F16", "BF16", "F32")
_QUANTIZED = ("quantization_config", "compression_config")
_QUANTIZED_FILES = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")
_EMBEDDINGS, _HEAD = "embed_tokens.", "lm_head."
_INDEX = "model.safetensors.index.json"
_GIB = 1 << 30
PASS_TOKENS = 1024
"""Tokens of a pass, as profile torch has them (`max_num_tokens`)."""
# Measured with `python -m bench.gpu.memory` on an H200, shapes of 8B and 1B, passes of 512, 1,024 and 4,096 tokens:
# CUDA's context takes 0.5 GiB; the rest is 3.2 to 3.6 times the logits of a pass.
_FIXED = _GIB
_COPIES_OF_LOGITS = 4


@dataclass(frozen=True)
class Memory:
    """What a model takes of its GPU, in bytes. `overhead`: CUDA's context, graphs, activations and logits."""

    weights: int
    kv_cache: int
    overhead: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.kv_cache + self.overhead

    def check(self, free: int) -> None:
        """Raises CheckpointError where it is more than so many free bytes."""
        if self.total > free:
            raise CheckpointError(
                f"weights of {self.weights / _GIB:.1f}, a KV cache of {self.kv_cache / _GIB:.1f} and"
                f" {self.overhead / _GIB:.1f} GiB for graphs and logits are more than the {free / _GIB:.1f} GiB that"
                " the GPU has free: lower max_num_sequences, max_seq_len or max_num_tokens, or take a larger GPU"
            )


def check(folder: Path, gpus: int = 1) -> None:
    """Raises CheckpointError where the backend does not run the checkpoint, split over so many GPUs.

    The message says what it runs.
    """
    values = _read(folder)
    kind = values.get("model_type")
    if kind not in TRIED:
        raise CheckpointError(f"model_type is {kind!r}: the torch backend was tried with {', '.join(TRIED)}")
    _check_rope(values)
    if gpus > 1:
        _check_split(values, gpus)
    found = [name for name in _QUANTIZED if values.get(name)]
    found += [name for name in _QUANTIZED_FILES if (folder / name).is_file()]
    types = f"the torch backend runs {', '.join(BYTES)}"
    if found:
        raise CheckpointError(f"the checkpoint is quantized, as its {found[0]} says: {types}; take the original")
    if dtype(values) not in BYTES:
        raise CheckpointError(f"dtype is {dtype(values)!r}: {types}")
    missing = _listed(folder)
    for path in weights.files(folder):
        for name, (stored, _) in _tensors(path).items():
            missing.discard((path.name, name))
            if stored not in _STORED:
                raise CheckpointError(f"{path.name} stores {name} as {stored}: {types}; take the original")
    if missing:
        file, name = min(missing)
        raise CheckpointError(
            f"{file} lacks {name}, which {_INDEX} lists ({len(missing)} tensors in all): is it complete?"
        )


def _check_rope(values: Mapping[str, Any]) -> None:
    """By the names of transformers 5 (`rope_parameters`) and 4 (`rope_scaling`, whose `type` is older)."""
    rope = values.get("rope_parameters") or values.get("rope_scaling") or {}
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in TRIED_ROPE:
        raise CheckpointError(
            f"rope_type is {kind!r}: the torch backend was tried with {', '.join(TRIED_ROPE)}; if shorter texts are"
            " enough and the model's card allows it, remove it from config.json"
        )


def _check_split(values: Mapping[str, Any], gpus: int) -> None:
    kind = values["model_type"]
    if kind in WHOLE:
        raise CheckpointError(f"a model of type {kind} is not split over GPUs: write tensorParallelSize: 1")
    heads = values.get("num_attention_heads") or 0
    counts = {
        "num_attention_heads": heads,
        "num_key_value_heads": values.get("num_key_value_heads") or heads,
        "intermediate_size": values.get("intermediate_size") or 0,
    }
    for name, count in counts.items():
        if count % gpus:
            fitting = [size for size in range(1, gpus) if not any(each % size for each in counts.values())]
            raise CheckpointError(
                f"{name} is {count}, which {gpus} GPUs do not divide equally: write tensorParallelSize: {fitting[-1]}"
            )


def memory(folder: Path, sequences: int, max_seq_len: int, gpus: int = 1, pass_tokens: int = PASS_TOKENS) -> Memory:
    """What the checkpoint takes with KV cache for so many sequences of so many tokens; 0: the model's own limit.

    Of each of `gpus` that it is split over, with passes of `pass_tokens`. Raises CheckpointError.
    """
    values = _read(folder)
    width = BYTES[dtype(values)]
    shapes = {name: shape for path in weights.files(folder) for name, (_, shape) in _tensors(path).items()}
    try:
        limit = values["max_position_embeddings"]
        token = bytes_per_token(values, width)
        logits = 4 * pass_tokens * values["vocab_size"]
    except KeyError as error:
        raise CheckpointError(f"{folder}/config.json lacks {error}: is it a checkpoint's?") from None
    return Memory(
        weights=width * _numbers(shapes, gpus),
        kv_cache=(sequences + 1) * min(max_seq_len or limit, limit) * token // gpus,  # one more: rows of padding
        overhead=_FIXED + logits * (_COPIES_OF_LOGITS + (gpus > 1)),  # of several GPUs they are gathered first
    )


def _numbers(shapes: Mapping[str, list[int]], gpus: int) -> int:
    """How many weights a GPU has: of matrices its part, but for the embeddings; a head that is tied to these, too."""
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    whole = sum(size for name, size in sizes.items() if len(shapes[name]) < 2 or _EMBEDDINGS in name)
    tied = not any(_HEAD in name for name in sizes)
    head = sum(size for name, size in sizes.items() if _EMBEDDINGS in name) if tied and gpus > 1 else 0
    return whole + -(-(sum(sizes.values()) - whole + head) // gpus)


def bytes_per_token(values: Mapping[str, Any], width: int) -> int:
    """Keys and values of a token, in bytes, by config.json's values and a number's bytes. Raises KeyError."""
    heads = values["num_attention_heads"]
    size = values.get("head_dim") or values["hidden_size"] // heads
    return int(2 * values["num_hidden_layers"] * (values.get("num_key_value_heads") or heads) * size * width)


def dtype(values: Mapping[str, Any]) -> str:
    """The type of config.json, as transformers 5 names it or 4."""
    return str(values.get("dtype") or values.get("torch_dtype") or DEFAULT_DTYPE)


def _read(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read the checkpoint in {folder}: {error}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} is no JSON object")
    return values


def _listed(folder: Path) -> set[tuple[str, str]]:
    """File and name of the tensors that the index lists; none where there is no index."""
    path = folder / _INDEX
    index = json.loads(path.read_text())["weight_map"] if path.exists() else {}
    return {(file, name) for name, file in index.items()}


def _tensors(path: Path) -> dict[str, tuple[str, list[int]]]:
    """Type and shape by the tensors' names, from the file's header."""
    try:
        with safetensors.safe_open(str(path), framework="numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
            return {name: (str(each.get_dtype()), list(each.get_shape())) for name, each in slices.items()}
    except (OSError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from None
