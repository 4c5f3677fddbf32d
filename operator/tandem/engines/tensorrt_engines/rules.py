"""Can the engines be built as the resource asks, and what do they do that one might not expect?"""

import difflib
import re
from collections.abc import Iterator, Mapping

from tandem.api.conditions import SpecReason
from tandem.api.decoding import DecodingType, DraftKind
from tandem.api.roles import ENGINES, Role, references
from tandem.api.types import Draft, KvCache, ServiceSpec, Target
from tandem.engines.engine import Engine
from tandem.engines.rule import Refusal, Rule, Warn
from tandem.engines.tensorrt_engines.builds import (
    DECIDED_FLAGS,
    DECIDED_PARAMETERS,
    OPEN_PARAMETERS,
    build_options,
    built_roles,
    engine_batch,
)
from tandem.engines.triton import collects

FIELDS = {
    **dict.fromkeys(("max_batch_size", "max_input_len", "max_seq_len", "max_num_tokens"), "engine.build.{}"),
    "speculative_decoding_mode": "speculation.decodingType",
    "max_draft_len": "speculation.maxDraftLen",
    **dict.fromkeys(("gather_generation_logits", "gather_all_token_logits"), "speculation.acceptance.method"),
}
"""Field of the resource that decides a flag; other flags of DECIDED_FLAGS have none."""


def _models(spec: ServiceSpec) -> dict[Role, Target | Draft]:
    return {Role.TARGET: spec.target, **({Role.DRAFT: spec.draft} if spec.draft else {})}


