"""Can the engines be built as the resource asks?"""

from tandem.accept.rule import Refusal, Rule, Warn
from tandem.api.conditions import SpecReason
from tandem.api.profile import Profile
from tandem.api.roles import ENGINES, Role, references
from tandem.api.types import Draft, ServiceSpec, Target
from tandem.render.latest import DECIDED_FLAGS, build_options, built_roles, engine_batch, needs_engines

FIELDS = {
    **dict.fromkeys(("max_batch_size", "max_input_len", "max_seq_len", "max_num_tokens"), "engine.build.{}"),
    "speculative_decoding_mode": "speculation.decodingType",
    "max_draft_len": "speculation.maxDraftLen",
    **dict.fromkeys(("gather_generation_logits", "gather_all_token_logits"), "speculation.acceptance.method"),
}
"""Field of the resource that decides a flag; other flags of DECIDED_FLAGS have none."""


def _models(spec: ServiceSpec) -> dict[Role, Target | Draft]:
    return {Role.TARGET: spec.target, **({Role.DRAFT: spec.draft} if spec.draft else {})}


def _extra_args(spec: ServiceSpec, profile: Profile) -> Refusal | None:
    if not needs_engines(spec, profile):
        return None
    for role, model in _models(spec).items():
        arguments = model.engine.build.extra_args if model.engine and model.engine.build else {}
        for name in sorted(DECIDED_FLAGS & set(arguments)):
            field = FIELDS.get(name, "").format(_camel(name))
            instead = f"write {field} instead" if field else "remove it"
            return Refusal(
                SpecReason.ENGINE_FLAG_RESERVED,
                f"{role}.engine.build.extraArgs has {name}, which the resource decides: {instead}",
            )
    return None


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _dtype(spec: ServiceSpec, profile: Profile) -> Refusal | None:
    if not needs_engines(spec, profile):
        return None
    for role, model in _models(spec).items():
        if model.dtype == "fp8" and ENGINES[role] not in references(spec):
            return Refusal(
                SpecReason.FP8_NEEDS_CALIBRATION,
                f"{role}.dtype fp8 needs a calibration with sample texts, which no build Job makes: write dtype: auto"
                " with a checkpoint that is quantized to FP8 already, or bring the engine as engine.prebuilt",
            )
    return None


def _seq_len(spec: ServiceSpec, profile: Profile) -> Refusal | None:
    if not needs_engines(spec, profile):
        return None
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


def _batch(spec: ServiceSpec, profile: Profile) -> Refusal | None:
    if not needs_engines(spec, profile):
        return None
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


def _no_product(spec: ServiceSpec, profile: Profile) -> str | None:
    built = needs_engines(spec, profile) and any(ENGINES[role] not in references(spec) for role in _models(spec))
    if not built or len(spec.placement.gpu.product) == 1 or not profile.gpus:
        return None
    return (
        "a TensorRT engine runs only on the GPU architecture that it was built on, and placement.gpu.product names"
        f" {len(spec.placement.gpu.product) or 'no'} products: name one, unless all nodes have the same"
    )


def _step_tokens(spec: ServiceSpec, profile: Profile) -> str | None:
    """Whether a step takes all rounds of the longest texts: TensorRT-LLM counts each text as a whole."""
    for role in built_roles(spec, profile) if spec.draft else ():
        options, rows = build_options(spec, role), engine_batch(spec, role)
        tokens, longest = options.max_num_tokens, options.max_seq_len
        if tokens and longest and tokens < rows * longest:
            return (
                f"{role}.engine.build.maxNumTokens is {tokens}: a step takes {max(1, tokens // longest)} of {rows}"
                f" texts of maxSeqLen ({longest}), and {rows} of {tokens // rows} tokens; write {rows * longest}, or"
                " leave it out"
            )
    return None


RULES: tuple[Rule, ...] = (_extra_args, _dtype, _seq_len, _batch)
WARNINGS: tuple[Warn, ...] = (_no_product, _step_tokens)
