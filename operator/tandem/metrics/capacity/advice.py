"""A draft length schedule that would serve better (mode LLMAPI), by the fitted model. Pure.

It is advice: a change of the schedule is a new revision of the service, so a person or git applies it, and it is
given only when it is worth that, for some time, and not taken back at once.

It drafts one token at least, at every load: where TensorRT-LLM drafts none, as it does above `maxConcurrency`, its
drafters go stale, and acceptance collapses for what is left of each request.
https://github.com/NVIDIA/TensorRT-LLM/pull/16888
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tandem.api.bounds import SCHEDULE_STEPS
from tandem.api.types import DraftLenStep, ServiceSpec
from tandem.engines import loop_of
from tandem.metrics.capacity.lengths import Lengths
from tandem.metrics.capacity.model import Curve, ReplicaModel, Steps
from tandem.metrics.report import ScheduleAdvice

# Tokens a second, divided by those of today, from which on a change is advised, for so many windows in a row.
GAIN = 1.1
WINDOWS = 3
# Seconds for which what was advised stays so.
DWELL = 1800.0
# A longer schedule must be better by this share.
TOLERANCE = 0.02
# A gain must be one in 90 of 100 cases (standard deviations), and not a mere guess (relative standard deviation).
SURE = 1.28
MOST_DOUBT = 0.25
# After so many seconds a load that was seen counts half.
HALF_LIFE = 3600.0


class Loads:
    """How long replicas had how many sequences at once, lately."""

    def __init__(self) -> None:
        self.weights: dict[int, float] = {}

    def observe(self, steps: Sequence[Steps], passed: float) -> None:
        """So many seconds were spent with each of these."""
        keep = 0.5 ** (passed / HALF_LIFE)
        self.weights = {rows: kept for rows, weight in self.weights.items() if (kept := weight * keep) > 1e-3}
        for each in steps if passed > 0 else ():
            rows = max(1, round(each.rows))
            self.weights[rows] = self.weights.get(rows, 0.0) + passed


@dataclass(frozen=True)
class Proposal:
    """A rule for the draft length other than today's."""

    lengths: Lengths
    gain: float
    doubt: float

    @property
    def worthwhile(self) -> bool:
        """Whether it is better by enough, and beyond doubt."""
        return self.gain >= GAIN and self.doubt <= MOST_DOUBT and self.gain * math.exp(-SURE * self.doubt) >= 1


def propose(model: ReplicaModel, spec: ServiceSpec, today: Lengths, loads: Loads) -> Proposal | None:
    """What would be best at the loads seen; None where there is nothing to choose."""
    # For types that follow a schedule only in some engines nothing is advised.
    follows = not loop_of(spec).chooses_length and spec.speculation.decoding_type.traits.follows_schedule
    if not follows or not today.maximum or not model.known or not loads.weights:
        return None
    most = spec.serving.max_batch_size
    table = {k: model.curve(most, _fixed(k, most)) for k in range(today.maximum + 1)}
    steps = _schedule(table, today.maximum, most)
    return _compare(model, table, today, Lengths(0, today.maximum, adaptive=False, steps=steps), loads)


def _fixed(k: int, most: int) -> Lengths:
    return Lengths(0, k, adaptive=False, steps=(DraftLenStep(max_batch_size=most, draft_len=k),))


def _schedule(table: dict[int, Curve], first: int, most: int) -> tuple[DraftLenStep, ...]:
    """The best length above 0 at each load, with as few steps as lose little. The first drafts `first`:
    TensorRT-LLM's rule; loads beyond those that can be judged keep the last one."""
    itl = np.stack([table[k].itl for k in range(1, first + 1)])
    tolerance = TOLERANCE
    while len(steps := _steps(itl, first, most, tolerance)) > SCHEDULE_STEPS:
        tolerance *= 2
    return steps


def _steps(
    itl: np.ndarray[tuple[int, ...], np.dtype[np.float64]], first: int, most: int, tolerance: float
) -> tuple[DraftLenStep, ...]:
    """`itl`: seconds a token, by draft length from 1 on and load from 1 on."""
    ends: list[DraftLenStep] = []
    k = first
    for rows in range(2, itl.shape[1] + 1):
        at = itl[:, rows - 1]
        if at[k - 1] > (1 + tolerance) * at.min():
            ends.append(DraftLenStep(max_batch_size=rows - 1, draft_len=k))
            k = int(at.argmin()) + 1
    return (*ends, DraftLenStep(max_batch_size=most, draft_len=k))


def _compare(model: ReplicaModel, table: dict[int, Curve], today: Lengths, new: Lengths, loads: Loads) -> Proposal:
    total = gain = doubt = 0.0
    for rows, weight in loads.weights.items():
        (old_k,), (new_k,) = today.at(rows), new.at(rows)
        place = min(rows, len(table[0].itl)) - 1
        total += weight
        gain += weight * table[old_k].itl[place] / table[new_k].itl[place]
        doubt += weight * model.step_time.ratio_doubt(rows, old_k, new_k)
    return Proposal(new, gain / total, doubt / total)


class Advisor:
    """What is advised, from window to window."""

    def __init__(self) -> None:
        self._given: ScheduleAdvice | None = None
        self._given_at = 0.0
        self._since: float | None = None

    def update(self, at: float, window: float, proposal: Proposal | None) -> ScheduleAdvice | None:
        """The advice at a time (Unix seconds), after a window of so many seconds."""
        if self._given and at - self._given_at < DWELL:
            return self._given
        if proposal is None or not proposal.worthwhile:
            self._since = self._given = None
            return None
        self._since = at if self._since is None else self._since
        if at - self._since < (WINDOWS - 1) * window:
            return self._given
        self._given, self._given_at = _advice(proposal), at
        return self._given


def _advice(proposal: Proposal) -> ScheduleAdvice:
    steps, gain = proposal.lengths.steps, proposal.gain
    text = ", ".join(f"{{maxBatchSize: {step.max_batch_size}, draftLen: {step.draft_len}}}" for step in steps)
    words = f"{gain:.2f} times today's tokens a second at the loads of the last hours"
    message = f"write speculation.draftLenSchedule: [{text}]: {words}"
    return ScheduleAdvice(draft_len_schedule=steps, gain=gain, message=message)
