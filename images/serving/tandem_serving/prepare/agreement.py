"""Facts that several files of a checkpoint state: where they differ, a warning says which of them counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from tandem_serving import checkpoint
from tandem_serving.checkpoint import EndIds, ModelLimits

DTYPES = {"float16": "F16", "bfloat16": "BF16", "float32": "F32"}
"""config.json's names to those of safetensors."""
UNLIMITED = 1 << 30
"""transformers writes 10^30 as the longest text of a tokenizer that has no limit."""


@dataclass(frozen=True)
class Checkpoint:
    """A model's folder, its tokenizer's, and what was read of them. `dtype`: of the embedding; "": not known."""

    folder: Path
    tokenizer_folder: Path
    tokenizer: tokenizers.Tokenizer
    limits: ModelLimits
    dtype: str = ""

    @property
    def ends(self) -> EndIds:
        """What ends a text."""
        return end_ids((self.tokenizer_folder, self.folder), self.tokenizer)


def end_ids(folders: Iterable[Path], tokenizer: tokenizers.Tokenizer) -> EndIds:
    """As the servers find them."""
    return checkpoint.end_ids(folders, tokenizer.token_to_id, lambda token: not tokenizer.decode([token]))


def differences(found: Checkpoint) -> list[str]:
    """Warnings. Raises CheckpointError."""
    config = checkpoint.language_model(checkpoint.read_json(found.folder / "config.json"))
    path = found.tokenizer_folder / "tokenizer_config.json"
    tokenizer = checkpoint.read_json(path) if path.is_file() else {}
    warnings = (*_ends(found), *_begin(found, config), *_length(found, tokenizer), *_template(found, tokenizer))
    return [f"warning: {each}" for each in (*warnings, *_dtype(found, config))]


def _ends(found: Checkpoint) -> Iterator[str]:
    if (ends := found.ends).differ:
        name = "generation_config.json"
        name = name if any((f / name).is_file() for f in (found.folder, found.tokenizer_folder)) else "config.json"
        listed, named = (_names(found, ids) for ids in (ends.listed, ends.named))
        yield f"{name} ends texts at {listed}, tokenizer_config.json at {named}: each of them ends a text here"


def _names(found: Checkpoint, ids: Iterable[int]) -> str:
    return ", ".join(f"{found.tokenizer.id_to_token(token)} ({token})" for token in ids)


def _begin(found: Checkpoint, config: Mapping[str, Any]) -> Iterator[str]:
    begin, first = config.get("bos_token_id"), found.tokenizer.encode("").ids[:1]
    if isinstance(begin, int) and first and first != [begin]:
        yield f"config.json begins texts with token {begin}, the tokenizer with {first[0]}: the tokenizer's counts"


def _length(found: Checkpoint, tokenizer: Mapping[str, Any]) -> Iterator[str]:
    length, context = tokenizer.get("model_max_length"), found.limits.max_sequence_len
    if isinstance(length, int) and length < min(context, UNLIMITED):
        yield (
            f"tokenizer_config.json has model_max_length {length}, the model a context of {context} tokens: requests"
            f" of up to {context} are served"
        )


def _template(found: Checkpoint, tokenizer: Mapping[str, Any]) -> Iterator[str]:
    path, other = found.tokenizer_folder / "chat_template.jinja", tokenizer.get("chat_template")
    if isinstance(other, str) and path.is_file() and path.read_text(encoding="utf-8").strip() != other.strip():
        yield "chat_template.jinja and tokenizer_config.json have different chat templates: the first one counts"


def _dtype(found: Checkpoint, config: Mapping[str, Any]) -> Iterator[str]:
    stated = config.get("dtype") or config.get("torch_dtype")
    if found.dtype and stated in DTYPES and DTYPES[stated] != found.dtype:
        yield f"config.json says dtype {stated}, the embedding is {found.dtype}: dtype auto goes by config.json"
