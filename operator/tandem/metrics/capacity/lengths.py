"""Which draft lengths a replica may use at a load: chosen by the BLS, a schedule, or fixed. Pure."""

from dataclasses import dataclass

from tandem.api.decoding import DecodingType, DraftCost, DraftKind
from tandem.api.types import DraftLenStep, ServiceSpec
from tandem.engines import loop_of

_SHARES = {DraftCost.MODEL: 1 / 6, DraftCost.HEADS: 0.05, DraftCost.LOOKUP: 0.01}
"""What a draft token takes, relative to a step of the target, before anything was seen."""


@dataclass(frozen=True)
class Lengths:
    """Draft lengths by load. `minimum` to `maximum` (0 too where the minimum is 0) are chosen among by what is best
    where `adaptive`; else the `steps` say, and 0 above them."""

    minimum: int
    maximum: int
    adaptive: bool
    steps: tuple[DraftLenStep, ...] = ()

    def at(self, rows: float) -> tuple[int, ...]:
        """Lengths that may be used with so many sequences at once."""
        if self.adaptive:
            return tuple(range(self.minimum, self.maximum + 1))
        return (next((step.draft_len for step in self.steps if rows <= step.max_batch_size), 0),)


def asked_for(spec: ServiceSpec, running: float) -> float | None:
    """Draft tokens a step that the specification asks a replica for with so many sequences at once.

    None where the pods choose, and requests too, and both may choose none.
    """
    return None if loop_of(spec).chooses_length else float(lengths(spec).at(running)[0])


def lengths(spec: ServiceSpec) -> Lengths:
    """What the service's specification lets its replicas draft."""
    speculation, unbounded = spec.speculation, spec.serving.max_batch_size
    if speculation.decoding_type is DecodingType.NONE:
        return Lengths(0, 0, adaptive=False)
    maximum = speculation.max_draft_len
    follows = loop_of(spec).chooses_length and speculation.decoding_type.traits.draft is DraftKind.MODEL
    if follows and speculation.adaptive.enabled:
        return Lengths(speculation.adaptive.min_draft_len, maximum, adaptive=True)
    if speculation.draft_len_schedule is not None:
        return Lengths(0, maximum, adaptive=False, steps=tuple(speculation.draft_len_schedule))
    last = speculation.max_concurrency or unbounded
    return Lengths(0, maximum, adaptive=False, steps=(DraftLenStep(max_batch_size=last, draft_len=maximum),))


def draft_share(spec: ServiceSpec) -> float:
    """Guess of what a draft token takes, relative to a step of the target."""
    return _SHARES[spec.speculation.decoding_type.traits.cost]