def _extra_args(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    found = []
    for role, model in _models(spec).items():
        arguments = model.engine.build.extra_args if model.engine and model.engine.build else {}
        for name in sorted(DECIDED_FLAGS & set(arguments)):
            field = FIELDS.get(name, "").format(_camel(name))
            instead = f"write {field} instead" if field else "remove it"
            found.append(f"{role}.engine.build.extraArgs has {name}, which the resource decides: {instead}")
    return Refusal(SpecReason.ENGINE_FLAG_RESERVED, "; ".join(found)) if found else None


def _parameters(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    for role, model in _models(spec).items():
        names = model.engine.parameters if model.engine else {}
        if found := sorted(DECIDED_PARAMETERS.keys() & names):
            each = ", ".join(f"{name} ({DECIDED_PARAMETERS[name] or 'no field: it is fixed'})" for name in found)
            return Refusal(
                SpecReason.ENGINE_PARAMETER_RESERVED,
                f"{role}.engine.parameters has what the resource decides: remove it, and write the fields instead:"
                f" {each}",
            )
    return None


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _dtype(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    for role, model in _models(spec).items():
        if model.dtype == "fp8" and ENGINES[role] not in references(spec):
            return Refusal(
                SpecReason.FP8_NEEDS_CALIBRATION,
                f"{role}.dtype fp8 needs a calibration with sample texts, which no build Job makes: write dtype:"
                " auto, bring the engine as engine.prebuilt, or write runtime.mode: LLMAPI with a checkpoint in FP8",
            )
    return None


def _seq_len(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    for role, model in _models(spec).items():
        options = model.engine.build if model.engine else None
        longest, total = options and options.max_input_len, options and options.max_seq_len
        if longest and total and longest >= total:
            return Refusal(
                SpecReason.MAX_INPUT_LEN_TOO_LARGE,
                f"{role}.engine.build.maxInputLen is {longest} and maxSeqLen, of prompt and output together, {total}:"
                " write a larger maxSeqLen or a smaller maxInputLen",
            )
    return None


def _batch(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    for role, model in _models(spec).items():
        options = model.engine.build if model.engine else None
        size = options and options.max_batch_size
        if size and size < spec.serving.max_batch_size:
            return Refusal(
                SpecReason.ENGINE_BATCH_TOO_SMALL,
                f"{role}.engine.build.maxBatchSize is {size} and serving.maxBatchSize {spec.serving.max_batch_size}:"
                " the engine would run fewer sequences than the server takes; make them equal",
            )
    return None


def _chunked_context(spec: ServiceSpec, engine: Engine) -> str | None:
    """microBatchScheduler.cpp, `fitDraftTokens`."""
    target = spec.target.engine
    chunked = target and target.parameters.get("enable_chunked_context", "").lower() == "true"
    if not chunked or not spec.draft:
        return None
    return (
        "target.engine.parameters.enable_chunked_context: where a step has no room for a text's last tokens and its"
        " draft, TensorRT-LLM drops draft tokens without a word, and less is accepted; raise"
        " engine.build.maxNumTokens instead"
    )


_VALUES = {
    "true or false": re.compile("True|true|TRUE|1|False|false|FALSE|0"),
    "a whole number": re.compile(r"-?[0-9]+"),
    "a number": re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"),
    "whole numbers with commas between them": re.compile(r"[0-9]+(, *[0-9]+)*"),
    "max_utilization or guaranteed_no_evict": re.compile("max_utilization|guaranteed_no_evict"),
    "": re.compile(".*", re.DOTALL),
}
"""What the backend reads, by the words of OPEN_PARAMETERS."""


def _unread_parameters(spec: ServiceSpec, engine: Engine) -> str | None:
    """The backend of another image may know more: a warning."""
    found = [
        f"{role}.engine.parameters.{problem}"
        for role, model in _models(spec).items()
        for problem in _unread(model.engine.parameters if model.engine else {})
    ]
    return "; ".join(found) or None


def _unread(parameters: Mapping[str, str]) -> Iterator[str]:
    for name, value in parameters.items():
        wanted = OPEN_PARAMETERS.get(name)
        if wanted is None:
            close = difflib.get_close_matches(name, OPEN_PARAMETERS, n=1)
            instead = f"did you mean {close[0]}?" if close else "see docs/reference/engines.md"
            yield f"{name} has no effect, since TensorRT-LLM's Triton backend does not know it: {instead}"
        elif not _VALUES[wanted].fullmatch(value):
            yield f"{name} has no effect, since the backend cannot read {value!r}: write {wanted}"
    if parameters.get("guided_decoding_backend") and not parameters.get("xgrammar_tokenizer_info_path"):
        yield "guided_decoding_backend has no effect without xgrammar_tokenizer_info_path: write it, too"


def _no_product(spec: ServiceSpec, engine: Engine) -> str | None:
    built = any(ENGINES[role] not in references(spec) for role in _models(spec))
    if not built or len(spec.placement.gpu.product) == 1 or not engine.profile.gpus:
        return None
    return (
        "a TensorRT engine runs only on the GPU architecture that it was built on, and placement.gpu.product names"
        f" {len(spec.placement.gpu.product) or 'no'} products: name one, unless all nodes have the same"
    )


def _step_tokens(spec: ServiceSpec, engine: Engine) -> str | None:
    """Whether a step takes all rounds of the longest texts: TensorRT-LLM counts each text as a whole."""
    for role in built_roles(spec) if spec.draft else ():
        options, rows = build_options(spec, role), engine_batch(spec, role)
        tokens, longest = options.max_num_tokens, options.max_seq_len
        if tokens and longest and tokens < rows * longest:
            return (
                f"{role}.engine.build.maxNumTokens is {tokens}: a step takes {max(1, tokens // longest)} of {rows}"
                f" texts of maxSeqLen ({longest}), and {rows} of {tokens // rows} tokens; write {rows * longest}, or"
                " leave it out"
            )
    return None


def _block_reuse(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    if spec.draft is None:
        return None
    for role, cache in {"target": spec.target.kv_cache, "draft": spec.draft.kv_cache}.items():
        if not (cache or KvCache()).enable_block_reuse:
            return Refusal(
                SpecReason.BLOCK_REUSE_NEEDED,
                f"{role}.kvCache.enableBlockReuse is false, and each step of the BLS is a request with the whole"
                " text so far, whose keys and values must be reused: remove it",
            )
    return None


def _medusa(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    medusa = spec.speculation.medusa
    if spec.speculation.decoding_type is not DecodingType.MEDUSA or (medusa and medusa.choices):
        return None
    text = "decodingType Medusa needs a tree on TensorRT engines: write speculation.medusa.choices"
    return Refusal(SpecReason.MEDUSA_WITHOUT_TREE, text)


def _samples(spec: ServiceSpec, engine: Engine) -> str | None:
    """Where a sample differs from the draft's, TensorRT-LLM draws once more: externalDraftTokensLayer.cpp."""
    verifies = spec.speculation.decoding_type.traits.draft is DraftKind.MODEL
    if not verifies or spec.speculation.acceptance.method == "Logits":
        return None
    return (
        "speculation.acceptance.method TokenMatch is lossy on TensorRT engines for requests that sample: draft tokens"
        " come out more often than the target's own; greedy requests are exact, and so is num_draft_tokens 0"
    )


RULES: tuple[Rule, ...] = (collects, _medusa, _block_reuse, _extra_args, _parameters, _dtype, _seq_len, _batch)
WARNINGS: tuple[Warn, ...] = (_samples, _unread_parameters, _no_product, _chunked_context, _step_tokens)
