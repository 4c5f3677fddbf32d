"""What the dialects share: arguments whose name and meaning are the same in all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, SerializeAsAny

from tandem.api.decoding import DecodingType
from tandem.api.types import DFlash, DraftLenStep, DSpark, NGram, Speculation, SuffixAutomaton


class Args(BaseModel):
    """Arguments of TensorRT-LLM; None is not written, so that the image's own default holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SpeculativeConfig(Args):
    """`speculative_config`; a draft length schedule maps batch sizes to lengths, as the dialect reads it."""

    length: ClassVar[str] = "max_draft_len"
    """The field that takes the draft length."""
    decided_by: ClassVar[Mapping[str, str]] = {}
    """Its fields that the decoding type's own block decides, and the field of the resource that does."""
    passed_on: ClassVar[frozenset[str]] = frozenset()
    """Its fields that another type's block decides, and none of its own: `extraLlmArgs` may hold them."""
    decoding_type: str
    max_concurrency: PositiveInt | None = None
    draft_len_schedule: dict[PositiveInt, int] | None = None

    @classmethod
    def details(cls, speculation: Speculation) -> dict[str, Any]:
        """Its fields that the decoding type's own block decides; None: the image's default holds."""
        return {}


class NGramConfig(SpeculativeConfig):
    """N-gram lookup. Every field is written: the defaults of early releases differ."""

    decided_by: ClassVar[Mapping[str, str]] = {
        "max_matching_ngram_size": "speculation.nGram.maxMatchingNgramSize",
        "is_keep_all": "speculation.nGram.isKeepAll",
        "is_use_oldest": "speculation.nGram.isUseOldest",
        "is_public_pool": "speculation.nGram.isPublicPool",
    }
    decoding_type: Literal["NGram"] = "NGram"
    max_draft_len: PositiveInt
    max_matching_ngram_size: PositiveInt
    is_keep_all: bool
    is_use_oldest: bool
    is_public_pool: bool

    @classmethod
    def details(cls, speculation: Speculation) -> dict[str, Any]:
        """The block nGram."""
        details = speculation.n_gram or NGram()
        return {name: getattr(details, name) for name in cls.decided_by}


class MtpConfig(SpeculativeConfig):
    """Multi-token prediction; each dialect adds its own name of the draft length."""

    decided_by: ClassVar[Mapping[str, str]] = {
        "use_relaxed_acceptance_for_thinking": "speculation.mtp.relaxedAcceptance",
        "relaxed_topk": "speculation.mtp.relaxedAcceptance.topk",
        "relaxed_delta": "speculation.mtp.relaxedAcceptance.delta",
        "begin_thinking_phase_token": "speculation.mtp.relaxedAcceptance.beginThinkingPhaseToken",
        "end_thinking_phase_token": "speculation.mtp.relaxedAcceptance.endThinkingPhaseToken",
    }
    decoding_type: Literal["MTP"] = "MTP"
    use_relaxed_acceptance_for_thinking: Literal[True] | None = None
    relaxed_topk: PositiveInt | None = None
    relaxed_delta: float | None = Field(default=None, ge=0)
    begin_thinking_phase_token: int | None = None
    end_thinking_phase_token: int | None = None

    @classmethod
    def details(cls, speculation: Speculation) -> dict[str, Any]:
        """Relaxed acceptance."""
        acceptance = speculation.mtp.relaxed_acceptance if speculation.mtp else None
        if acceptance is None:
            return {}
        return {
            "use_relaxed_acceptance_for_thinking": True,
            "relaxed_topk": acceptance.topk,
            "relaxed_delta": acceptance.delta,
            "begin_thinking_phase_token": acceptance.begin_thinking_phase_token,
            "end_thinking_phase_token": acceptance.end_thinking_phase_token,
        }


class SuffixAutomatonConfig(Args):
    """`sa_config`: drafts of a suffix automaton for some decoding types."""

    threshold: PositiveInt | None = None
    enable_global_pool: Literal[True] | None = None

    @classmethod
    def of(cls, automaton: SuffixAutomaton) -> dict[str, Any]:
        """Its fields."""
        made = cls(threshold=automaton.threshold, enable_global_pool=True if automaton.enable_global_pool else None)
        return made.model_dump(exclude_none=True)


