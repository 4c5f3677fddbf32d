"""The dialect of TensorRT-LLM 1.2, as 1.2.1's own documentation prints its `llmapi/llm_args.py`
(https://nvidia.github.io/TensorRT-LLM/1.2.1/_modules/tensorrt_llm/llmapi/llm_args.html, of 2026-04-16).

`DecodingBaseConfig.from_dict` picks the class by `decoding_type`; it knows `DraftTarget`, `Eagle` and `UserProvided`,
and refuses `Draft_Target`, `Eagle3` and `User_Provided`, which later versions write. Fields that a class does not
have are refused. The image may be built from another commit: the dry run in it has the last word.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import PositiveInt

from tandem.api.decoding import DecodingType
from tandem.api.types import DraftLenStep, Eagle3, Speculation
from tandem.engines.tensorrt_llm.arguments.base import CustomConfig, MtpConfig, NGramConfig, Schema, SpeculativeConfig


class DraftTargetConfig(SpeculativeConfig):
    """A draft model."""

    decoding_type: Literal["DraftTarget"] = "DraftTarget"
    max_draft_len: PositiveInt
    speculative_model_dir: str


class EagleConfig(SpeculativeConfig):
    """EAGLE-3 heads; the only kind of EAGLE that the PyTorch backend runs."""

    decided_by: ClassVar[Mapping[str, str]] = {
        "eagle3_one_model": "speculation.eagle3.oneModel",
        "eagle3_model_arch": "speculation.eagle3.modelArch",
    }
    decoding_type: Literal["Eagle"] = "Eagle"
    max_draft_len: PositiveInt
    speculative_model_dir: str
    eagle3_one_model: Literal[False] | None = None
    eagle3_model_arch: Literal["llama3", "mistral_large3"] | None = None

    @classmethod
    def details(cls, speculation: Speculation) -> dict[str, Any]:
        """The block eagle3."""
        details = speculation.eagle3 or Eagle3()
        return {"eagle3_one_model": None if details.one_model else False, "eagle3_model_arch": details.model_arch}


class MtpLayersConfig(MtpConfig):
    """Here the number of layers is the draft length, and takes the place of `max_draft_len`."""

    length: ClassVar[str] = "num_nextn_predict_layers"
    num_nextn_predict_layers: PositiveInt


class UserProvidedConfig(SpeculativeConfig):
    """A drafter in Python, which the server adds."""

    decided_by: ClassVar[Mapping[str, str]] = {
        "drafter": "speculation.userProvided.entryPoint",
        "resource_manager": "speculation.userProvided.resourceManager",
    }
    decoding_type: Literal["UserProvided"] = "UserProvided"
    max_draft_len: PositiveInt
    speculative_model_dir: str | None = None


def _schedule(steps: Sequence[DraftLenStep]) -> dict[int, int]:
    """The draft length from so many requests on: key 1 holds the first step's, and each step ends above its size."""
    starts = [1, *(step.max_batch_size + 1 for step in steps)]
    return dict(zip(starts, [*(step.draft_len for step in steps), 0], strict=True))


SCHEMA = Schema(
    configs={
        DecodingType.DRAFT_TARGET: DraftTargetConfig,
        DecodingType.EAGLE3: EagleConfig,
        DecodingType.EAGLE: EagleConfig,
        DecodingType.MTP: MtpLayersConfig,
        DecodingType.NGRAM: NGramConfig,
        DecodingType.USER_PROVIDED: UserProvidedConfig,
        DecodingType.CUSTOM: CustomConfig,
    },
    draft_model="speculative_model_dir",
    schedule=_schedule,
)
