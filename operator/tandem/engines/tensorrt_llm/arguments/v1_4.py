"""The dialect of TensorRT-LLM 1.4's release candidates: 1.3's, with what the reference pages of 1.4.0rc1 have beyond
it (https://nvidia.github.io/TensorRT-LLM/1.4.0rc1/llm-api/reference/). They are signatures: what its validators
refuse was not read.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from pydantic import NonNegativeInt

from tandem.api.decoding import DecodingType
from tandem.engines.tensorrt_llm.arguments import v1_3
from tandem.engines.tensorrt_llm.arguments.base import DFlashConfig, DSparkConfig, SpeculativeConfig


class DFlashTailConfig(DFlashConfig):
    """DFlash that computes the end of the context again."""

    context_recompute_tail: NonNegativeInt | None = None


class DSparkAttentionConfig(DSparkConfig):
    """Four kinds of attention."""

    attention_backend: Literal["AUTO", "VANILLA", "TRTLLM", "CUTEDSL"] | None = None


_OWN: Mapping[DecodingType, type[SpeculativeConfig]] = {
    DecodingType.DFLASH: DFlashTailConfig,
    DecodingType.DSPARK: DSparkAttentionConfig,
}
SCHEMA = replace(v1_3.SCHEMA, configs={**v1_3.SCHEMA.configs, **_OWN})
