"""The condition on `speculation.minAcceptedLength`, with the likely cause where it is not kept. Pure."""

from collections.abc import Iterator

from tandem.api.conditions import AcceptanceReason, ConditionType, ExternalReason, Reason, ServingReason
from tandem.api.decoding import DraftKind
from tandem.api.types import ServiceSpec, SpeculativeInferenceService
from tandem.conditions.finding import Finding
from tandem.conditions.minimum_length import WINDOWS, Standing
from tandem.conditions.situation import Situation
from tandem.conditions.writes import Reading
from tandem.engines import loop_of

WRONG_DRAFT = 0.1
"""A draft of the target's own family has half of its first tokens accepted or more; one that guesses, hardly any."""
LONG_PROMPT = 4096
"""Tokens. Heads are trained on texts of up to 2,048 (EAGLE's own training) or 4,096 (SpecForge's default), and
accept less beyond."""
_HEADS = (DraftKind.HEADS, DraftKind.OPTIONAL_HEADS, DraftKind.CUSTOM_HEADS)


def accepted_length(situation: Situation) -> Iterator[Finding]:
    """AcceptedLengthKept, of the revision whose pods serve; nothing where the specification asks for no length."""
    service, kind = situation.service, ConditionType.ACCEPTED_LENGTH_KEPT
    minimum, reading = service.spec.speculation.min_accepted_length, situation.reading
    if minimum is None:
        return
    if reading is None:
        message = "without a metrics server no accepted length is known: run one (Helm value metricsServer.enabled)"
        yield Finding(kind, "Unknown", AcceptanceReason.NO_FIGURES, message)
    elif reading.idle:
        yield Finding(kind, "Unknown", ServingReason.NO_TRAFFIC, "no tokens are generated")
    else:
        revision = situation.observed.live_revision
        yield _unchanged(service, _finding(service, minimum, reading, revision), revision)


def falls_below(reading: Reading | None, spec: ServiceSpec, revision: str) -> float | None:
    """The accepted length of `revision` where it is below the minimum that `spec` asks for; None where it is not, or
    that is not known."""
    standing = reading.standings.get(revision) if reading else None
    if standing is None or standing.minimum != spec.speculation.min_accepted_length or not standing.below:
        return None
    return standing.length


def is_kept(reading: Reading | None, revision: str | None) -> bool:
    """Whether the accepted length of `revision` was seen to be long enough."""
    standing = reading.standings.get(revision or "") if reading else None
    return standing is not None and standing.below is False


def was_below(service: SpeculativeInferenceService) -> bool:
    """Whether the status has it that the minimum is not kept: by the revision that served last, until the next one is
    judged."""
    before = _before(service)
    return before is not None and before.status == "False"


def _finding(service: SpeculativeInferenceService, minimum: float, reading: Reading, revision: str) -> Finding:
    kind, standing = ConditionType.ACCEPTED_LENGTH_KEPT, reading.standings.get(revision)
    if standing is None or standing.minimum != minimum or standing.below is None:
        before = _before(service)
        # Too short a length stands against its successor too, until that is judged: see `was_below`.
        stands = (
            before and before.status != "Unknown" and (before.status == "False" or _of(revision) in before.message)
        )
        if before and stands and _asked(minimum) in before.message:
            return before
        return Finding(kind, "Unknown", ServingReason.TOO_FEW_TOKENS, "too few draft-and-verify steps to judge")
    asked = _asked(minimum)
    if not standing.below:
        message = f"the mean accepted length is at least {asked}{_of(revision)}"
        return Finding(kind, "True", AcceptanceReason.LONG_ENOUGH, message)
    reason, cause = _cause(service.spec, standing)
    window = reading.report.window_seconds if reading.report else 0
    windows = f"for {WINDOWS} windows of {window:g} s"
    return Finding(
        kind,
        "False",
        reason,
        f"mean accepted length {standing.length:.2f}, below {asked} {windows}: {cause}{_of(revision)}",
    )


