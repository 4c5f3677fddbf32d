"""Mode LLMAPI: what TensorRT-LLM's LLM API cannot do, or does otherwise than one might think.

Pairs of features are from upstream's feature combination matrix
(https://nvidia.github.io/TensorRT-LLM/features/feature-combination-matrix.html).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tandem.api.conditions import SpecReason
from tandem.api.decoding import DecodingType, Mode, listed
from tandem.api.roles import references
from tandem.api.types import ServiceSpec
from tandem.engines.rule import EngineRule, EngineWarn, Refusal
from tandem.engines.tensorrt_llm.arguments import NOT_CUSTOM, conflict, decided, not_in_dialect
from tandem.engines.tensorrt_llm.known_bad_table import THRESHOLDS

if TYPE_CHECKING:
    from tandem.engines.tensorrt_llm import LlmApi


def _speculates(spec: ServiceSpec) -> bool:
    return spec.speculation.decoding_type is not DecodingType.NONE


def _speculative_args(spec: ServiceSpec) -> Mapping[str, Any]:
    """What the user passes on to `speculative_config`."""
    extra = spec.runtime.extra_llm_args.get("speculative_config")
    custom = spec.speculation.custom.args if spec.speculation.custom else {}
    return {**custom, **(extra if isinstance(extra, dict) else {})}


def _above_one(value: object) -> bool:
    return isinstance(value, int | float) and value > 1


def _dtype(spec: ServiceSpec, engine: "LlmApi") -> Refusal | None:
    if spec.target.dtype != "fp8":
        return None
    return Refusal(
        SpecReason.DTYPE_NOT_IN_MODE,
        "mode LLMAPI does not quantize: write target.dtype: auto and a checkpoint in FP8"
        " (its hf_quant_config.json says so)",
    )


def _draft_size(spec: ServiceSpec, engine: "LlmApi") -> Refusal | None:
    if spec.draft is None or spec.draft.tensor_parallel_size == 1:
        return None
    return Refusal(
        SpecReason.FIELD_NOT_IN_PROFILE,
        f"draft.tensorParallelSize is {spec.draft.tensor_parallel_size}, and mode LLMAPI of profile"
        f" {engine.profile.name!r} splits the draft as the target: remove it, or write runtime.mode: BLS",
    )


def _custom_type(spec: ServiceSpec, engine: "LlmApi") -> Refusal | None:
    name = spec.speculation.custom.type if spec.speculation.custom else ""
    if kind := DecodingType.of_upstream(name):
        advice = f"write speculation.decodingType: {kind}"
        if Mode.LLMAPI not in kind.traits.modes or kind not in engine.decoding_types:
            advice = f"it lives in TensorRT engines: {advice} and runtime.mode: BLS"
    elif name == "AUTO":
        advice = "it lets the engine choose and ignore this resource: write the decodingType that you need"
    else:
        return None
    return Refusal(SpecReason.CUSTOM_TYPE_RESERVED, f"speculation.custom.type must not be {name}: {advice}")


def _custom_args(spec: ServiceSpec, engine: "LlmApi") -> Refusal | None:
    args = spec.speculation.custom.args if spec.speculation.custom else {}
    fields = dict(NOT_CUSTOM)
    if spec.speculation.suffix_automaton:
        fields["sa_config"] = "speculation.suffixAutomaton"
    found = [
        f"speculation.custom.args.{name} is decided by {field}: remove it, and write {field} instead"
        for name, field in fields.items()
        if name in args
    ]
    return Refusal(SpecReason.CUSTOM_ARGS_CONFLICT, "; ".join(found)) if found else None


def _pipeline_parallel(spec: ServiceSpec, engine: "LlmApi") -> Refusal | None:
    if not _speculates(spec) or spec.target.pipeline_parallel_size == 1:
        return None
    return Refusal(
        SpecReason.PIPELINE_PARALLEL_WITH_SPECULATION,
        f"target.pipelineParallelSize is {spec.target.pipeline_parallel_size}, and {engine.title} does not"
        " speculate over pipeline stages: write pipelineParallelSize: 1 and a larger tensorParallelSize,"
        " or speculation.decodingType: None",
    )


def _features(spec: ServiceSpec, engine: "LlmApi") -> Refusal | None:
    """Features in `extraLlmArgs` that exclude speculation."""
    if not _speculates(spec):
        return None
    extra = spec.runtime.extra_llm_args
    found = {
        "max_beam_width": _above_one(extra.get("max_beam_width")),
        "context_parallel_size": _above_one(extra.get("context_parallel_size")),
        "sampler_type": extra.get("sampler_type") == "TRTLLMSampler",
    }
    messages = [
        f"runtime.extraLlmArgs.{name} is {extra[name]}, which {engine.title} cannot combine with speculation: remove"
        " it, or write speculation.decodingType: None"
        for name, excluded in found.items()
        if excluded
    ]
    return Refusal(SpecReason.FEATURE_WITH_SPECULATION, "; ".join(messages)) if messages else None


def _rejection_sampling(spec: ServiceSpec, engine: "LlmApi") -> Refusal | None:
    guided = spec.runtime.extra_llm_args.get("guided_decoding_backend")
    if not guided or not _speculative_args(spec).get("use_rejection_sampling"):
        return None
    return Refusal(
        SpecReason.GUIDED_DECODING_WITH_REJECTION_SAMPLING,
        "use_rejection_sampling cannot be combined with guided decoding: remove it, or"
        " runtime.extraLlmArgs.guided_decoding_backend",
    )


def _eagle3(spec: ServiceSpec, engine: "LlmApi") -> Refusal | None:
    """What only one dialect has, and the size of a tree."""
    details = spec.speculation.eagle3
    if details is None:
        return None
    if not details.one_model and not engine.dialect.facts.two_model_eagle3:
        return Refusal(
            SpecReason.TWO_MODELS_NOT_IN_PROFILE,
            f"speculation.eagle3.oneModel false needs TensorRT-LLM 1.2, and profile {engine.profile.name!r} has a"
            " newer one: remove it, or write another profile",
        )
    width = details.dynamic_tree_max_top_k
    if width and not engine.dialect.facts.dynamic_tree:
        return Refusal(
            SpecReason.DYNAMIC_TREE_NOT_IN_PROFILE,
            f"speculation.eagle3.dynamicTreeMaxTopK needs TensorRT-LLM 1.3, and profile {engine.profile.name!r} has"
            " 1.2: remove it, or write another profile",
        )
    least = spec.speculation.max_draft_len
    if width and details.max_total_draft_tokens and not least <= details.max_total_draft_tokens <= width * least:
        return Refusal(
            SpecReason.DYNAMIC_TREE_SIZE_INVALID,
            f"speculation.eagle3.maxTotalDraftTokens is {details.max_total_draft_tokens}: write maxDraftLen ({least})"
            f" to maxDraftLen x dynamicTreeMaxTopK ({width * least}), or remove it",
        )
    return None


def _schedule(spec: ServiceSpec, engine: "LlmApi") -> Refusal | None:
    steps = spec.speculation.draft_len_schedule
    if steps is None:
        return None
    sizes = [step.max_batch_size for step in steps]
    if sizes != sorted(set(sizes)):
        return Refusal(
            SpecReason.SCHEDULE_NOT_ASCENDING,
            f"speculation.draftLenSchedule has maxBatchSize {', '.join(map(str, sizes))}: write ascending ones",
        )
    if steps[0].draft_len != spec.speculation.max_draft_len:
        return Refusal(
            SpecReason.SCHEDULE_START_MISMATCH,
            f"the first step of speculation.draftLenSchedule drafts {steps[0].draft_len} and maxDraftLen is"
            f" {spec.speculation.max_draft_len}: {engine.title} requires equal numbers: write the same in both",
        )
    kind = spec.speculation.decoding_type
    if kind in engine.dialect.facts.fixed_draft_len:
        return Refusal(
            SpecReason.SCHEDULE_NOT_IN_PROFILE,
            f"profile {engine.profile.name!r} has TensorRT-LLM {engine.dialect}, whose {kind} has a fixed draft"
            " length: remove speculation.draftLenSchedule, or write another profile",
        )
    return None


def _dialect(spec: ServiceSpec, engine: "LlmApi") -> Refusal | None:
    if (field := not_in_dialect(spec, engine.dialect)) is None:
        return None
    return Refusal(
        SpecReason.FIELD_NOT_IN_PROFILE,
        f"{field}: TensorRT-LLM {engine.dialect} of profile {engine.profile.name!r} does not have it, or not that"
        " value: remove it, or write another profile",
    )


def _extra(spec: ServiceSpec, engine: "LlmApi") -> Refusal | None:
    folders = {role: str(role) for role in references(spec)}  # where models lie decides nothing here
    message = conflict(decided(spec, engine.dialect, folders), spec.runtime.extra_llm_args)
    return Refusal(SpecReason.EXTRA_LLM_ARGS_CONFLICT, message) if message else None


def _warn_schedule(spec: ServiceSpec, engine: "LlmApi") -> str | None:
    kind = spec.speculation.decoding_type
    if spec.speculation.draft_len_schedule is None or engine.follows_schedule(kind):
        return None
    following = [each for each in DecodingType if engine.follows_schedule(each)]
    return (
        f"speculation.draftLenSchedule: TensorRT-LLM {engine.dialect} follows it for {listed(following, 'and')}; with"
        f" {kind} it may draft another length, such as maxDraftLen at every load"
    )


def _warn_oldest(spec: ServiceSpec, engine: "LlmApi") -> str | None:
    details = spec.speculation.n_gram
    if details is None or details.is_keep_all or not details.is_use_oldest:
        return None
    return (
        "speculation.nGram.isUseOldest has no effect with isKeepAll: false, which keeps one continuation of an"
        " n-gram: write isKeepAll: true, or isUseOldest: false"
    )


def switches_off(spec: ServiceSpec) -> str:
    """Name of the argument by which TensorRT-LLM stops drafting for good; empty where none is written."""
    return min(_speculative_args(spec).keys() & set(THRESHOLDS), default="")


def _warn_tree(spec: ServiceSpec, engine: "LlmApi") -> str | None:
    if not spec.speculation.eagle3 or not spec.speculation.eagle3.dynamic_tree_max_top_k:
        return None
    return (
        "speculation.eagle3.dynamicTreeMaxTopK: not for targets with sliding-window attention or MLA,"
        " such as gpt-oss and DeepSeek"
    )


RULES: tuple[EngineRule, ...] = (
    _dtype,
    _draft_size,
    _custom_type,
    _custom_args,
    _pipeline_parallel,
    _features,
    _rejection_sampling,
    _eagle3,
    _schedule,
    _dialect,
    _extra,
)
WARNINGS: tuple[EngineWarn, ...] = (_warn_schedule, _warn_tree, _warn_oldest)
