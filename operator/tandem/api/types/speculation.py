"""Speculation: how tokens are guessed and accepted. One block per decoding type, allowed only with it."""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tandem.api.bounds import MAX_DRAFT_LEN, MAX_REQUESTS, SCHEDULE_STEPS
from tandem.api.decoding import DecodingType, listed
from tandem.api.types.base import Model, Name, Passthrough, Rule
from tandem.api.types.model import Source

DraftLen = Annotated[int, Field(ge=0, le=MAX_DRAFT_LEN)]
RequestCount = Annotated[int, Field(ge=1, le=MAX_REQUESTS)]


def has_type(kinds: Iterable[DecodingType], speculation: str) -> str:
    """CEL: whether the decodingType of `speculation`, a path, is one of `kinds`."""
    names = [f"'{kind}'" for kind in kinds]
    return f"{speculation}.decodingType " + (f"== {names[0]}" if len(names) == 1 else f"in [{', '.join(names)}]")


def _only_with_its_type(block: str) -> Rule:
    """The rule that `speculation.<block>` is for its decoding type alone, and needed with it where it has to be."""
    kinds = DecodingType.of_block(block)
    kind, needs = kinds[0], kinds[0].traits.block_needs
    if needs:
        return Rule(
            f"has(self.{block}) == ({has_type(kinds, 'self')})",
            f"decodingType {kind} and speculation.{block}.{needs} belong together: write both or neither",
        )
    return Rule(
        f"!has(self.{block}) || {has_type(kinds, 'self')}",
        f"speculation.{block} is for decodingType {kind}: remove it, or write decodingType: {kind}",
    )


class Adaptive(Model):
    """Draft length by what it is worth: acceptance, and what draft and verification cost at the load."""

    enabled: bool = True
    """false: always `maxDraftLen`, or what the request asks for. For 2% of the time requests that leave it to the
    service go without a draft, all at once, to measure what speculation is worth; so they do where minDraftLen is
    above 0. Their output is the same."""
    min_draft_len: DraftLen = 0
    """Fewest draft tokens a step; 0 lets speculation turn itself off where the target alone is faster."""
    probe_share: Annotated[float, Field(ge=0.0, le=0.2)] = 0.0
    """Share of the requests that run without speculation, to measure what it is worth (status.speculation.speedup);
    requests with their own num_draft_tokens are never among them. Their output is the same."""


class Acceptance(Model):
    """How the target decides which draft tokens stand."""

    cel = (
        Rule(
            "self.method == 'Logits' || !(self.fastLogits || has(self.threshold))",
            "acceptance.fastLogits and acceptance.threshold are for method Logits: write it, or remove them",
        ),
    )
    method: Literal["TokenMatch", "Logits"] = "TokenMatch"
    """TokenMatch: a draft token stands when it is the target's own choice; exact when greedy (TensorRT-LLM draws
    samples once more where they differ from the draft's). Logits (BLS, DraftTarget): by the rejection rule on both
    models' probabilities, which accepts more when sampling."""
    fast_logits: bool = False
    """Logits: hand the draft's logits over between the engines' processes instead of through Triton; needs
    the orchestrator's launch, one more process."""
    threshold: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Logits: accept a token when the target gives it more than this share of the draft's probability. Lossy: the
    output is no longer distributed as the target's."""


class NGram(Model):
    """Decoding type NGram: drafts are looked up in the text so far."""

    max_matching_ngram_size: Annotated[int, Field(ge=1, le=32)] = 2
    """Longest sequence of last tokens that is looked up."""
    is_keep_all: bool = True
    """Keep all continuations of an n-gram, not only one."""
    is_use_oldest: bool = True
    """Draft from the oldest continuation rather than the newest."""
    is_public_pool: bool = True
    """One pool for all requests rather than one for each."""


class RelaxedAcceptance(Model):
    """Accept more while a reasoning model thinks. Lossy within the thinking part."""

    topk: Annotated[int, Field(ge=1, le=100)] = 1
    """A draft token stands when it is among this many best of the target ..."""
    delta: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """... and its probability is within this of the best."""
    begin_thinking_phase_token: Annotated[int, Field(ge=0)] | None = None
    """Token id that begins thinking; absent: TensorRT-LLM's default (DeepSeek-R1's)."""
    end_thinking_phase_token: Annotated[int, Field(ge=0)] | None = None
    """Token id that ends thinking; absent: TensorRT-LLM's default (DeepSeek-R1's)."""


class Mtp(Model):
    """Decoding type MTP: the target's own multi-token-prediction layers draft."""

    relaxed_acceptance: RelaxedAcceptance | None = None
    """Relaxed acceptance for thinking; absent: strict."""


