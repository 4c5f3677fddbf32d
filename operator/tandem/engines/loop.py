"""Who runs the loop of drafting and verifying, by `runtime.mode`: facts that hold for every engine. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from tandem.api.bounds import BLS_SEQUENCES
from tandem.api.decoding import Mode
from tandem.api.types import ServiceSpec


@dataclass(frozen=True)
class Loop:
    """Facts of a mode."""

    chooses_length: bool
    """Whether it chooses each round's draft length, and requests may, too: both may choose none. Else the engine
    drafts as `maxDraftLen` or `draftLenSchedule` says."""
    drafts_apart: bool
    """Whether the draft is an engine of its own, with GPUs of its own."""
    most_sequences: int | None
    """Sequences at once that a pod runs at most, whatever its engines take; None: as many as those."""
    drafts_longer: str
    """How more is drafted a step, for messages."""

    def runs_target_alone(self, spec: ServiceSpec) -> bool:
        """Whether a request can ask for the target alone, and so for what speculation is worth."""
        return self.chooses_length and spec.draft is not None


LOOPS: Mapping[Mode, Loop] = {
    Mode.BLS: Loop(
        chooses_length=True,
        drafts_apart=True,
        most_sequences=BLS_SEQUENCES,
        drafts_longer="raise adaptive.minDraftLen, or what requests ask for (num_draft_tokens)",
    ),
    Mode.LLMAPI: Loop(
        chooses_length=False,
        drafts_apart=False,
        most_sequences=None,
        drafts_longer="raise the lengths of draftLenSchedule",
    ),
}


def loop_of(spec: ServiceSpec) -> Loop:
    """That of a service."""
    return LOOPS[spec.runtime.mode]
