"""Checks of a revision's models, made in the pod's own image: do they load, do target and draft fit?

Gives a verdict in the form of conditions, at most 4 KiB (a container's termination message).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import tokenizers

from tandem_serving import checkpoint
from tandem_serving.checkpoint import CheckpointError, ModelLimits
from tandem_serving.prepare import agreement, cached, hub_cache
from tandem_serving.prepare.checkpoint_check import check_checkpoints
from tandem_serving.prepare.drafter_check import MTP, check_heads, check_model, check_mtp, method
from tandem_serving.prepare.engine_check import check_engines
from tandem_serving.prepare.llm_args_check import check_llm_args, read_arguments
from tandem_serving.prepare.verdict import CheckResult, bounded

_EMBEDDINGS = "model.embed_tokens.weight"
_SAMPLES = (
    "def add(a, b):\n    return a + b  # 12345.678\n\n\t",
    "It's 2026-01-31; prices rose 1,234.56%, “they're” said: naïve Straße, Ελλάδα, 数据库, مرحبا 🙂\r\n  x",
)
"""Texts that show whether two tokenizers split text in the same way: code, numbers, contractions, scripts, spaces."""


@dataclass(frozen=True)
class CheckedModel:
    """A model that loads: its limits, its tokenizer.json and how it writes a chat."""

    role: str
    limits: ModelLimits
    tokenizer: Mapping[str, Any]
    chat_template: Any
    samples: Sequence[Sequence[int]]
    """Token ids of _SAMPLES."""
    warnings: Sequence[str] = ()
    """Where its files differ."""


def verdict(plan: Mapping[str, Any], revision: Path) -> dict[str, list[dict[str, str]]]:
    """Run the checks on launch.json's `preflight` part. Never raises for what is wrong with the models.

    `revision`: folder of launch.json, and of the files that it names.
    """
    try:
        models = {role: load(role, plan[role]) for role in ("target", "draft") if plan.get(role)}
        ready = CheckResult("ModelsReady", "True", "ModelsLoad", _describe(models.values()))
        pair = _pair(plan, revision, models)
    except CheckpointError as error:
        reason = "ModelGone" if isinstance(error, cached.Gone) else "ModelInvalid"
        ready = CheckResult("ModelsReady", "False", reason, str(error))
        pair = CheckResult("PairCompatible", "Unknown", "ModelsNotReady", "waits for models that load")
    return {"checks": [bounded(check) for check in (ready, *_engines(plan, revision, ready), pair)]}


def _pair(plan: Mapping[str, Any], revision: Path, models: Mapping[str, CheckedModel]) -> CheckResult:
    """Whether what drafts fits the target. Raises CheckpointError."""
    target = Path(plan["target"]["path"])
    speculative = read_arguments(plan, revision).get("speculative_config") or {}
    if heads := plan.get("heads"):
        return check_heads(target, models["target"].limits, Path(heads["path"]), speculative)
    if method(speculative) in MTP:
        return check_mtp(target)
    if speculative.get("use_heterogeneous_vocab"):
        text = "the engine translates between their vocabularies (use_heterogeneous_vocab)"
        return CheckResult("PairCompatible", "True", "PairMatches", text)
    return check_pair(models, plan)


def _engines(plan: Mapping[str, Any], revision: Path, models: CheckResult) -> list[CheckResult]:
    """The checks of what runs the models, where there are any: the first that does not pass, else the last."""
    possible: dict[str, Callable[[], CheckResult]] = {
        "engines": lambda: check_engines(plan),
        "engine_check": lambda: check_checkpoints(plan),
        "llm_args": lambda: check_llm_args(plan, revision),
    }
    wanted = [check for part, check in possible.items() if plan.get(part)]
    if wanted and models.status != "True":
        return [CheckResult("EnginesReady", "Unknown", "ModelsNotReady", "waits for models that load")]
    made: list[CheckResult] = []
    for check in wanted:
        made = [check()]
        if made[0].status != "True":
            break
    return made


def load(role: str, places: Mapping[str, str]) -> CheckedModel:
    """Read what a model's folder (`path`) says and check that its weights are whole, and its tokenizer's folder
    (`tokenizer`) where that is another. Raises CheckpointError."""
    folder = Path(places["path"])
    tokenizer = Path(places.get("tokenizer", folder))
    _check_places(role, folder, tokenizer)
    limits = checkpoint.read_limits(folder)
    dtype = _check_weights(role, folder, limits)
    path = tokenizer / "tokenizer.json"
    if not path.is_file():
        advice = f"write {role}.model.tokenizer, the uri of a folder that has one"
        raise CheckpointError(f"{role}: {path} is missing: {advice}")
    data = checkpoint.read_json(path)
    chat_template = _chat_template(tokenizer)
    loaded = _tokenizer(role, path)
    found = agreement.Checkpoint(folder, tokenizer, loaded, limits, dtype)
    size = _tokens_needed(loaded, found.ends.all, str(chat_template))
    if size > limits.vocab_size:
        raise CheckpointError(
            f"{role}: the tokenizer has {size} tokens, the model's vocabulary only {limits.vocab_size}: "
            "use the tokenizer that came with the model"
        )
    if role == "target" and tokenizer != folder and not agreement.end_ids([tokenizer], loaded).all:
        raise CheckpointError(
            f"{role}: {tokenizer} names no token that ends a text, so that no answer would end: add its"
            " generation_config.json, or tokenizer_config.json with eos_token"
        )
    samples = [loaded.encode(text, add_special_tokens=False).ids for text in _SAMPLES]
    warnings = agreement.differences(found) if role == "target" else []
    return CheckedModel(role, limits, data, chat_template, samples, warnings)


def _check_places(role: str, folder: Path, tokenizer: Path) -> None:
    """Folders that are there, and the model's own rather than one around it. Raises CheckpointError."""
    for each in {folder, tokenizer}:
        cached.check(each)
    if not folder.is_dir():
        raise CheckpointError(f"{role}: the folder {folder} is missing: check the model's uri and its download")
    for each in {folder, tokenizer} if tokenizer.is_dir() else {folder}:
        hub_cache.check(role, each)


