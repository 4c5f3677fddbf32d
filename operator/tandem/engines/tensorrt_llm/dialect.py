"""What differs between TensorRT-LLM's versions, as far as the operator goes by it. Pure.

Who follows a draft length schedule. 1.2: types that draft outside the engine (pull request 8194; a UserProvided
drafter decides by itself). Since 1.3: those that draft in the engine, except DSpark (pull requests 10860 and 12262;
`support_dynamic_draft_len` in _torch/speculative/interface.py). N-grams draft outside, and still read the schedule's
keys as 1.2 does, though 1.3 gave them another meaning (`Drafter.get_draft_len_for_batch_size`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tandem.api.decoding import DecodingType
from tandem.engines.versions import parts


class Dialect(StrEnum):
    """The text of TensorRT-LLM's `llmapi/llm_args.py` over a range of releases, by the first of them."""

    V1_2 = "1.2"
    V1_3 = "1.3"
    V1_4 = "1.4"
    """Of its release candidates."""

    @property
    def facts(self) -> "DialectFacts":
        """What is known of it."""
        return DIALECTS[self]


@dataclass(frozen=True, kw_only=True)
class DialectFacts:
    """What engines of a dialect do."""

    decoding_types: tuple[DecodingType, ...]
    """Those that they run."""
    follow_schedule: tuple[DecodingType, ...]
    """Those with which they follow `draftLenSchedule`; with others they may keep `maxDraftLen` at every load."""
    fixed_draft_len: tuple[DecodingType, ...] = ()
    """Those that take no `draftLenSchedule` at all."""
    two_model_eagle3: bool = False
    """Whether EAGLE-3's heads and the target may be two models."""
    dynamic_tree: bool = True
    """Whether EAGLE-3 may draft a tree."""
    counts_draft_tokens: bool = True
    """Whether they report how many tokens they drafted; the PyTorch flow of 1.2.1 does not, even while it drafts."""
    one_model: tuple[str, ...]
    """`decoding_type`s whose drafter is a part of the target's model."""
    two_models: tuple[str, ...]
    """Those with a drafter apart."""


_T = DecodingType
_SINCE_1_3 = DialectFacts(
    decoding_types=(
        *(_T.DRAFT_TARGET, _T.EAGLE3, _T.EAGLE, _T.MTP, _T.NGRAM, _T.DFLASH, _T.DSPARK),
        *(_T.USER_PROVIDED, _T.CUSTOM, _T.NONE),
    ),
    follow_schedule=(_T.DRAFT_TARGET, _T.EAGLE3, _T.EAGLE, _T.MTP, _T.DFLASH, _T.CUSTOM),
    one_model=("Draft_Target", "Eagle", "Eagle3", "MTP", "DFlash", "DSpark", "PARD", "SA"),
    two_models=("NGram", "User_Provided", "AUTO"),
)
DIALECTS: Mapping[Dialect, DialectFacts] = {
    Dialect.V1_2: DialectFacts(
        decoding_types=(
            *(_T.DRAFT_TARGET, _T.EAGLE3, _T.EAGLE, _T.MTP, _T.NGRAM),
            *(_T.USER_PROVIDED, _T.CUSTOM, _T.NONE),
        ),
        follow_schedule=(_T.DRAFT_TARGET, _T.NGRAM),
        fixed_draft_len=(_T.MTP,),
        two_model_eagle3=True,
        dynamic_tree=False,
        counts_draft_tokens=False,
        one_model=("Eagle", "MTP"),
        two_models=("DraftTarget", "NGram", "UserProvided", "AUTO"),
    ),
    Dialect.V1_3: _SINCE_1_3,
    Dialect.V1_4: _SINCE_1_3,
}
"""A new dialect needs its own row: nothing holds for it by being the newest."""


def dialect_of(version: str) -> Dialect | None:
    """That of a version such as 1.2.1: the newest that is not newer; None for versions before all of them."""
    known = [dialect for dialect in Dialect if parts(dialect) <= parts(version)]
    return known[-1] if known else None
