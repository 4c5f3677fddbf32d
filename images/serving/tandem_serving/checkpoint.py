"""What a model folder says about itself: Hugging Face checkpoints and TensorRT-LLM engine folders."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
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


def language_model(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Values of config.json, those of `text_config` among them: models that read images too have their text model's
    there."""
    return _with(config, "text_config")


def drafter(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Values of the config.json of heads, those of their layers among them: the `speculators` library keeps them
    apart (speculators.models.eagle3.Eagle3SpeculatorConfig)."""
    return _with(language_model(config), "transformer_layer_config")


def _with(config: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    """`config` over what its `part` has; null says nothing."""
    inner = config.get(part)
    outer = {name: value for name, value in config.items() if value is not None}
    return {**inner, **outer} if isinstance(inner, dict) else config


def quantization(folder: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a checkpoint says of its quantization, `quant_method` among it; empty: it is not quantized.

    In config.json, or in the files that NVIDIA's ModelOpt and AutoGPTQ write next to it. Raises CheckpointError.
    """
    for name in ("quantization_config", "compression_config"):
        found = language_model(config).get(name)
        if isinstance(found, dict) and found:
            return {"quant_method": "compressed-tensors" if name == "compression_config" else "", **found}
    if (path := folder / "hf_quant_config.json").is_file():
        found = read_json(path).get("quantization")
        return {"quant_method": "modelopt", **(found if isinstance(found, dict) else {})}
    if (path := folder / "quantize_config.json").is_file():
        return {"quant_method": "gptq", **read_json(path)}
    return {}


def missing_code(folder: Path, config: Mapping[str, Any]) -> str:
    """The file by which transformers reads config.json where it trusts a checkpoint's code (`auto_map`); "" where it
    is in the folder, or not needed. Code of another repository (`org/name--file.Class`) is never there."""
    auto_map = config.get("auto_map")
    entry = auto_map.get("AutoConfig") if isinstance(auto_map, dict) else None
    if not isinstance(entry, str):
        return ""
    repository, _, name = entry.rpartition("--")
    file = f"{name.rpartition('.')[0]}.py"
    return "" if not repository and (folder / file).is_file() else file


def read_limits(folder: Path) -> ModelLimits:
    """Limits from config.json: Hugging Face's keys, or `build_config` of a built engine.

    An engine takes no more than `max_num_tokens` at once (trtGptModel.h, maxInputLen), and each step of the BLS
    brings the whole text so far. It keeps `max_draft_len` of its sequence length for draft tokens, and answers what
    goes beyond with fewer tokens than were asked for, which reads as the end of the text (llmRequest.cpp, validate).
    """
    path = folder / "config.json"
    config = language_model(read_json(path))
    build, pretrained = config.get("build_config"), config.get("pretrained_config")
    own = longest_sequence(config)
    length = _longest(build) if isinstance(build, dict) else own
    vocab = pretrained.get("vocab_size") if isinstance(pretrained, dict) else config.get("vocab_size")
    for name, value in (("maximum sequence length", length), ("vocab_size", vocab)):
        if not isinstance(value, int) or value <= 0:
            raise CheckpointError(f"{path} states no {name}: is it a checkpoint or engine folder?")
    return ModelLimits(int(length or 0), int(vocab or 0))


def longest_sequence(config: Mapping[str, Any]) -> Any:
    """What config.json says of the longest sequence; None where it says nothing."""
    return next((value for name in _LENGTHS if (value := config.get(name))), None)


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


@dataclass(frozen=True)
class EndIds:
    """Tokens that end a text, by what says so: `named` is tokenizer_config.json's `eos_token`; `listed` are those of
    generation_config.json, or else of config.json, as transformers takes them; `also` are config.json's beside these,
    where they are special tokens: a number that was left over from another vocabulary is none."""

    named: tuple[int, ...] = ()
    listed: tuple[int, ...] = ()
    also: tuple[int, ...] = ()

    @property
    def all(self) -> list[int]:
        """Each of them ends a text. The first is the tokenizer's, which most often ends a chat's turn."""
        return list(dict.fromkeys((*self.named, *self.listed, *self.also)))

    @property
    def differ(self) -> bool:
        """Whether the files say different things."""
        return bool(self.named and self.listed) and not set(self.named) <= set(self.listed)


def end_ids(folders: Iterable[Path], id_of: Callable[[str], int | None], special: Callable[[int], bool]) -> EndIds:
    """Of a model's folder and its tokenizer's. `id_of`: a token's id; `special`: whether a token has no text."""
    folders = list(dict.fromkeys(folders))
    config = [token for folder in folders for token in _eos(folder / "config.json")]
    listed = [token for folder in folders for token in _eos(folder / "generation_config.json")] or config
    names = (_eos_name(folder / "tokenizer_config.json") for folder in folders)
    named = [token for name in names if name and (token := id_of(name)) is not None]
    return EndIds(tuple(named), tuple(listed), tuple(token for token in config if special(token)))


def _eos(path: Path) -> list[int]:
    value = language_model(read_json(path)).get("eos_token_id") if path.exists() else None
    values: list[Any] = value if isinstance(value, list) else [value]
    return values if all(isinstance(each, int) and each >= 0 for each in values) else []


def _eos_name(path: Path) -> str:
    token = read_json(path).get("eos_token") if path.exists() else None
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else ""
