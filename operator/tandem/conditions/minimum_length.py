"""How each revision's accepted length stands against `speculation.minAcceptedLength`, report by report. Pure: time is
an argument.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tandem.metrics.report import RevisionReport, ServiceReport, SpeculationReport

FEWEST_TOKENS = 1000
"""Tokens within a window that show its accepted length: that of 300 rounds varies by about a tenth of a token."""
WINDOWS = 2
"""So many windows in a row on the other side of the minimum change the judgement."""


@dataclass(frozen=True)
class Standing:
    """One revision against a minimum accepted length."""

    minimum: float
    below: bool | None
    """The judgement; None before there is one."""
    seen: RevisionReport = field(compare=False)
    """The report that it was made by."""
    side: bool = field(compare=False)
    """Whether the latest window was below the minimum ..."""
    since: float = field(compare=False)
    """... and since when all were; seconds of the caller's clock."""
    paused: bool = field(default=False, compare=False)
    """Whether the load asked for no drafts at some time since a window was last long enough."""

    @property
    def length(self) -> float:
        """The mean accepted length that was seen."""
        return _length(self.seen)


def standings(before: Mapping[str, Standing], now: ServiceReport, at: float) -> dict[str, Standing]:
    """Each revision that has pods and was seen, by digest. `at`: seconds of one clock.

    A window that shows no length changes no judgement, and breaks a row of windows.
    """
    minimum, found = now.min_accepted_length, dict[str, Standing]()
    for report in now.revisions if minimum is not None else ():
        prior = before.get(report.revision)
        if prior and prior.minimum != minimum:
            prior = None
        if _shows(report):
            first = Standing(minimum or 0.0, None, report, _length(report) < (minimum or 0.0), at)
            found[report.revision] = _after(prior or first, report, at, now.window_seconds)
        elif prior and prior.below is not None:
            paused = prior.paused or _pauses(report.speculation)
            found[report.revision] = replace(prior, side=prior.below, since=at, paused=paused)
    return found


def _after(prior: Standing, report: RevisionReport, at: float, window: float) -> Standing:
    """What stands after a window that shows a length. A first one that is long enough is a judgement."""
    side = _length(report) < prior.minimum
    since = prior.since if prior.side is side else at
    settles = at - since >= (WINDOWS - 1) * window or (prior.below is None and not side)
    below = side if settles else prior.below
    seen = prior.seen if below is prior.below else report
    return replace(prior, below=below, seen=seen, side=side, since=since, paused=side and prior.paused)


def _shows(report: RevisionReport) -> bool:
    """Whether the window has enough tokens of rounds that drafted."""
    tokens = report.speculation.samples * _length(report)
    return tokens >= FEWEST_TOKENS and report.speculation.drafted is not False and not _pauses(report.speculation)


def _pauses(speculation: SpeculationReport) -> bool:
    """Whether the specification drafts nothing at this load."""
    return speculation.asked_length == 0


def _length(report: RevisionReport) -> float:
    return report.speculation.mean_accepted_length or 0.0
