"""What a case comes to. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class CaseOutcome(StrEnum):
    """Of a case."""

    VERIFIED = "verified"
    BROKE = "broke"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class CaseResult:
    """A case's outcome, in a sentence why; figures in tokens, seconds, bytes or requests; evidence of what broke."""

    case: str
    outcome: CaseOutcome
    detail: str
    figures: Mapping[str, float | None] = field(default_factory=dict)
    evidence: Sequence[Mapping[str, Any]] = ()


def not_applicable(case: str, why: str) -> CaseResult:
    """A case that says nothing here."""
    return CaseResult(case, CaseOutcome.NOT_APPLICABLE, why)


def of_problems(
    case: str, problems: Sequence[Mapping[str, Any]], detail: str, /, **figures: float | None
) -> CaseResult:
    """BROKE with problems, each of which becomes evidence, else VERIFIED; `detail` holds for both."""
    if problems:
        return CaseResult(case, CaseOutcome.BROKE, f"{problems[0]['problem']}; {detail}", figures, problems)
    return CaseResult(case, CaseOutcome.VERIFIED, detail, figures)


def broke(results: Iterable[CaseResult]) -> bool:
    """Whether any case did."""
    return any(result.outcome is CaseOutcome.BROKE for result in results)
