"""The report: JSON to send back, and the same as lines to read. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from tandem.client.conformance.exactness import EPSILON
from tandem.client.conformance.results import CaseOutcome, CaseResult
from tandem.client.generate.format import printable

FORMAT = 1
"""Of the JSON: it grows, and fields keep their meaning."""
STYLES = {CaseOutcome.VERIFIED: "green", CaseOutcome.BROKE: "red", CaseOutcome.NOT_APPLICABLE: "yellow"}
MOST_CHARACTERS = 400
"""Of a message of the server's, as lines show it."""


@dataclass
class Report:
    """What is known so far. `about`: versions, service, pods, node; see `facts`."""

    tandem: str
    began_at: str
    minutes: float
    about: dict[str, Any] = field(default_factory=dict)
    results: list[CaseResult] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether it holds results."""
        return bool(self.results)

    def count(self, outcome: CaseOutcome) -> int:
        """Cases with that outcome."""
        return sum(result.outcome is outcome for result in self.results)


def as_json(report: Report) -> str:
    """The whole report."""
    made = {
        "format": FORMAT,
        "tandem": report.tandem,
        "beganAt": report.began_at,
        "seconds": round(report.seconds, 1),
        "soakMinutes": report.minutes,
        "nearTieLogits": EPSILON,
        **report.about,
        "outcomes": {outcome.value: report.count(outcome) for outcome in CaseOutcome},
        "cases": [_case(result) for result in report.results],
    }
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def _case(result: CaseResult) -> dict[str, Any]:
    return {
        "case": result.case,
        "outcome": result.outcome.value,
        "detail": result.detail,
        "figures": dict(result.figures),
        "evidence": [dict(each) for each in result.evidence],
    }


def lines(report: Report) -> Iterator[Text]:
    """The report to read."""
    yield from (Text(f"{what}: {_short(text)}") for what, text in _about(report.about) if text)
    yield Text()
    wide = max((len(result.case) for result in report.results), default=0)
    for result in report.results:
        outcome = (f"{result.outcome.value:<{len(CaseOutcome.NOT_APPLICABLE)}}", STYLES[result.outcome])
        yield Text.assemble(f"{result.case:<{wide}}  ", outcome, f"  {_short(result.detail)}")
        yield from (Text(f"{'':<{wide}}  {_evidence(each)}") for each in result.evidence[:1] if "got" in each)
    yield Text()
    yield Text(", ".join(f"{report.count(outcome)} {outcome.value}" for outcome in CaseOutcome))


def _about(about: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    service, versions = about.get("service", {}), about.get("versions", {})
    named = ("mode", "decodingType", "profile", "target", "draft")
    return (
        ("service", ", ".join(str(service[name]) for name in named if service.get(name))),
        ("versions", ", ".join(f"{name} {value}" for name, value in versions.items() if value)),
        ("images", ", ".join(about.get("pods", {}).get("images", []))),
        ("node", ", ".join(f"{name} {value}" for name, value in about.get("node", {}).items())),
        ("not read", "; ".join(about.get("notRead", []))),
    )


def _evidence(found: Mapping[str, Any]) -> str:
    prompt, expected, got = (_short(repr(text)) for text in (found["prompt"], *_texts(found)))
    return f"prompt {prompt}: expected {expected}, got {got}"


def _texts(found: Mapping[str, Any]) -> tuple[str, str]:
    return found["expected"]["text"], found["got"]["text"]


def _short(text: str) -> str:
    return printable(text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}...")
