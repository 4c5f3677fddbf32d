"""The dialect of TensorRT-LLM 1.2.

The text of 1.2.1 itself was not available. What is written here is what both its neighbours take, a copy of the
early 1.2 release candidates (A0) and one of the main branch of early 2026 (A1); where these exclude each other
it is A1's: `Draft_Target` and `User_Provided` (A0: `DraftTarget`, `UserProvided`), the thinking tokens in lower
case, `eagle3_model_arch`, `draft_len_schedule`. The preflight's dry run in the image has the last word.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import PositiveInt

from tandem.api.decoding import DecodingType
from tandem.api.types import DraftLenStep, Eagle3, Speculation
from tandem.render.v1.llm_args.base import CustomConfig, MtpConfig, NGramConfig, Schema, SpeculativeConfig


class DraftTargetConfig(SpeculativeConfig):
    """A draft model."""

    decoding_type: Literal["Draft_Target"] = "Draft_Target"
    max_draft_len: PositiveInt
    speculative_model_dir: str


class EagleConfig(SpeculativeConfig):
    """EAGLE-3 heads. A1 takes `Eagle` for `Eagle3`, which A0 does not know."""

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
    """Here the number of layers is the draft length, and `max_draft_len` is ignored."""

    length: ClassVar[str] = "num_nextn_predict_layers"
    num_nextn_predict_layers: PositiveInt


class UserProvidedConfig(SpeculativeConfig):
    """A drafter in Python, which the server adds."""

    decided_by: ClassVar[Mapping[str, str]] = {"drafter": "speculation.userProvided.entryPoint"}
    decoding_type: Literal["User_Provided"] = "User_Provided"
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
