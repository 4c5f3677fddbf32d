"""What vLLM cannot do, or calls otherwise; what its own dataclasses refuse, the dry run in the image shows."""

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tandem.api.conditions import SpecReason
from tandem.api.decoding import DecodingType
from tandem.api.roles import references
from tandem.api.types import DFlash, DSpark, Eagle3, ServiceSpec
from tandem.engines.request_parameters import SPECULATION
from tandem.engines.rule import EngineRule, Refusal
from tandem.engines.vllm import names
from tandem.engines.vllm.arguments import LORA_DIRS, METHODS, NOT_CUSTOM, conflict
from tandem.engines.vllm.versions import MINORS, is_known

if TYPE_CHECKING:
    from tandem.engines.vllm import Vllm

_OTHER_NAMES = {
    "max_seq_len": "max_model_len",
    "max_num_tokens": "max_num_batched_tokens",
    "max_batch_size": "serving.maxBatchSize",
    "kv_cache_config": "gpu_memory_utilization or kv_cache_memory_bytes",
    "lora_config": "lora_dirs, a list of folders, and max_loras and max_lora_rank",
    "lora_dir": "lora_dirs, a list of folders",
    "guided_decoding_backend": "structured_outputs_config",
}
"""TensorRT-LLM's names, and vLLM's."""


def _fields(spec: ServiceSpec, engine: "Vllm") -> Refusal | None:
    found = [f"{field}: {advice}" for field, advice in _problems(spec)]
    text = f"{engine.title} has no equivalent of {'; '.join(found)}"
    return Refusal(SpecReason.FIELD_NOT_IN_PROFILE, text) if found else None


def _problems(spec: ServiceSpec) -> Iterator[tuple[str, str]]:
    """Fields without an equivalent, each with what to write instead."""
    speculation, cache = spec.speculation, spec.target.kv_cache
    if spec.target.dtype == "fp8":
        yield "target.dtype fp8", "write dtype: auto, and runtime.extraLlmArgs.quantization: fp8"
    if cache and cache.max_tokens is not None:
        yield "target.kvCache.maxTokens", "write runtime.extraLlmArgs.kv_cache_memory_bytes (of each GPU)"
    if cache and cache.free_gpu_memory_fraction is not None:
        instead = "write runtime.extraLlmArgs.gpu_memory_utilization (of all of a GPU's memory, with the weights)"
        yield "target.kvCache.freeGpuMemoryFraction", instead
    if speculation.mtp and speculation.mtp.relaxed_acceptance:
        yield "speculation.mtp.relaxedAcceptance", "remove it"
    if speculation.suffix_automaton:
        yield "speculation.suffixAutomaton", "remove it, or write decodingType: Suffix"
    ngram = speculation.n_gram
    for name, wanted in {"isKeepAll": False, "isPublicPool": False, "isUseOldest": True}.items():
        if ngram and ngram.model_dump(by_alias=True)[name] is not wanted:
            why = "it drafts from the oldest place in the request's own text"
            yield f"speculation.nGram.{name} {str(not wanted).lower()}", f"{why}: write {str(wanted).lower()}"
    yield from _drafters(spec)


def _drafters(spec: ServiceSpec) -> Iterator[tuple[str, str]]:
    """Details of drafters, which vLLM reads from their config.json."""
    speculation = spec.speculation
    blocks = {
        "eagle3": (speculation.eagle3, Eagle3()),
        "dFlash": (speculation.d_flash, DFlash()),
        "dSpark": (speculation.d_spark, DSpark()),
    }
    for block, (written, default) in blocks.items():
        before = default.model_dump(by_alias=True)
        for name, value in written.model_dump(by_alias=True).items() if written else ():
            if value != before[name]:
                yield f"speculation.{block}.{name}", "remove it; the draft's config.json says what vLLM reads"
    if speculation.medusa and speculation.medusa.choices:
        yield "speculation.medusa.choices", "remove it; it drafts maxDraftLen tokens in a row"
    if speculation.decoding_type is DecodingType.MEDUSA and not (speculation.medusa and speculation.medusa.heads):
        yield "Medusa heads in the target's own folder", "write speculation.medusa.heads"


