"""From what the clients of a closed loop saw to speeds, latencies and their ratios. Pure.

Definitions:

- tokens/s: tokens that arrived within a window, of all streams, over its seconds.
- time to first token: from sending a request to its first token, where that came within the window.
- inter-token latency: seconds from a request's first token to its last over the tokens after the first, of requests
  that ended within the window.
- speed-up: tokens/s with speculation over tokens/s without, windows next to each other in time; the median of the
  pairs, so that what slows the machine down for a while does not count for one side alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from tandem.client.generate.figures import Completion


@dataclass(frozen=True)
class Window:
    """What a closed loop did within `seconds`: tokens that came, requests that ended, first tokens (seconds).

    `refusals`: the server's messages to requests that it refused.
    """

    seconds: float
    tokens: int
    completions: tuple[Completion, ...]
    first_tokens: tuple[float, ...]
    refusals: tuple[str, ...] = ()

    @property
    def tokens_per_second(self) -> float:
        """Tokens a second of all streams together."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class Side:
    """One way to serve (with speculation, or without): its windows at a load."""

    windows: tuple[Window, ...]

    @property
    def tokens_per_second(self) -> float:
        """Median of the windows."""
        return median(window.tokens_per_second for window in self.windows)

    @property
    def spread(self) -> tuple[float, float]:
        """Tokens a second of the slowest window and of the fastest."""
        found = [window.tokens_per_second for window in self.windows]
        return min(found), max(found)

    @property
    def requests(self) -> int:
        """Requests that ended within a window."""
        return sum(len(window.completions) for window in self.windows)

    @property
    def first_token(self) -> float | None:
        """Median time to the first token, seconds; None when none came."""
        return _median([seconds for window in self.windows for seconds in window.first_tokens])

    @property
    def inter_token(self) -> float | None:
        """Median inter-token latency of the requests, seconds; None when none with two tokens ended."""
        found = [c for w in self.windows for c in w.completions if len(c.ids) > 1]
        return _median([(c.seconds - c.first_token_seconds) / (len(c.ids) - 1) for c in found])

    @property
    def refusals(self) -> list[str]:
        """The server's messages to requests that it refused."""
        return [text for window in self.windows for text in window.refusals]

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over proposed draft tokens of the requests that ended; None when none were proposed."""
        totals = [completion.totals for window in self.windows for completion in window.completions]
        drafted = sum(total.draft_tokens for total in totals)
        return sum(total.accepted_draft_tokens for total in totals) / drafted if drafted else None

    @property
    def mean_accepted_length(self) -> float | None:
        """Tokens a target pass, of the requests that ended; None when none speculated."""
        found = [c for w in self.windows for c in w.completions if c.mean_accepted_length is not None]
        passes = sum(completion.passes for completion in found)
        return 1 + sum(completion.accepted for completion in found) / passes if passes else None


LONGER = "make the windows longer (--seconds), or the answers shorter (--max-tokens)"


class Effect(StrEnum):
    """What speculation does at a load."""

    PAYS = "pays"
    HARMS = "harms"
    UNCLEAR = "makes no clear difference"


@dataclass(frozen=True)
class Level:
    """A load of `streams` requests at once: both sides, whose windows are pairs."""

    streams: int
    speculative: Side
    alone: Side

    @property
    def speedups(self) -> list[float]:
        """Speed-up of each pair of windows; pairs in which the target alone made no tokens are left out."""
        pairs = zip(self.speculative.windows, self.alone.windows, strict=True)
        return [s.tokens_per_second / a.tokens_per_second for s, a in pairs if a.tokens]

    @property
    def speedup(self) -> float | None:
        """Their median; None without any."""
        return _median(self.speedups)

    @property
    def outcome(self) -> Effect | None:
        """What all pairs agree on, as the service's condition SpeculationBeneficial; None without any, or where one
        side ended no request."""
        if not (self.speedups and self.speculative.requests and self.alone.requests):
            return None
        if min(self.speedups) > 1:
            return Effect.PAYS
        return Effect.HARMS if max(self.speedups) < 1 else Effect.UNCLEAR


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def problem(levels: Sequence[Level]) -> str:
    """Why the levels say nothing of speculation; empty where they do."""
    if any(level.alone.acceptance_rate is not None for level in levels):
        return "the service of --against speculates too: give one of decodingType None"
    if not any(level.speedups for level in levels):
        return "no tokens came without speculation, so there is no comparison: make the windows longer (--seconds)"
    if all(level.outcome is None for level in levels):
        return f"at no load both sides ended a request, so there is no verdict: {LONGER}"
    return ""


def unjudged(levels: Sequence[Level]) -> str:
    """Loads without a verdict where others have one; empty where all have."""
    loads = [str(level.streams) for level in levels if level.outcome is None]
    if not loads or len(loads) == len(levels):
        return ""
    return f"no verdict at {', '.join(loads)} streams, where one side ended no request: {LONGER}"


def refused(levels: Sequence[Level]) -> str:
    """How many requests were refused, and what to do about it; empty where none was."""
    found = {level.streams: level.speculative.refusals + level.alone.refusals for level in levels}
    messages = [text for texts in found.values() for text in texts]
    if not messages:
        return ""
    counts = ", ".join(f"{len(texts)} at {streams} streams" for streams, texts in found.items() if texts)
    return (
        f"requests that the server refused are left out ({counts}; the last: {messages[-1]}): measure with fewer"
        " --streams, or when there is no other traffic"
    )


def verdict(levels: Sequence[Level]) -> str:
    """What the figures come to, in one sentence, with what to do about it."""
    if reason := problem(levels):
        return reason
    streams = {outcome: [level.streams for level in levels if level.outcome is outcome] for outcome in Effect}
    found = {outcome: loads for outcome, loads in streams.items() if loads}
    if len(found) == 1:
        (outcome,) = found
        load = "any load" if outcome is Effect.UNCLEAR else "every load"
        return f"speculation {outcome} at {load} measured{_advice({outcome})}"
    parts = [f"{outcome} at {', '.join(map(str, loads))}" for outcome, loads in found.items()]
    return f"speculation {', '.join(parts)} streams{_advice(set(found))}"


def _advice(found: set[Effect]) -> str:
    if found == {Effect.HARMS}:
        return ": write speculation.decodingType: None, or another draft"
    if Effect.HARMS in found:
        return (
            ": let the draft length follow the load (speculation.adaptive in mode BLS; draftLenSchedule in mode"
            " LLMAPI)"
        )
    return ": measure for longer (--seconds, --repeats)" if Effect.UNCLEAR in found else ""
