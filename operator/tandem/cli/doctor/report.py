"""What the checks find, as a table or an object. Pure."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from tandem.cli.doctor import cluster, service
from tandem.cli.doctor.facts import CheckFinding, CheckState, ClusterFacts
from tandem.cli.words import listing
from tandem.client.generate.format import printable
from tandem.plural import counted

FOUND = "FOUND, AND WHAT TO DO"
STYLES = {CheckState.OK: "green", CheckState.WARN: "yellow", CheckState.FAIL: "red"}


def examine(facts: ClusterFacts) -> list[CheckFinding]:
    """All findings."""
    return [finding for check in (*cluster.CHECKS, *service.CHECKS) for finding in check(facts)]


def table(findings: Sequence[CheckFinding]) -> Table:
    """A row each."""
    made = listing(("CHECK", "STATE", FOUND), ("CHECK", FOUND))
    for check, state, message in findings:
        made.add_row(Text(check), Text(state, STYLES[state]), Text(printable(message)))
    return made


def verdict(findings: Sequence[CheckFinding]) -> str:
    """In a line."""
    failed = sum(finding.state is CheckState.FAIL for finding in findings)
    warned = sum(finding.state is CheckState.WARN for finding in findings)
    return f"{counted(failed, 'failure')}, {counted(warned, 'warning')}"


def as_object(findings: Sequence[CheckFinding]) -> dict[str, Any]:
    """For programs."""
    rows = [{"check": check, "state": str(state), "message": message} for check, state, message in findings]
    return {"findings": rows, "failed": failed(findings)}


def failed(findings: Sequence[CheckFinding], *, strict: bool = False) -> bool:
    """Whether anything cannot work; `strict`: or is not as it should be."""
    return any(
        finding.state is CheckState.FAIL or (strict and finding.state is CheckState.WARN) for finding in findings
    )
