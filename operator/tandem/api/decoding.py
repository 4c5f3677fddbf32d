"""The decoding types, each with its traits: the one table that rules, renderers, the capacity model and docs read.

A trait is a fact of the type in every engine that runs it. `draft` and `drafts_on_host` shape revisions, whose
renderers are frozen: they never change for a type that was released, and `modes` only grow. How arguments are spelt
is the engines' own (`tandem.engines.tensorrt_llm.arguments`, `tandem.engines.vllm.arguments`,
`tandem.engines.tensorrt_engines.builds`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class Mode(StrEnum):
    """Which serving stack runs the models."""

    LLMAPI = "LLMAPI"
    BLS = "BLS"


class DraftKind(StrEnum):
    """What `spec.draft` is to a decoding type."""

    MODEL = "a model of its own"
    """Needed; with the target's tokenizer, and logits to compare."""
    HEADS = "heads"
    """Needed; weights that the engine alone can read, without a tokenizer."""
    OPTIONAL_HEADS = "heads, if the drafter has any"
    CUSTOM_HEADS = "heads, if custom.needsDraft"
    NONE = "none"


class DraftCost(StrEnum):
    """What makes a draft token; the capacity model's first guess of its time goes by it."""

    MODEL = "a small model"
    HEADS = "heads in the engine's own step"
    LOOKUP = "a look-up"


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What Tandem knows of a decoding type."""

    modes: tuple[Mode, ...]
    """Modes that run it. Mode BLS alone: it lives in TensorRT engines."""
    draft: DraftKind = DraftKind.NONE
    """What `spec.draft` is to it."""
    drafts_on_host: bool = False
    """The host makes the drafts between two passes, from the text alone: there is no state that could go stale, and
    the next pass cannot be prepared before they are there, so that the overlap scheduler is off
    (_torch/speculative/interface.py, `support_overlap_scheduler`)."""
    follows_schedule: bool = False
    """Whether every engine follows `draftLenSchedule` with it; some follow it with other types, too."""
    cost: DraftCost = DraftCost.HEADS
    """What makes a draft token."""
    block: str = ""
    """Field of `spec.speculation` with its details, as in YAML; allowed only with the type. Empty: it has none."""
    block_needs: str = ""
    """Field of that block without a default: type and block belong together. Empty: the block may be left out."""
    upstream: tuple[str, ...] = ()
    """`decoding_type` of TensorRT-LLM, as any of its releases writes it: `speculation.custom.type` must not be it."""

    @property
    def in_engine(self) -> bool:
        """Whether it lives in TensorRT engines."""
        return self.modes == (Mode.BLS,)


class TypeWithTraits(StrEnum):
    """Base of an enumeration whose members are written as `NAME = "Name", Traits(...)`."""

    traits: Traits

    def __new__(cls, name: str, traits: Traits | None = None) -> Self:
        """A member; TypeError without traits."""
        if traits is None:
            raise TypeError(
                f"decodingType {name} has no traits: write Traits(modes=...) after its name in api/decoding.py, with"
                " draft, drafts_on_host, follows_schedule, cost, block and upstream"
            )
        member = str.__new__(cls, name)
        member._value_ = name
        member.traits = traits
        return member


_LLMAPI, _BLS, _BOTH = (Mode.LLMAPI,), (Mode.BLS,), (Mode.LLMAPI, Mode.BLS)
_EAGLE3 = Traits(
    modes=_LLMAPI,
    draft=DraftKind.HEADS,
    block="eagle3",
    upstream=("Eagle", "Eagle3"),
)


class DecodingType(TypeWithTraits):
    """How draft tokens are made; TensorRT-LLM's names where it has the type. `None` serves the target alone: the
    baseline."""

    DRAFT_TARGET = (
        "DraftTarget",
        Traits(
            modes=_BOTH,
            draft=DraftKind.MODEL,
            follows_schedule=True,
            cost=DraftCost.MODEL,
            upstream=("Draft_Target", "DraftTarget"),
        ),
    )
    EAGLE3 = "Eagle3", _EAGLE3
    EAGLE = "Eagle", _EAGLE3
    MTP = (
        "MTP",
        Traits(
            modes=_LLMAPI,
            block="mtp",
            upstream=("MTP",),
        ),
    )
    NGRAM = (
        "NGram",
        Traits(
            modes=_LLMAPI,
            drafts_on_host=True,
            cost=DraftCost.LOOKUP,
            block="nGram",
            upstream=("NGram",),
        ),
    )
    DFLASH = (
        "DFlash",
        Traits(
            modes=_LLMAPI,
            draft=DraftKind.HEADS,
            block="dFlash",
            upstream=("DFlash",),
        ),
    )
    DSPARK = (
        "DSpark",
        Traits(
            modes=_LLMAPI,
            draft=DraftKind.OPTIONAL_HEADS,
            block="dSpark",
            upstream=("DSpark",),
        ),
    )
    SUFFIX = "Suffix", Traits(modes=_LLMAPI, drafts_on_host=True, cost=DraftCost.LOOKUP)
    MEDUSA = "Medusa", Traits(modes=_BOTH, block="medusa", upstream=("Medusa",))
    LOOKAHEAD = (
        "Lookahead",
        Traits(modes=_BLS, cost=DraftCost.LOOKUP, block="lookahead", upstream=("Lookahead",)),
    )
    USER_PROVIDED = (
        "UserProvided",
        Traits(
            modes=_LLMAPI,
            draft=DraftKind.OPTIONAL_HEADS,
            drafts_on_host=True,
            block="userProvided",
            block_needs="entryPoint",
            upstream=("User_Provided", "UserProvided"),
        ),
    )
    CUSTOM = (
        "Custom",
        Traits(
            modes=_LLMAPI,
            draft=DraftKind.CUSTOM_HEADS,
            block="custom",
            block_needs="type",
        ),
    )
    NONE = "None", Traits(modes=_BOTH)

    @classmethod
    def of_mode(cls, mode: Mode) -> list[Self]:
        """Those that `mode` runs."""
        return [kind for kind in cls if mode in kind.traits.modes]

    @classmethod
    def of_draft(cls, *drafts: DraftKind) -> list[Self]:
        """Those to which `spec.draft` is one of these."""
        return [kind for kind in cls if kind.traits.draft in drafts]

    @classmethod
    def of_block(cls, block: str) -> list[Self]:
        """Those whose details are in `spec.speculation.<block>`; an alias comes after its type."""
        return [kind for kind in cls if kind.traits.block == block]

    @classmethod
    def of_upstream(cls, name: str) -> Self | None:
        """The one that TensorRT-LLM writes as `name`; None: only the image may know it."""
        return next((kind for kind in cls if name in kind.traits.upstream), None)


def listed(kinds: Iterable[DecodingType], word: str) -> str:
    """Names for a message, e.g. `Medusa, Lookahead or None`."""
    *others, last = kinds
    return f"{', '.join(others)} {word} {last}" if others else str(last)