def _tokenizer(role: str, path: Path) -> tokenizers.Tokenizer:
    """Loaded. The library raises nothing narrower than Exception, which the future holds."""
    with ThreadPoolExecutor(1) as threads:
        loaded = threads.submit(tokenizers.Tokenizer.from_file, str(path))
    if (error := loaded.exception()) is not None:
        raise CheckpointError(f"{role}: {path} is no tokenizer ({error}): download it again")
    return loaded.result()


def _tokens_needed(tokenizer: tokenizers.Tokenizer, end_ids: Collection[int], chat_template: str) -> int:
    """Rows that the embedding must have. None for special tokens that neither begin nor end a text nor are in chats:
    Gemma 3 1B has the tokenizer of its larger siblings, with a placeholder for images. Who sends one is refused."""
    needed = {*tokenizer.encode("").ids, *end_ids}
    added = tokenizer.get_added_tokens_decoder().items()
    unused = {id_ for id_, token in added if token.special and token.content not in chat_template} - needed
    ids = tokenizer.get_vocab(with_added_tokens=True).values()
    most: int = tokenizer.get_vocab_size(with_added_tokens=True)
    return min(most, 1 + max(set(ids) - unused, default=-1))


def _check_weights(role: str, folder: Path, limits: ModelLimits) -> str:
    """Every weight file is there and whole, and the embedding has the vocabulary's rows; returns its dtype, "" where
    none is seen."""
    if "build_config" in checkpoint.read_json(folder / "config.json"):
        if not (folder / "rank0.engine").is_file():
            raise CheckpointError(f"{role}: {folder}/rank0.engine is missing: build the engine again")
        return ""
    check_model(role, folder)
    dtype = ""
    for path in _weight_files(role, folder):
        rows, dtype = _embedding(role, path) or (limits.vocab_size, dtype)
        if rows != limits.vocab_size:
            raise CheckpointError(
                f"{role}: {path} has {rows} embedding rows and config.json a vocabulary of "
                f"{limits.vocab_size}: download the model again, from one revision"
            )
    return dtype


def _embedding(role: str, path: Path) -> tuple[int, str] | None:
    """Rows and dtype of the embedding, None where the file, which is whole, has none. Raises CheckpointError."""
    try:
        with safetensors.safe_open(str(path), framework="numpy") as weights:
            if _EMBEDDINGS not in set(weights.keys()):
                return None
            embedding = weights.get_slice(_EMBEDDINGS)
            return int(embedding.get_shape()[0]), str(embedding.get_dtype())
    except (safetensors.SafetensorError, OSError) as error:
        raise CheckpointError(f"{role}: {path} cannot be read ({error}): download it again") from None


