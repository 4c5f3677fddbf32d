"""Settings that change the output: it is no longer that of the target alone."""

from tandem.accept.rule import Warn
from tandem.api.decoding import DraftKind, Mode
from tandem.api.profile import Profile
from tandem.api.types import ServiceSpec


def _threshold(spec: ServiceSpec, profile: Profile) -> str | None:
    threshold = spec.speculation.acceptance.threshold
    if threshold is None:
        return None
    return f"speculation.acceptance.threshold {threshold:g} is lossy: the output is not distributed as the target's"


def _relaxed(spec: ServiceSpec, profile: Profile) -> str | None:
    if not spec.speculation.mtp or not spec.speculation.mtp.relaxed_acceptance:
        return None
    return "speculation.mtp.relaxedAcceptance is lossy: while the model thinks, its text is not the target's own"


def _samples(spec: ServiceSpec, profile: Profile) -> str | None:
    """Where a sample differs from the draft's, TensorRT-LLM draws once more: externalDraftTokensLayer.cpp."""
    verifies = spec.runtime.mode is Mode.BLS and spec.speculation.decoding_type.traits.draft is DraftKind.MODEL
    if not verifies or profile.engine_backend != "tensorrtllm" or spec.speculation.acceptance.method == "Logits":
        return None
    return (
        "speculation.acceptance.method TokenMatch is lossy on TensorRT engines for requests that sample: draft tokens"
        " come out more often than the target's own; greedy requests are exact, and so is num_draft_tokens 0"
    )


WARNINGS: tuple[Warn, ...] = (_threshold, _relaxed, _samples)
