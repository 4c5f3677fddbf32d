"""What the checks find, as a table or an object. Pure."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from tandem.cli.doctor import cluster, service
from tandem.cli.doctor.facts import Facts, Finding, State
from tandem.cli.words import listing
from tandem.client.generate.format import printable
from tandem.plural import counted

FOUND = "FOUND, AND WHAT TO DO"
STYLES = {State.OK: "green", State.WARN: "yellow", State.FAIL: "red"}


def examine(facts: Facts) -> list[Finding]:
    """All findings."""
    return [finding for check in (*cluster.CHECKS, *service.CHECKS) for finding in check(facts)]


def table(findings: Sequence[Finding]) -> Table:
    """A row each."""
    made = listing(("CHECK", "STATE", FOUND), ("CHECK", FOUND))
    for check, state, message in findings:
        made.add_row(Text(check), Text(state, STYLES[state]), Text(printable(message)))
    return made


def verdict(findings: Sequence[Finding]) -> str:
    """In a line."""
    failed = sum(finding.state is State.FAIL for finding in findings)
    warned = sum(finding.state is State.WARN for finding in findings)
    return f"{counted(failed, 'failure')}, {counted(warned, 'warning')}"


def as_object(findings: Sequence[Finding]) -> dict[str, Any]:
    """For programs."""
    rows = [{"check": check, "state": str(state), "message": message} for check, state, message in findings]
    return {"findings": rows, "failed": failed(findings)}


def failed(findings: Sequence[Finding], *, strict: bool = False) -> bool:
    """Whether anything cannot work; `strict`: or is not as it should be."""
    return any(finding.state is State.FAIL or (strict and finding.state is State.WARN) for finding in findings)
