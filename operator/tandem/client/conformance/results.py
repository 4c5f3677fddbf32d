"""What a case comes to. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """Of a case."""

    VERIFIED = "verified"
    BROKE = "broke"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Result:
    """A case's outcome, in a sentence why; figures in tokens, seconds, bytes or requests; evidence of what broke."""

    case: str
    outcome: Outcome
    detail: str
    figures: Mapping[str, float | None] = field(default_factory=dict)
    evidence: Sequence[Mapping[str, Any]] = ()


def not_applicable(case: str, why: str) -> Result:
    """A case that says nothing here."""
    return Result(case, Outcome.NOT_APPLICABLE, why)


def of_problems(case: str, problems: Sequence[Mapping[str, Any]], detail: str, /, **figures: float | None) -> Result:
    """BROKE with problems, each of which becomes evidence, else VERIFIED; `detail` holds for both."""
    if problems:
        return Result(case, Outcome.BROKE, f"{problems[0]['problem']}; {detail}", figures, problems)
    return Result(case, Outcome.VERIFIED, detail, figures)


def broke(results: Iterable[Result]) -> bool:
    """Whether any case did."""
    return any(result.outcome is Outcome.BROKE for result in results)
