"""What a model folder says about itself: Hugging Face checkpoints and TensorRT-LLM engine folders."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_LENGTHS = ("max_position_embeddings", "n_positions", "seq_length")
"""Hugging Face's names of the longest sequence: of most models, of GPT-2's kin, of BLOOM."""


class CheckpointError(Exception):
    """A model folder that cannot be read; the message says which file and why."""


@dataclass(frozen=True)
class ModelLimits:
    """`max_sequence_len` tokens (prompt and output together) and `vocab_size` rows of the embedding."""

    max_sequence_len: int
    vocab_size: int

    def at_most(self, tokens: int) -> ModelLimits:
        """With sequences of so many tokens at most; 0: no further limit."""
        return replace(self, max_sequence_len=min(self.max_sequence_len, tokens or self.max_sequence_len))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises CheckpointError."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing: check the model's path or download it again") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}): download it again") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is no JSON object: download it again")
    return value


def read_limits(folder: Path) -> ModelLimits:
    """Limits from config.json: Hugging Face's keys, or `build_config` of a built engine.

    An engine takes no more than `max_num_tokens` at once (trtGptModel.h, maxInputLen), and each step of the BLS
    brings the whole text so far. It keeps `max_draft_len` of its sequence length for draft tokens, and answers what
    goes beyond with fewer tokens than were asked for, which reads as the end of the text (llmRequest.cpp, validate).
    Models that read images too have the keys of their text model in `text_config`.
    """
    path = folder / "config.json"
    config = read_json(path)
    if isinstance(text := config.get("text_config"), dict):
        config = {**text, **config}
    build, pretrained = config.get("build_config"), config.get("pretrained_config")
    own = next((value for name in _LENGTHS if (value := config.get(name))), None)
    length = _longest(build) if isinstance(build, dict) else own
    vocab = pretrained.get("vocab_size") if isinstance(pretrained, dict) else config.get("vocab_size")
    for name, value in (("maximum sequence length", length), ("vocab_size", vocab)):
        if not isinstance(value, int) or value <= 0:
            raise CheckpointError(f"{path} states no {name}: is it a checkpoint or engine folder?")
    return ModelLimits(int(length or 0), int(vocab or 0))


def max_num_tokens(folder: Path) -> int | None:
    """Tokens that an engine takes into one step; None for a checkpoint. Raises CheckpointError."""
    build = read_json(folder / "config.json").get("build_config")
    tokens = build.get("max_num_tokens") if isinstance(build, dict) else None
    return tokens if isinstance(tokens, int) and tokens > 0 else None


def _longest(build: Mapping[str, Any]) -> Any:
    length, tokens = build.get("max_seq_len"), build.get("max_num_tokens")
    if isinstance(length, int):
        length -= build.get("max_draft_len") or 0
    return min(length, tokens) if isinstance(length, int) and isinstance(tokens, int) else length


def weight_files(folder: Path) -> list[Path]:
    """The files of weights that TensorRT-LLM's LLM API reads: those of the first kind that the folder has.

    Of safetensors not the same weights once more in the publisher's format, as Mistral's folders have them, unless
    there are no others (_torch/models/checkpoints/hf/weight_loader.py).
    """
    kinds = (sorted(folder.glob(pattern)) for pattern in ("*.safetensors", "*.bin", "*.pth"))
    files = next(filter(None, kinds), [])
    once = [path for path in files if not (path.suffix == ".safetensors" and "consolidated" in path.name)]
    return once or files


def end_ids(folder: Path) -> list[int]:
    """End-of-text token ids, as generation_config.json (or else config.json) lists them."""
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        value = read_json(path).get("eos_token_id") if path.exists() else None
        if isinstance(value, int):
            return [value]
        if isinstance(value, list) and all(isinstance(item, int) for item in value):
            return value
    return []