def _draft_size(spec: ServiceSpec, engine: "Vllm") -> Refusal | None:
    """A draft model's TP is the target's (v1/spec_decode/draft_model.py); that of heads may be 1."""
    if spec.draft is None:
        return None
    size, target = spec.draft.tensor_parallel_size, spec.target.tensor_parallel_size
    heads = spec.speculation.decoding_type is not DecodingType.DRAFT_TARGET
    allowed = sorted({1, target} if heads else {target})
    if size in allowed:
        return None
    how = "heads as the target, or not at all" if heads else "a draft model as the target"
    return Refusal(
        SpecReason.FIELD_NOT_IN_PROFILE,
        f"draft.tensorParallelSize is {size}, and {engine.title} splits {how}: write"
        f" {' or '.join(map(str, allowed))}",
    )


def _custom(spec: ServiceSpec, engine: "Vllm") -> Refusal | None:
    custom = spec.speculation.custom
    if custom is None:
        return None
    if kind := next((kind for kind, method in METHODS.items() if method == custom.type), None):
        text = f"speculation.custom.type must not be {custom.type}: write speculation.decodingType: {kind}"
        return Refusal(SpecReason.CUSTOM_TYPE_RESERVED, text)
    draft = {"model": "draft.model.uri"} if custom.type != "custom_class" else {}
    found = [
        f"speculation.custom.args.{name} is decided by {field}: remove it, and write {field} instead"
        for name, field in {**NOT_CUSTOM, **draft}.items()
        if name in custom.args
    ]
    return Refusal(SpecReason.CUSTOM_ARGS_CONFLICT, "; ".join(found)) if found else None


def _ascending(spec: ServiceSpec, engine: "Vllm") -> Refusal | None:
    sizes = [step.max_batch_size for step in spec.speculation.draft_len_schedule or ()]
    if sizes == sorted(set(sizes)):
        return None
    return Refusal(
        SpecReason.SCHEDULE_NOT_ASCENDING,
        f"speculation.draftLenSchedule has maxBatchSize {', '.join(map(str, sizes))}: write ascending ones",
    )


def _extra(spec: ServiceSpec, engine: "Vllm") -> Refusal | None:
    folders = {role: str(role) for role in references(spec)}  # where models lie decides nothing here
    message = conflict(spec, folders)
    return Refusal(SpecReason.EXTRA_LLM_ARGS_CONFLICT, message) if message else None


def _unknown(spec: ServiceSpec, engine: "Vllm") -> Refusal | None:
    """Of versions that came later the image knows the names."""
    extra, custom = spec.runtime.extra_llm_args, spec.speculation.custom
    nested = extra.get(SPECULATION)
    places: list[tuple[str, Any, Callable[[str], frozenset[str]]]] = [
        ("runtime.extraLlmArgs", extra, names.arguments),
        (f"runtime.extraLlmArgs.{SPECULATION}", nested, names.speculation),
        ("speculation.custom.args", custom and custom.args, names.speculation),
    ]
    found = [
        f"{place}.{name} is no argument of vLLM {engine.minor}: {_instead(name, of, engine.minor)}"
        for place, written, of in places
        for name in (written if isinstance(written, Mapping) else ())
        if name not in of(engine.minor) and not (written is extra and name == LORA_DIRS)
    ]
    known = is_known(engine.version)
    return Refusal(SpecReason.EXTRA_LLM_ARGS_UNKNOWN, "; ".join(found)) if found and known else None


def _instead(name: str, of: Callable[[str], frozenset[str]], minor: str) -> str:
    if versions := [each for each in MINORS if name in of(each)]:
        return f"it is in {versions[0]} to {versions[-1]}: remove it, or write another profile"
    close = difflib.get_close_matches(name, sorted(of(minor)), n=1, cutoff=0.75)
    if other := _OTHER_NAMES.get(name) or next(iter(close), ""):
        return f"write {other}"
    return "remove it"


def _lora(spec: ServiceSpec, engine: "Vllm") -> Refusal | None:
    """Folders as the image reads them: of a text it would take each letter for one."""
    folders = spec.runtime.extra_llm_args.get(LORA_DIRS, [])
    if isinstance(folders, list) and all(isinstance(each, str) and each.startswith("/") for each in folders):
        return None
    text = f"runtime.extraLlmArgs.{LORA_DIRS} must be a list of folders, such as [/adapters]"
    return Refusal(SpecReason.EXTRA_LLM_ARGS_UNKNOWN, f"{text}: mount them with podTemplate")


RULES: tuple[EngineRule, ...] = (_fields, _draft_size, _custom, _ascending, _extra, _unknown, _lora)