def _weight_files(role: str, folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        paths = [folder / "model.safetensors"]
    else:
        files = checkpoint.read_json(index).get("weight_map")
        if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
            raise CheckpointError(f"{role}: {index} lists no files of weights: download it again")
        paths = [folder / name for name in sorted(set(files.values()))]
    missing = [path.name for path in paths if not path.is_file()]
    if missing or not paths:
        raise CheckpointError(f"{role}: {folder} lacks {', '.join(missing) or 'weights'}: download it again")
    return paths


def check_pair(models: Mapping[str, CheckedModel], plan: Mapping[str, Any]) -> CheckResult:
    """Whether draft tokens mean the same to the target."""
    target, draft, max_draft_len = models.get("target"), models.get("draft"), int(plan.get("max_draft_len") or 0)
    if target is None or draft is None:
        return CheckResult("PairCompatible", "True", "NoDraft", "the service has no draft model")
    if difference := tokenizer_difference(target.tokenizer, draft.tokenizer):
        rows = "" if target.limits.vocab_size == draft.limits.vocab_size else f"{_rows(target, draft)}, and "
        return _incompatible("TokenizerDiffers", rows + difference)
    if target.limits.vocab_size != draft.limits.vocab_size and (why := _needs_equal_rows(plan)):
        most = max(target.limits.vocab_size, draft.limits.vocab_size)
        advice = (
            f"{_rows(target, draft)}, though their tokenizers are equal: {why}, or fill up the smaller one to {most}"
            f" rows (transformers' resize_token_embeddings({most}))"
        )
        return CheckResult("PairCompatible", "False", "VocabularyDiffers", advice)
    context = min(target.limits.max_sequence_len, draft.limits.max_sequence_len)
    if max_draft_len + 1 >= context:
        return CheckResult(
            "PairCompatible",
            "False",
            "DraftLengthTooLong",
            f"maxDraftLen is {max_draft_len} and the shorter context {context} tokens: lower maxDraftLen",
        )
    padded = target.limits.vocab_size != draft.limits.vocab_size
    equal = "tokenizers are equal" + (f" ({_rows(target, draft)}: padding, which no token has)" if padded else "")
    return CheckResult("PairCompatible", "True", "PairMatches", "; ".join([equal, *_warnings(target, draft)]))


def _rows(target: CheckedModel, draft: CheckedModel) -> str:
    return f"target has {target.limits.vocab_size} vocabulary rows, draft {draft.limits.vocab_size}"


def _needs_equal_rows(plan: Mapping[str, Any]) -> str:
    """What to write where other rows after one vocabulary matter (padding, as Qwen2.5 of 0.5B and 72B have it): where
    more than ids goes from draft to target. "": they do not."""
    if plan.get("llm_args"):
        return "mode LLMAPI is known to run equal ones alone: write runtime.mode: BLS, where only ids are handed over"
    if plan.get("compares_logits"):
        return "acceptance.method Logits compares them row by row: write TokenMatch"
    return ""


def _incompatible(reason: str, what: str) -> CheckResult:
    advice = "choose a draft model of the target's own family: both must have the same tokenizer"
    return CheckResult("PairCompatible", "False", reason, f"{what}; {advice}")


def tokenizer_difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """Where the ids of two tokenizer.json mean different tokens, target's first; "" when they do not.

    How a text is split into them is the target's tokenizer's business alone: the draft gets ids.
    """
    vocabulary, other = _vocabulary(a), _vocabulary(b)
    different = {token for token in vocabulary.keys() | other.keys() if vocabulary.get(token) != other.get(token)}
    if different:
        example = min(different)
        return (
            f"{len(different)} tokens differ, e.g. {example!r}: id {vocabulary.get(example)} in the target, "
            f"{other.get(example)} in the draft"
        )
    if _special(a) != _special(b):
        return f"special tokens differ: {sorted(_special(a) ^ _special(b))}"
    return "the vocabularies are equal but the merges differ" if _merges(a) != _merges(b) else ""


def _vocabulary(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    vocabulary = tokenizer.get("model", {}).get("vocab", {})
    if isinstance(vocabulary, list):  # a unigram model: [token, score] by id
        vocabulary = {entry[0]: i for i, entry in enumerate(vocabulary)}
    return {**vocabulary, **{token["content"]: token["id"] for token in tokenizer.get("added_tokens", [])}}


def _special(tokenizer: Mapping[str, Any]) -> set[str]:
    return {token["content"] for token in tokenizer.get("added_tokens", []) if token.get("special")}


def _merges(tokenizer: Mapping[str, Any]) -> list[list[str]]:
    """Merges as pairs: files write them as "a b" or as ["a", "b"]."""
    merges = tokenizer.get("model", {}).get("merges") or []
    return [merge.split(" ") if isinstance(merge, str) else list(merge) for merge in merges]


def _warnings(target: CheckedModel, draft: CheckedModel) -> list[str]:
    warnings = []
    if target.samples != draft.samples:
        warnings.append(
            "warning: they split text differently (normalizer or pre_tokenizer of tokenizer.json); the target's way"
            " counts, and the draft may be right less often"
        )
    if draft.limits.max_sequence_len < target.limits.max_sequence_len:
        warnings.append(
            f"warning: the draft's context is {draft.limits.max_sequence_len} tokens, the target's "
            f"{target.limits.max_sequence_len}: longer sequences go on without speculation"
        )
    if target.chat_template != draft.chat_template:
        warnings.append("warning: the chat templates differ; the target's is the one that counts")
    return warnings


def _chat_template(folder: Path) -> Any:
    path, config = folder / "chat_template.jinja", folder / "tokenizer_config.json"
    if path.exists():
        return path.read_text(encoding="utf-8")
    return checkpoint.read_json(config).get("chat_template") if config.exists() else None


def _describe(models: Collection[CheckedModel]) -> str:
    texts = [
        f"{model.role}: vocabulary {model.limits.vocab_size}, context {model.limits.max_sequence_len}"
        for model in models
    ]
    return "; ".join([*texts, *(warning for model in models for warning in model.warnings)])