class Eagle3(Model):
    """Decoding type Eagle3 (and its alias Eagle)."""

    cel = (
        Rule(
            "!has(self.maxTotalDraftTokens) || has(self.dynamicTreeMaxTopK)",
            "eagle3.maxTotalDraftTokens bounds the dynamic tree: write eagle3.dynamicTreeMaxTopK too, or remove it",
        ),
    )
    model_arch: Literal["llama3", "mistral_large3"] | None = None
    """Architecture of the heads; absent: TensorRT-LLM's default."""
    one_model: bool = True
    """Heads and target as one model; false: two (only in profiles up to TensorRT-LLM 1.2)."""
    dynamic_tree_max_top_k: Annotated[int, Field(ge=1, le=32)] | None = Field(
        default=None, alias="dynamicTreeMaxTopK"
    )
    """Draft a tree with this many branches a step instead of a chain."""
    max_total_draft_tokens: Annotated[int, Field(ge=1, le=256)] | None = None
    """Most draft tokens of the tree."""


TokenId = Annotated[int, Field(ge=0)]
TargetLayers = Annotated[list[Annotated[int, Field(ge=0, le=1024)]], Field(min_length=1, max_length=64)]


class DFlash(Model):
    """Decoding type DFlash: a small model guesses all draft tokens in one pass, from hidden states of the target."""

    mask_token_id: TokenId | None = None
    """Token id that stands for a token to guess; absent: the draft's config.json says it."""
    target_layer_ids: TargetLayers | None = None
    """Layers of the target whose hidden states are read; absent: the draft's config.json says it."""
    attention_backend: Literal["VANILLA", "TRTLLM", "FA4"] | None = None
    """Attention of the draft; TRTLLM needs FlashInfer and Blackwell. Absent: TensorRT-LLM's default."""
    context_recompute_tail: Annotated[int, Field(ge=0)] | None = None
    """Tokens at the end of the context that are computed again (TensorRT-LLM 1.4); absent: its default."""


class DSpark(Model):
    """Decoding type DSpark: a block of draft tokens in one pass. spec.draft may be left out where the target's
    checkpoint holds the drafter (`mtp.*` weights). maxDraftLen is the block's size."""

    mask_token_id: TokenId | None = None
    """Token id that stands for a token to guess; absent: the checkpoint says it."""
    target_layer_ids: TargetLayers | None = None
    """Layers of the target whose hidden states are read, as the checkpoint lists them; absent: the checkpoint's."""
    markov_rank: Annotated[int, Field(ge=0)] | None = None
    """Rank of the head by which a draft token depends on the one before; absent: the checkpoint's."""
    markov_head_type: Literal["vanilla", "gated", "rnn"] | None = None
    """Kind of that head; absent: the checkpoint's."""
    attention_backend: Literal["AUTO", "VANILLA", "TRTLLM", "CUTEDSL"] | None = None
    """Attention of the draft; AUTO and CUTEDSL: TensorRT-LLM 1.4. Absent: its default."""


class SuffixAutomaton(Model):
    """A suffix automaton looks the text's end up in the text so far. Where it finds a long enough end again, what
    followed there is the draft, instead of the decoding type's own."""

    threshold: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Fewest tokens of that end; absent: TensorRT-LLM's default, 4."""
    enable_global_pool: bool = False
    """Look it up in all requests' texts rather than in its own."""


class Medusa(Model):
    """Decoding type Medusa: heads in the engine guess a tree."""

    choices: Annotated[
        list[Annotated[list[Annotated[int, Field(ge=0, le=63)]], Field(min_length=1, max_length=16)]],
        Field(max_length=256),
    ] = Field(default_factory=list)
    """The tree, which TensorRT engines need: each path as indices of a head's best tokens, e.g. [[0], [0, 0], [1]].
    vLLM drafts a chain."""
    num_heads: Annotated[int, Field(ge=1, le=16)] = 4
    """Heads of the checkpoint."""
    heads: Source | None = None
    """Where the heads come from, a folder with medusa_lm_head.safetensors; absent: the target's own folder. A mounted
    one may have medusa_lm_head.pt, which is pickled and which no download brings."""


class Lookahead(Model):
    """Decoding type Lookahead: n-grams of the model's own parallel guesses. Sizes are the engine's maxima."""

    window_size: Annotated[int, Field(ge=1, le=64)] = 7
    """Positions that are guessed in parallel."""
    ngram_size: Annotated[int, Field(ge=1, le=64)] = 7
    """Length of the n-grams."""
    verification_set_size: Annotated[int, Field(ge=1, le=64)] = 7
    """n-grams that are verified a step."""


