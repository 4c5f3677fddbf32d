"""The dialect of TensorRT-LLM 1.3, as read in its main branch after the removal of the engines (July 2026) and in
the reference pages of 1.3.0rc27 and 1.3.0rc29."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import PositiveInt

from tandem.api.decoding import DecodingType
from tandem.api.types import DraftLenStep, Eagle3, Speculation
from tandem.engines.tensorrt_llm.arguments.base import (
    CustomConfig,
    DFlashConfig,
    DSparkConfig,
    MtpConfig,
    NGramConfig,
    Schema,
    SpeculativeConfig,
    SuffixAutomatonConfig,
)

_SUFFIX_AUTOMATON = {"sa_config": "speculation.suffixAutomaton"}


class DraftTargetConfig(SpeculativeConfig):
    """A draft model."""

    decoding_type: Literal["Draft_Target"] = "Draft_Target"
    max_draft_len: PositiveInt
    speculative_model: str


class Eagle3Config(SpeculativeConfig):
    """EAGLE-3 heads, drafting a chain or a tree."""

    decided_by: ClassVar[Mapping[str, str]] = {
        "eagle3_model_arch": "speculation.eagle3.modelArch",
        "use_dynamic_tree": "speculation.eagle3.dynamicTreeMaxTopK",
        "dynamic_tree_max_topK": "speculation.eagle3.dynamicTreeMaxTopK",
        "max_total_draft_tokens": "speculation.eagle3.maxTotalDraftTokens",
        **_SUFFIX_AUTOMATON,
    }
    decoding_type: Literal["Eagle3"] = "Eagle3"
    max_draft_len: PositiveInt
    speculative_model: str
    eagle3_model_arch: Literal["llama3", "mistral_large3"] | None = None
    use_dynamic_tree: Literal[True] | None = None
    dynamic_tree_max_topK: PositiveInt | None = None  # noqa: N815 - upstream's spelling
    max_total_draft_tokens: PositiveInt | None = None
    sa_config: SuffixAutomatonConfig | None = None

    @classmethod
    def details(cls, speculation: Speculation) -> dict[str, Any]:
        """The block eagle3."""
        details = speculation.eagle3 or Eagle3()
        return {
            "eagle3_model_arch": details.model_arch,
            "use_dynamic_tree": True if details.dynamic_tree_max_top_k else None,
            "dynamic_tree_max_topK": details.dynamic_tree_max_top_k,
            "max_total_draft_tokens": details.max_total_draft_tokens,
        }


class MtpLengthConfig(MtpConfig):
    """Here the draft length has the name that it has elsewhere."""

    decided_by: ClassVar[Mapping[str, str]] = {**MtpConfig.decided_by, **_SUFFIX_AUTOMATON}
    passed_on: ClassVar[frozenset[str]] = frozenset({"use_dynamic_tree", "dynamic_tree_max_topK"})
    max_draft_len: PositiveInt
    sa_config: SuffixAutomatonConfig | None = None


class DSparkAttentionConfig(DSparkConfig):
    """Two kinds of attention."""

    attention_backend: Literal["VANILLA", "TRTLLM"] | None = None


class UserProvidedConfig(SpeculativeConfig):
    """A drafter in Python, which the server adds."""

    decided_by: ClassVar[Mapping[str, str]] = {
        "drafter": "speculation.userProvided.entryPoint",
        "resource_manager": "speculation.userProvided.resourceManager",
    }
    decoding_type: Literal["User_Provided"] = "User_Provided"
    max_draft_len: PositiveInt
    speculative_model: str | None = None


def _schedule(steps: Sequence[DraftLenStep]) -> dict[int, int]:
    """The draft length up to so many requests; above the last key it is 0."""
    return {step.max_batch_size: step.draft_len for step in steps}


SCHEMA = Schema(
    configs={
        DecodingType.DRAFT_TARGET: DraftTargetConfig,
        DecodingType.EAGLE3: Eagle3Config,
        DecodingType.EAGLE: Eagle3Config,
        DecodingType.MTP: MtpLengthConfig,
        DecodingType.NGRAM: NGramConfig,
        DecodingType.DFLASH: DFlashConfig,
        DecodingType.DSPARK: DSparkAttentionConfig,
        DecodingType.USER_PROVIDED: UserProvidedConfig,
        DecodingType.CUSTOM: CustomConfig,
    },
    draft_model="speculative_model",
    schedule=_schedule,
)
