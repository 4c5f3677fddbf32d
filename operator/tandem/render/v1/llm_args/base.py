"""What the dialects share: arguments whose name and meaning are the same in all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, SerializeAsAny

from tandem.api.types import DecodingType, DraftLenStep, Eagle3, Mtp, NGram, Speculation


class Args(BaseModel):
    """Arguments of TensorRT-LLM; None is not written, so that the image's own default holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SpeculativeConfig(Args):
    """`speculative_config`; a draft length schedule maps batch sizes to lengths, as the dialect reads it."""

    decoding_type: str
    max_concurrency: PositiveInt | None = None
    draft_len_schedule: dict[PositiveInt, int] | None = None


class NGramConfig(SpeculativeConfig):
    """N-gram lookup. Every field is written: the defaults of early releases differ."""

    decoding_type: Literal["NGram"] = "NGram"
    max_draft_len: PositiveInt
    max_matching_ngram_size: PositiveInt
    is_keep_all: bool
    is_use_oldest: bool
    is_public_pool: bool


class MtpConfig(SpeculativeConfig):
    """Multi-token prediction; each dialect adds its own name of the draft length."""

    decoding_type: Literal["MTP"] = "MTP"
    use_relaxed_acceptance_for_thinking: Literal[True] | None = None
    relaxed_topk: PositiveInt | None = None
    relaxed_delta: float | None = Field(default=None, ge=0)
    begin_thinking_phase_token: int | None = None
    end_thinking_phase_token: int | None = None


class CustomConfig(SpeculativeConfig):
    """A decoding type that only the image knows: what the user wrote, unchecked."""

    model_config = ConfigDict(frozen=True, extra="allow")
    max_draft_len: PositiveInt


class KvCacheConfig(Args):
    """`kv_cache_config`."""

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
class Dialect:
    """What differs between dialects."""

    configs: Mapping[DecodingType, type[SpeculativeConfig]]
    """`speculative_config` by decoding type."""
    draft_model: str
    """Its field with the draft model."""
    mtp_length: str
    """Its field with the draft length of MTP."""
    schedule: Callable[[Sequence[DraftLenStep]], dict[int, int]]
    """Its `draft_len_schedule`."""
    eagle3: Callable[[Eagle3], dict[str, Any]]
    """Its fields of Eagle3."""

    def speculative_config(self, speculation: Speculation, draft: str | None) -> SpeculativeConfig | None:
        """`speculative_config`; None for decoding type None. `draft`: folder of the draft model, if there is one.

        Raises:
            KeyError: a decoding type of mode BLS.
            pydantic.ValidationError: the dialect has no such value.
        """
        kind, steps = speculation.decoding_type, speculation.draft_len_schedule
        if kind is DecodingType.NONE:
            return None
        fields = {
            **self._details(speculation),
            self.mtp_length if kind is DecodingType.MTP else "max_draft_len": speculation.max_draft_len,
            self.draft_model: draft,
            "max_concurrency": speculation.max_concurrency,
            "draft_len_schedule": self.schedule(steps) if steps else None,
        }
        return self.configs[kind].model_validate({k: v for k, v in fields.items() if v is not None})

    def _details(self, speculation: Speculation) -> dict[str, Any]:
        match speculation.decoding_type:
            case DecodingType.NGRAM:
                return (speculation.n_gram or NGram()).model_dump()
            case DecodingType.MTP:
                return _relaxed(speculation.mtp or Mtp())
            case DecodingType.EAGLE3 | DecodingType.EAGLE:
                return self.eagle3(speculation.eagle3 or Eagle3())
            case DecodingType.CUSTOM if speculation.custom:
                return {"decoding_type": speculation.custom.type, **speculation.custom.args}
        return {}


def _relaxed(mtp: Mtp) -> dict[str, Any]:
    if mtp.relaxed_acceptance is None:
        return {}
    acceptance = mtp.relaxed_acceptance
    return {
        "use_relaxed_acceptance_for_thinking": True,
        "relaxed_topk": acceptance.topk,
        "relaxed_delta": acceptance.delta,
        "begin_thinking_phase_token": acceptance.begin_thinking_phase_token,
        "end_thinking_phase_token": acceptance.end_thinking_phase_token,
    }