EntryPoint = Annotated[
    str, StringConstraints(max_length=255, pattern=r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$")
]


class UserProvided(Model):
    """Decoding type UserProvided: a drafter in Python. Runs your code in the serving container."""

    entry_point: EntryPoint
    """`module:attribute`: a tensorrt_llm Drafter, or a class of one, which is made without arguments."""
    resource_manager: EntryPoint | None = None
    """`module:attribute`, likewise: the resource manager that goes with it, of which the engine asks room for each
    request; absent: none."""
    config_map_name: Name | None = None
    """ConfigMap of this namespace with the module's files; absent: the module is in the image."""


class Custom(Model):
    """Decoding type Custom: one that the image knows and Tandem has no type for."""

    type: Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
    """`decoding_type` of TensorRT-LLM's speculative_config, e.g. PARD or SA; `method` of vLLM's, e.g. eagle."""
    args: Passthrough = Field(default_factory=dict)
    """Further fields of speculative_config, as the engine spells them."""
    needs_draft: bool = False
    """Whether it takes a draft model (spec.draft)."""


class DraftLenStep(Model):
    """One step of a schedule."""

    max_batch_size: RequestCount
    """Up to this many requests at once ..."""
    draft_len: DraftLen
    """... draft this many tokens."""


_BLOCKS = ("nGram", "mtp", "eagle3", "dFlash", "dSpark", "medusa", "lookahead", "userProvided", "custom")
_COMPOSED = (DecodingType.EAGLE3, DecodingType.EAGLE, DecodingType.MTP)
"""Types whose arguments have `sa_config`; so has PARD."""


class Speculation(Model):
    """How tokens are guessed and accepted."""

    cel = (
        Rule(
            "self.adaptive.minDraftLen <= self.maxDraftLen",
            "adaptive.minDraftLen must not be above maxDraftLen: lower it or raise maxDraftLen",
        ),
        Rule(
            "!(has(self.maxConcurrency) && has(self.draftLenSchedule))",
            "write maxConcurrency or draftLenSchedule, not both: the schedule's last step is where speculation ends",
        ),
        Rule(
            "!has(self.draftLenSchedule) || self.draftLenSchedule.all(s, s.draftLen <= self.maxDraftLen)",
            "draftLenSchedule must not draft more than maxDraftLen: lower draftLen or raise maxDraftLen",
        ),
        Rule(
            "!has(self.minAcceptedLength) || (self.minAcceptedLength > 1.0"
            " && self.minAcceptedLength <= double(self.maxDraftLen) + 1.0)",
            "minAcceptedLength is tokens a step, the target's own included: write more than 1, and at most"
            " maxDraftLen + 1",
        ),
        Rule(
            "!has(self.minAcceptedLength) || self.decodingType != 'None'",
            "minAcceptedLength is for a service that speculates: remove it, or write another decodingType than None",
        ),
        *map(_only_with_its_type, _BLOCKS),
        Rule(
            f"!has(self.suffixAutomaton) || {has_type(_COMPOSED, 'self')}"
            " || (has(self.custom) && self.custom.type == 'PARD')",
            f"speculation.suffixAutomaton is for decodingType {listed(_COMPOSED, 'or')}, or Custom with type PARD:"
            " remove it, or write one of them",
        ),
    )
    decoding_type: DecodingType
    """DraftTarget: a draft model proposes, the target verifies. Eagle3, MTP, NGram, DFlash, DSpark, UserProvided,
    Custom: LLMAPI. Suffix: LLMAPI with vLLM. Medusa: BLS, in the engine, and LLMAPI with vLLM. Lookahead: BLS, in the
    engine. None: the target alone. Eagle is Eagle3's alias; not with vLLM, where it is EAGLE-1 and EAGLE-2."""
    max_draft_len: Annotated[int, Field(ge=1, le=MAX_DRAFT_LEN)] = 4
    """Draft tokens a step: the default, and the upper bound, of every request."""
    # Written out: the API server judges a default by the object's rules before it fills in the fields'.
    acceptance: Acceptance = Field(
        default_factory=Acceptance, json_schema_extra={"default": {"method": "TokenMatch", "fastLogits": False}}
    )
    """How the target decides which draft tokens stand."""
    adaptive: Adaptive = Field(default_factory=Adaptive, json_schema_extra={"default": {}})
    """BLS, DraftTarget: the draft length follows acceptance and load, between `minDraftLen` and `maxDraftLen`."""
    max_concurrency: RequestCount | None = None
    """LLMAPI: no speculation above this many requests at once."""
    draft_len_schedule: Annotated[list[DraftLenStep], Field(min_length=1, max_length=SCHEDULE_STEPS)] | None = None
    """LLMAPI: draft length by requests at once, ascending; 0 above the last step. The first step drafts
    `maxDraftLen`."""
    min_accepted_length: Annotated[float, Field(ge=1, le=MAX_DRAFT_LEN + 1)] | None = None
    """Tokens that a step of the target must give on average, its own included: above 1, at most maxDraftLen + 1.
    Below it for two windows of the figures, the condition AcceptedLengthKept is False and has the likely cause, and a
    revision that has not kept it since its rollout goes back to the one before. Needs the metrics server."""
    n_gram: NGram | None = None
    """Details of NGram."""
    mtp: Mtp | None = None
    """Details of MTP."""
    eagle3: Eagle3 | None = None
    """Details of Eagle3."""
    d_flash: DFlash | None = None
    """Details of DFlash."""
    d_spark: DSpark | None = None
    """Details of DSpark."""
    suffix_automaton: SuffixAutomaton | None = None
    """Eagle3, MTP and Custom of type PARD, since TensorRT-LLM 1.3: look drafts up in the text as well."""
    medusa: Medusa | None = None
    """Details of Medusa."""
    lookahead: Lookahead | None = None
    """Details of Lookahead."""
    user_provided: UserProvided | None = None
    """Details of UserProvided."""
    custom: Custom | None = None
    """Details of Custom."""
