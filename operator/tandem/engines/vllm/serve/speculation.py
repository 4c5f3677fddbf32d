"""`speculative_config` to `speculation` and `draft`. Pure."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from tandem.api.decoding import DecodingType
from tandem.engines.vllm import names
from tandem.engines.vllm.arguments import METHODS
from tandem.engines.vllm.serve.command import ImportRefused
from tandem.engines.vllm.serve.parse import flag
from tandem.engines.vllm.serve.sheet import Sheet

_CONFIG = "speculative_config"
_TYPES = {method: kind for kind, method in METHODS.items()} | {"[ngram]": DecodingType.NGRAM}
_BY_NAME = (
    ("eagle-", "eagle"),
    ("eagle3", "eagle3"),
    ("dflash", "dflash"),
    ("dspark", "dspark"),
    ("medusa", "medusa"),
)
"""What vLLM takes a drafter for by its name, where no method is given (vllm/config/speculative.py)."""
_LOOKUP = ("prompt_lookup_max", "prompt_lookup_min")
_LOOKUP_DEFAULT = 5


def write(sheet: Sheet, config: Mapping[str, Any]) -> None:
    """Write all of `config`. Raises ImportRefused."""
    left = dict(config)
    method = _method(left)
    kind = _TYPES.get(method, DecodingType.CUSTOM)
    sheet.put("speculation.decodingType", str(kind))
    if (length := left.pop("num_speculative_tokens", None)) is not None:
        sheet.put("speculation.maxDraftLen", length)
    elif kind is not DecodingType.SUFFIX:
        sheet.note(_of("num_speculative_tokens"), "it is not given: speculation.maxDraftLen is 4")
    if kind is DecodingType.CUSTOM:
        sheet.put("speculation.custom.type", method)
    if kind is DecodingType.NGRAM:
        _lookup(sheet, left)
    _drafter(sheet, kind, method, left)
    _schedule(sheet, left)
    for name, value in left.items():
        _rest(sheet, kind, name, value)


def _method(left: dict[str, Any]) -> str:
    method, model = left.pop("method", None), str(left.get("model") or "")
    if method is None and model in ("ngram", "[ngram]"):
        method = "ngram"
    if method is None and not model:
        raise ImportRefused(f"{flag(_CONFIG)} has no method and no model: give its method")
    if method is None:
        method = next((kind for part, kind in _BY_NAME if part in model.lower()), "draft_model")
    return "mtp" if str(method).endswith("_mtp") else str(method)


def _lookup(sheet: Sheet, left: dict[str, Any]) -> None:
    """With vLLM's own defaults: one of both stands for the other."""
    longest, shortest = (left.pop(name, None) for name in _LOOKUP)
    longest, shortest = longest or shortest or _LOOKUP_DEFAULT, shortest or longest or _LOOKUP_DEFAULT
    block = {"maxMatchingNgramSize": longest, "isKeepAll": False, "isPublicPool": False}
    sheet.put("speculation.nGram", block)
    sheet.argument(f"{_CONFIG}.prompt_lookup_min", shortest)
    left.pop("model", None)


def _drafter(sheet: Sheet, kind: DecodingType, method: str, left: dict[str, Any]) -> None:
    model, revision = left.pop("model", None), left.pop("revision", None)
    size = left.pop("draft_tensor_parallel_size", None)
    if model is None:
        return
    if method == "custom_class":
        sheet.put("speculation.custom.args.model", model)
        return
    if kind in (DecodingType.MTP, DecodingType.SUFFIX):
        sheet.skip(_of("model"), f"decodingType {kind} takes no draft model")
        return
    medusa = kind is DecodingType.MEDUSA
    path = "speculation.medusa.heads" if medusa else "draft.model"
    sheet.model(path, str(model), _of("model"))
    if revision is not None:
        sheet.put(f"{path}.revision", str(revision))
    if medusa:
        return
    if kind is DecodingType.CUSTOM:
        sheet.put("speculation.custom.needsDraft", True)
    target = sheet.get("target.tensorParallelSize", 1)
    if (size or target) != 1:
        sheet.put("draft.tensorParallelSize", size or target)


def _schedule(sheet: Sheet, left: dict[str, Any]) -> None:
    """Ranges, first and last, each with its draft length: 0 above the last step."""
    name = "num_speculative_tokens_per_batch_size"
    ranges = left.pop(name, None)
    if ranges is None:
        return
    follow = all(later[0] == before[1] + 1 for before, later in pairwise(ranges))
    steps = [{"maxBatchSize": last, "draftLen": length} for _, last, length in ranges]
    if ranges[0][0] != 1 or not follow:
        sheet.skip(_of(name), "speculation.draftLenSchedule needs ranges from 1 on without gaps")
        return
    if not steps[-1]["draftLen"]:
        steps.pop()
    else:
        sheet.note(
            _of(name), "vLLM keeps the last length above the last range; speculation.draftLenSchedule ends there"
        )
    if steps:
        sheet.put("speculation.draftLenSchedule", steps)


def _rest(sheet: Sheet, kind: DecodingType, name: str, value: Any) -> None:
    if not sheet.any_argument and name not in names.speculation(sheet.minor):
        sheet.skip(_of(name), f"vLLM {sheet.minor} has no such field: remove it")
    elif kind is DecodingType.CUSTOM:
        sheet.put(f"speculation.custom.args.{name}", value)
    else:
        sheet.argument(f"{_CONFIG}.{name}", value)


def _of(name: str) -> str:
    return f"{flag(_CONFIG)}.{name}"