Cause = tuple[Reason, str]
"""A reason, and what was seen and what to do."""


def _cause(spec: ServiceSpec, standing: Standing) -> Cause:
    """The likeliest cause that the figures show."""
    causes = (cause for each in _CAUSES if (cause := each(spec, standing)))
    return next(causes, _ACCEPTS_LITTLE)


def _drafts_too_short(spec: ServiceSpec, standing: Standing) -> Cause | None:
    seen = standing.seen.speculation
    drafts = min((n for n in (seen.draft_length, seen.asked_length) if n is not None), default=None)
    if drafts is None or drafts + 1 >= standing.minimum:
        return None
    return AcceptanceReason.DRAFTS_TOO_SHORT, (
        f"{drafts:.1f} tokens are drafted a step, which gives {drafts + 1:.1f} at most: {_longer(spec)}, or lower the"
        " minimum"
    )


def _drafter_stale(spec: ServiceSpec, standing: Standing) -> Cause | None:
    if not standing.paused or spec.speculation.decoding_type.traits.drafts_on_host:
        return None
    return AcceptanceReason.DRAFTER_STALE, (
        "the load was above the draft length schedule before, and the drafter misses the tokens of that"
        " time until those requests end: raise maxConcurrency, or end draftLenSchedule with 1 instead of 0"
    )


def _wrong_draft(spec: ServiceSpec, standing: Standing) -> Cause | None:
    positions = standing.seen.speculation.accepted_per_position
    if not positions or positions[0] >= WRONG_DRAFT or spec.speculation.decoding_type.traits.draft is DraftKind.NONE:
        return None
    return AcceptanceReason.WRONG_DRAFT, (
        f"the target accepts the first draft token in {positions[0]:.0%} of the steps: check that spec.draft, at its"
        " revision, was made for this target"
    )


def _contexts_too_long(spec: ServiceSpec, standing: Standing) -> Cause | None:
    prompt = standing.seen.mean_prompt_tokens
    if prompt is None or prompt <= LONG_PROMPT or spec.speculation.decoding_type.traits.draft not in _HEADS:
        return None
    return AcceptanceReason.CONTEXTS_TOO_LONG, (
        f"prompts have {prompt:,.0f} tokens on average, and heads are mostly trained on texts of up to"
        f" {LONG_PROMPT:,}: take heads that were trained on longer ones, or a draft model"
    )


_CAUSES = (_drafts_too_short, _drafter_stale, _wrong_draft, _contexts_too_long)
"""The surest first."""
_ACCEPTS_LITTLE: Cause = (
    AcceptanceReason.ACCEPTS_LITTLE,
    "requests that sample at a high temperature, or texts unlike those that the draft was made for: compare with"
    " tandem bench on greedy requests, and take another draft or a lower minimum",
)


def _longer(spec: ServiceSpec) -> str:
    """How more is drafted a step."""
    return loop_of(spec).drafts_longer


def _asked(minimum: float) -> str:
    return f"speculation.minAcceptedLength ({minimum:g})"


def _of(revision: str) -> str:
    return f" (revision {revision})" if revision else ""


def _before(service: SpeculativeInferenceService) -> Finding | None:
    kind = ConditionType.ACCEPTED_LENGTH_KEPT
    before = next((c for c in service.status.conditions if c.type == kind), None)
    return Finding(kind, before.status, ExternalReason(before.reason), before.message) if before else None


def _unchanged(service: SpeculativeInferenceService, finding: Finding, revision: str) -> Finding:
    """With the message of before while the judgement is that of before, of the same revision: an operator that starts
    writes nothing."""
    before, minimum = _before(service), service.spec.speculation.min_accepted_length
    same = before and (before.status, before.reason) == (finding.status, finding.reason)
    known = before and minimum and _asked(minimum) in before.message and _of(revision) in before.message
    return before if before and same and known else finding
