"""The models that a service names, by role. Pure."""

from enum import StrEnum

from tandem.api.decoding import DraftKind
from tandem.api.types import ServiceSpec, Source


class Role(StrEnum):
    """What a model is to the service."""

    TARGET = "target"
    DRAFT = "draft"
    TARGET_ENGINE = "target-engine"
    DRAFT_ENGINE = "draft-engine"
    TARGET_TOKENIZER = "target-tokenizer"
    DRAFT_TOKENIZER = "draft-tokenizer"
    MEDUSA_HEADS = "medusa-heads"


ENGINES = {Role.TARGET: Role.TARGET_ENGINE, Role.DRAFT: Role.DRAFT_ENGINE}
"""Role of the engine that was brought along for a model."""
TOKENIZERS = {Role.TARGET: Role.TARGET_TOKENIZER, Role.DRAFT: Role.DRAFT_TOKENIZER}
"""Role of a model's tokenizer that is not in the model's folder."""


def references(spec: ServiceSpec) -> dict[Role, Source]:
    """All models, and the engines, tokenizers and heads that come from elsewhere."""
    found: dict[Role, Source] = {Role.TARGET: spec.target.model}
    if spec.draft:
        found[Role.DRAFT] = spec.draft.model
    if spec.target.engine and spec.target.engine.prebuilt:
        found[Role.TARGET_ENGINE] = spec.target.engine.prebuilt
    if spec.draft and spec.draft.engine and spec.draft.engine.prebuilt:
        found[Role.DRAFT_ENGINE] = spec.draft.engine.prebuilt
    if spec.target.model.tokenizer:
        found[Role.TARGET_TOKENIZER] = spec.target.model.tokenizer
    if spec.draft and spec.draft.model.tokenizer:
        found[Role.DRAFT_TOKENIZER] = spec.draft.model.tokenizer
    if spec.speculation.medusa and spec.speculation.medusa.heads:
        found[Role.MEDUSA_HEADS] = spec.speculation.medusa.heads
    return found


def drafts_by_heads(spec: ServiceSpec) -> bool:
    """Whether the draft is heads, such as Eagle3's: weights that the engine alone can read, without a tokenizer."""
    return spec.draft is not None and spec.speculation.decoding_type.traits.draft is not DraftKind.MODEL


def downloads(spec: ServiceSpec) -> dict[Role, Source]:
    """Those of `references` that a Job fetches into the cache volume."""
    return {role: reference for role, reference in references(spec).items() if reference.scheme.downloaded}
