"""A server in closed loop, simulated round by round: closed-form engine times, seeded acceptance and noise.

As on the real server, rounds take longer than their calls: by `gap` a row in lock-step, and two micro-batches wait
for each other when a draft takes as long as a verification. Calls take their `way` through the server, unless they
wait in the queue of an engine that is busy with the other micro-batch. The target alone makes a token a step, beside
which a few sequences may draft.

Throughput counts expected tokens and times without noise, so that only the choices differ from run to run.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal

from tandem_serving.bls.draft_length.policy import AdaptiveDraftLength

MAXIMUM = 8
WAY_ROWS = 13  # rows that make a call's way through the server twice as long


@dataclass(frozen=True)
class Engines:
    """A draft step of 2 ms (`draft_step`), a target step of 12, 0.05 ms more a row, and `position` a row and token.

    `gap`: seconds a row between the calls of a round; `way`: seconds of a call without rows; `overlap`: share of what
    is thought of two cohorts that they take; `short`: seconds a row that a draft of one token takes longer than its
    tokens tell, one of k a k-th of that; `together`: seconds a row that the first token of the target alone takes
    longer, where all begin in the same moment; `uneven`: relative deviation of what rounds of engines side by side
    take; `regroup`, `retime`: rounds that are lost with another number of micro-batches, with another length.
    """

    position: float = 0.0
    devices: Literal["separate", "shared"] = "separate"
    gap: float = 0.005e-3
    way: float = 0.0
    overlap: float = 1.0
    short: float = 0.0
    together: float = 0.0
    draft_step: float = 2e-3
    uneven: float = 0.0
    regroup: float = 0.0
    retime: float = 0.0

    def draft(self, rows: float, k: int, queued: bool = False) -> float:
        """Seconds of a draft call."""
        return k * (self.draft_step + 0.05e-3 * rows) + self._way(rows, queued) + self.short * rows / k

    def target(self, rows: float, k: int, queued: bool = False) -> float:
        """Seconds of a verification."""
        return 12e-3 + 0.05e-3 * rows + self.position * rows * (k + 1) + self._way(rows, queued)

    def period(self, rows: float, k: int, micro_batches: int) -> float:
        """Seconds of a round; of a token with the target alone."""
        if k == 0:
            return self.target(rows, 0, queued=True)
        if micro_batches == 1:
            return self.draft(rows, k) + self.target(rows, k) + rows * self.gap
        halves = self.draft(rows / 2, k, queued=True), self.target(rows / 2, k, queued=True)
        return 2 * self.overlap * side_by_side(*halves)

    def _way(self, rows: float, queued: bool = False) -> float:
        return 0.0 if queued else self.way * (1 + rows / WAY_ROWS)

    def shortest(self, acceptances: list[float], k: int) -> float:
        """Seconds of a round, at its best."""
        rows = len(acceptances)
        if self.devices == "shared" or rows < 2 or not k:
            return self.period(rows, k, 1)
        return min(self.period(rows, k, micro_batches) for micro_batches in (1, 2))


def side_by_side(draft: float, target: float) -> float:
    """Seconds that a draft and a verification take on devices of their own: they wait for each other the more, the
    more alike they are. Measured with two micro-batches: lengths 1 to 8, 32 and 64 streams, two machines."""
    seconds: float = (draft**5 + target**5) ** (1 / 5)
    return seconds


def tokens(acceptance: float, k: int) -> float:
    """Expected tokens of a round."""
    return sum(acceptance**i for i in range(k + 1))


def fixed(engines: Engines, acceptances: list[float], k: int) -> float:
    """Tokens a second with the same length for all, in the best order."""
    return sum(tokens(a, k) for a in acceptances) / engines.shortest(acceptances, k)


@dataclass
class Server:
    """The policy under test in front of `engines`; the times that it sees have noise of 5% and stalls."""

    engines: Engines
    acceptances: list[float]
    seed: int = 0
    minimum: int = 0
    maximum: int = MAXIMUM
    lengths: list[int] = field(default_factory=list)
    now: float = 0.0
    clock: float = 0.0
    order: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        separate = self.engines.devices == "separate"
        self.policy = AdaptiveDraftLength(self.minimum, self.maximum, separate, clock=lambda: self.clock)
        for user in range(len(self.acceptances)):
            self.policy.enter(user, self.maximum)

    def run(self, rounds: int) -> float:
        """Tokens a second over so many rounds, or tokens of the target alone."""
        begin, made = self.now, 0.0
        for _ in range(rounds):
            made += self._round()
        return made / (self.now - begin)

    def become(self, acceptance: float) -> None:
        """Change the acceptance of all sequences."""
        self.acceptances = [acceptance] * len(self.acceptances)

    def join(self, rows: int) -> None:
        """So many more come."""
        for _ in range(rows):
            self.policy.enter(len(self.acceptances), self.maximum)
            self.acceptances.append(self.acceptances[0])

    def leave(self, rows: int) -> None:
        """So many go on."""
        for user in range(rows, len(self.acceptances)):
            self.policy.leave(user)
        del self.acceptances[rows:]

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        self.clock += seconds * max(0.3, self.rng.gauss(1, 0.05)) * (5 if self.rng.random() < 0.003 else 1)

    def _round(self) -> float:
        lengths = [self.policy.length(user) for user in range(len(self.acceptances))]
        alone = sum(not k for k in lengths)
        micro_batches = self.policy.micro_batches(len(lengths))
        k = max(lengths)
        self.lengths.append(k)
        before, self.order = self.order, (micro_batches, 0 if alone else k)
        if alone:
            return self._alone(alone, k, began=before[1] > 0)
        period = self._period(micro_batches, k)
        if self.engines.devices == "separate":
            period *= max(0.5, self.rng.gauss(1, self.engines.uneven))
        lost = self.engines.regroup * (before[0] != micro_batches) or self.engines.retime * (before[1] != k)
        self._pass(period * (1 + lost))
        self._drafted(self.acceptances, k)
        return sum(tokens(a, k) for a in self.acceptances)

    def _alone(self, alone: int, k: int, began: bool) -> float:
        """A token each, but for the few that draft `k`: they wait for the step in flight, and on a shared device the
        others for their draft."""
        rows, scouts = len(self.acceptances), len(self.acceptances) - alone
        step = self.engines.target(rows, 0, queued=True) + began * self.engines.together * rows
        draft = self.engines.draft(scouts, k) if scouts else 0.0
        late = 0.5 * (rows > 1) + draft / step
        if self.engines.devices == "shared":
            step += draft
        self._pass(step)
        made = 0.0
        if scouts:
            drafting = self.rng.sample(self.acceptances, scouts)
            self._drafted(drafting, k)
            made = sum(tokens(a, k) for a in drafting) - late * scouts
        self.policy.rounds_ended(alone, 0)
        return alone + made

    def _period(self, micro_batches: int, k: int) -> float:
        rows = len(self.acceptances)
        return self.engines.period(rows, k, micro_batches)

    def _drafted(self, acceptances: list[float], k: int) -> None:
        self.policy.rounds_ended(len(acceptances), k)
        for acceptance in acceptances:
            accepted = 0
            while accepted < k and self.rng.random() < acceptance:
                accepted += 1
            self.policy.acceptance.observe(k, accepted)
