"""The mix, again and again, for as long as was asked for."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tandem.client.conformance.cases import Case, cancels, mixed, stop_words
from tandem.client.conformance.results import CaseOutcome, CaseResult, of_problems
from tandem.client.conformance.subject import Subject
from tandem.plural import counted

ROUND: tuple[Case, ...] = (mixed, cancels, mixed, stop_words)
MOST_EVIDENCE = 5


async def soak(
    subject: Subject, minutes: float, look: Callable[[], Awaitable[None]], progress: Callable[[str], None]
) -> CaseResult:
    """Repeat the mix for so many minutes; `look` is called after each round."""
    begun = time.monotonic()
    rounds, broken, tokens = 0, 0, 0.0
    problems: list[Mapping[str, Any]] = []
    while (passed := time.monotonic() - begun) < 60 * minutes:
        progress(f"soak: {passed / 60:.0f} of {minutes:g} minutes, {counted(rounds, 'round')}, {broken} broke")
        for case in ROUND:
            result = await case(subject)
            tokens += result.figures.get("tokens") or 0
            if result.outcome is CaseOutcome.BROKE:
                broken += 1
                at = {"minute": round((time.monotonic() - begun) / 60, 1)}
                problems += [{**each, **at} for each in result.evidence][: MOST_EVIDENCE - len(problems)]
        rounds += 1
        await look()
    detail = f"{counted(rounds, 'round')} in {passed / 60:.0f} minutes, {counted(broken, 'case')} broke"
    return of_problems("soak", problems, detail, rounds=rounds, tokens=tokens, broken=broken)
