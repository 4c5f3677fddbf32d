"""Reasons of AcceptedLengthKept, with the likely causes where the length is too short."""

from tandem.api.conditions.registry import ConditionType, Reason, on

_KEPT = ConditionType.ACCEPTED_LENGTH_KEPT


class AcceptanceReason(Reason):
    """Why steps give as many tokens as is asked for, or not."""

    LONG_ENOUGH = (on("True", _KEPT), "LongEnough", "Steps give as many tokens as is asked for.")
    NO_FIGURES = (
        on("Unknown", _KEPT),
        "NoFigures",
        "The operator has no metrics server, which alone knows the accepted length.",
        "Run the metrics server (Helm value `metricsServer.enabled`).",
    )
    DRAFTS_TOO_SHORT = (
        on("False", _KEPT),
        "DraftsTooShort",
        "So few tokens are drafted a step that the minimum cannot be reached.",
        "Draft more (`adaptive.minDraftLen`, `draftLenSchedule`, the requests' `num_draft_tokens`), or lower it.",
    )
    DRAFTER_STALE = (
        on("False", _KEPT),
        "DrafterStale",
        "Nothing was drafted above the schedule's last step, and TensorRT-LLM's drafter missed those tokens.",
        "Raise `maxConcurrency`, or end `draftLenSchedule` with a length of 1.",
    )
    WRONG_DRAFT = (
        on("False", _KEPT),
        "WrongDraft",
        "The target accepts hardly any first token of the draft.",
        "Check that `spec.draft` was made for this target.",
    )
    CONTEXTS_TOO_LONG = (
        on("False", _KEPT),
        "ContextsTooLong",
        "Prompts are longer than the texts that draft heads are trained on.",
        "Take heads that were trained on long texts, or a draft model.",
    )
    ACCEPTS_LITTLE = (
        on("False", _KEPT),
        "AcceptsLittle",
        "The target accepts little of the draft: requests that sample, or other texts than it was made for.",
        "Compare with `tandem bench`; take another draft, or a lower minimum.",
    )