class DFlashConfig(SpeculativeConfig):
    """A model that guesses all draft tokens in one pass; each dialect has values of its own."""

    decided_by: ClassVar[Mapping[str, str]] = {
        "mask_token_id": "speculation.dFlash.maskTokenId",
        "target_layer_ids": "speculation.dFlash.targetLayerIds",
        "attention_backend": "speculation.dFlash.attentionBackend",
        "context_recompute_tail": "speculation.dFlash.contextRecomputeTail",
    }
    decoding_type: Literal["DFlash"] = "DFlash"
    max_draft_len: PositiveInt
    speculative_model: str
    mask_token_id: int | None = None
    target_layer_ids: list[int] | None = None
    attention_backend: Literal["VANILLA", "TRTLLM", "FA4"] | None = None

    @classmethod
    def details(cls, speculation: Speculation) -> dict[str, Any]:
        """The block dFlash."""
        details = speculation.d_flash or DFlash()
        return {name: getattr(details, name) for name in DFlashConfig.decided_by}


class DSparkConfig(SpeculativeConfig):
    """A block of draft tokens in one pass; each dialect has attention backends of its own."""

    decided_by: ClassVar[Mapping[str, str]] = {
        "mask_token_id": "speculation.dSpark.maskTokenId",
        "target_layer_ids": "speculation.dSpark.targetLayerIds",
        "markov_rank": "speculation.dSpark.markovRank",
        "markov_head_type": "speculation.dSpark.markovHeadType",
        "attention_backend": "speculation.dSpark.attentionBackend",
    }
    decoding_type: Literal["DSpark"] = "DSpark"
    max_draft_len: PositiveInt
    speculative_model: str | None = None
    mask_token_id: int | None = None
    target_layer_ids: list[int] | None = None
    markov_rank: int | None = Field(default=None, ge=0)
    markov_head_type: Literal["vanilla", "gated", "rnn"] | None = None

    @classmethod
    def details(cls, speculation: Speculation) -> dict[str, Any]:
        """The block dSpark."""
        details = speculation.d_spark or DSpark()
        return {name: getattr(details, name) for name in DSparkConfig.decided_by}


class CustomConfig(SpeculativeConfig):
    """A decoding type that only the image knows: what the user wrote, unchecked."""

    model_config = ConfigDict(frozen=True, extra="allow")
    max_draft_len: PositiveInt

    @classmethod
    def details(cls, speculation: Speculation) -> dict[str, Any]:
        """The user's own fields."""
        custom = speculation.custom
        return {"decoding_type": custom.type, **custom.args} if custom else {}


class KvCacheConfig(Args):
    """`kv_cache_config`: fields of the same names as `target.kvCache`."""

    max_tokens: PositiveInt | None = None
    free_gpu_memory_fraction: float | None = Field(default=None, ge=0, le=1)
    enable_block_reuse: bool = True


class LlmArgs(Args):
    """Arguments of `tensorrt_llm.LLM` that a resource may decide."""

    model: str
    tokenizer: str | None = None
    tensor_parallel_size: PositiveInt
    pipeline_parallel_size: PositiveInt
    dtype: Literal["float16", "bfloat16", "float32"] | None = None
    max_batch_size: PositiveInt
    kv_cache_config: KvCacheConfig | None = None
    disable_overlap_scheduler: Literal[True] | None = None
    speculative_config: SerializeAsAny[SpeculativeConfig] | None = None


@dataclass(frozen=True)
class Schema:
    """What differs between dialects."""

    configs: Mapping[DecodingType, type[SpeculativeConfig]]
    """`speculative_config` by decoding type; one that is missing is not in the dialect."""
    draft_model: str
    """Its field with the draft model."""
    schedule: Callable[[Sequence[DraftLenStep]], dict[int, int]]
    """Its `draft_len_schedule`."""

    def speculative_config(self, speculation: Speculation, draft: str | None) -> SpeculativeConfig | None:
        """`speculative_config`; None for decoding type None. `draft`: folder of the draft model, if there is one.

        Raises:
            KeyError: a decoding type of mode BLS.
            pydantic.ValidationError: the dialect has no such value.
        """
        if speculation.decoding_type is DecodingType.NONE:
            return None
        config, steps = self.configs[speculation.decoding_type], speculation.draft_len_schedule
        automaton = speculation.suffix_automaton
        fields = {
            **config.details(speculation),
            config.length: speculation.max_draft_len,
            self.draft_model: draft,
            "max_concurrency": speculation.max_concurrency,
            "draft_len_schedule": self.schedule(steps) if steps else None,
            **({"sa_config": SuffixAutomatonConfig.of(automaton)} if automaton else {}),
        }
        return config.model_validate({k: v for k, v in fields.items() if v is not None})
