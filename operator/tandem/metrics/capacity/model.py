"""What a replica can do: tokens a second by load, at the acceptance seen. Fitted online, pure.

With b sequences running and k draft tokens each, a round takes T(b, k) (`step_time`) and gives tau(k) tokens a
sequence (`acceptance`): a token comes every T/tau seconds (ITL), and the replica makes G = b tau/T tokens a second,
its goodput (Liu et al., 2024, "Optimizing Speculative Decoding for Serving Large Language Models Using Goodput",
arXiv:2406.14066).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tandem.metrics.capacity.acceptance import Drafts, PositionalAcceptance
from tandem.metrics.capacity.lengths import Lengths
from tandem.metrics.capacity.step_time import Array, StepTime
from tandem.metrics.telemetry.figures import Figures, PodFigures

# Loads are believed up to so many times the highest that was seen, and up to this many sequences in any case.
EXTRAPOLATE = 2.0
FAMILIAR = 4.0
# A pod says nothing about its speed with fewer tokens than this in a window.
LEAST_TOKENS = 20


@dataclass(frozen=True)
class Steps:
    """A pod's steps in a window: means."""

    rows: float
    """Sequences that generated at once (Little's law: the steps' time over the window's)."""
    k: float
    """Draft tokens a step."""
    seconds: float
    """Of a step."""
    tokens: float
    """That a step gave each sequence."""


@dataclass(frozen=True)
class Curve:
    """A replica by load: with 1, 2, ... sequences at once, the draft length it would use, and the time between
    tokens (s)."""

    k: npt.NDArray[np.int64]
    itl: Array

    @property
    def goodput(self) -> Array:
        """Tokens a second, by load."""
        return np.arange(1, len(self.itl) + 1) / self.itl

    def bound(self, itl: float | None) -> int:
        """The largest load that keeps the inter-token latency (s); 1 where none does."""
        if itl is None:
            return len(self.itl)
        kept = np.flatnonzero(self.itl <= itl)
        return int(kept[-1]) + 1 if len(kept) else 1

    def goodput_at(self, rows: float) -> float:
        """Tokens a second with so many sequences at once (0 and more; fractions allowed), at least as many as with
        fewer."""
        loads = np.arange(len(self.itl) + 1)
        return float(np.interp(rows, loads, np.concatenate([[0.0], np.maximum.accumulate(self.goodput)])))


class ReplicaModel:
    """The fitted replica. `depth`: the longest draft; `draft_share`: see `StepTime`."""

    def __init__(self, depth: int, draft_share: float) -> None:
        self.acceptance = PositionalAcceptance(depth)
        self.step_time = StepTime(draft_share)
        self._depth = depth
        self._at: float | None = None

    @property
    def known(self) -> bool:
        """Whether any steps were observed."""
        return self.step_time.known

    def observe(self, figures: Figures, lengths: Lengths) -> None:
        """Learn from a window; windows may overlap."""
        passed = None if self._at is None else max(0.0, figures.at - self._at)
        self._at = figures.at
        self.step_time.pass_time(passed or 0.0)
        drafts = _drafts(figures.pods, lengths)
        if drafts:
            self.acceptance.observe(drafts)
        for pod in figures.pods:
            steps = steps_of(pod, lengths)
            if steps:
                weight = 1.0 if passed is None else min(1.0, passed / pod.seconds)
                self.step_time.observe(steps.rows, min(steps.k, self._depth), steps.seconds, weight)

    def curve(self, most: int, lengths: Lengths, *, hopeless: bool = False) -> Curve:
        """A replica with 1 to `most` sequences, or as many as can be judged, at the best length that it may use.

        `hopeless`: as if no draft token were accepted.
        """
        familiar = int(max(FAMILIAR, EXTRAPOLATE * self.step_time.rows))
        rows = np.arange(1.0, min(most, familiar) + 1)
        k = np.arange(self._depth + 1.0)
        tau = np.array([1.0 if hopeless else self.acceptance.expected(int(length)) for length in k])
        itl = np.maximum(self.step_time.seconds(rows[:, None], k[None]), 1e-6) / tau
        for i, count in enumerate(rows):
            may = lengths.at(count)
            itl[i, [length not in may for length in range(len(k))]] = np.inf
        best = itl.argmin(axis=1)
        return Curve(best, itl[np.arange(len(rows)), best])


def _drafts(pods: tuple[PodFigures, ...], lengths: Lengths) -> Drafts | None:
    """The rounds of all pods; None where nothing was drafted, or no engine reports it."""
    reporting = [pod for pod in pods if pod.rounds and pod.accepted_tokens is not None]
    if not reporting:
        return None
    return Drafts(
        rounds=sum(pod.rounds or 0.0 for pod in reporting),
        drafted=sum(_drafted(pod, lengths) for pod in reporting),
        accepted=sum(pod.accepted_tokens or 0.0 for pod in reporting),
        per_position=Figures(0.0, tuple(reporting)).accepted_per_position,
    )


def _drafted(pod: PodFigures, lengths: Lengths) -> float:
    """Tokens drafted; where the engine does not report them, as many as the specification has it draft."""
    if pod.draft_tokens is not None:
        return pod.draft_tokens
    return (pod.rounds or 0.0) * max(lengths.at(pod.running or 1.0))


def steps_of(pod: PodFigures, lengths: Lengths) -> Steps | None:
    """A pod's steps; None where it reported too little.

    Each step gives its accepted tokens and one of the target's own, so steps = tokens - accepted tokens.
    """
    latency, tokens = pod.inter_token_latency, pod.generation_tokens
    if latency is None or not tokens or tokens < LEAST_TOKENS or latency.count < LEAST_TOKENS or pod.seconds <= 0:
        return None
    steps = tokens - min(pod.accepted_tokens or 0.0, 0.99 * tokens)
    drafted = _drafted(pod, lengths) if pod.rounds and pod.accepted_tokens is not None else 0.0
    seconds = latency.total / latency.count * tokens / steps
    return Steps(rows=latency.total / pod.seconds, k=drafted / steps, seconds=seconds, tokens=tokens / steps)
