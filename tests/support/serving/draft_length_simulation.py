"""A server in closed loop, simulated round by round: closed-form engine times, seeded acceptance and noise.

As on the real server, rounds take longer than their calls: by `gap` a row in lock-step, and two cohorts wait for
each other when a draft takes as long as a verification. Calls take their `way` through the server, unless they wait
in the queue of an engine that is busy with the other cohort. The target alone runs in calls of several tokens, beside
which a trial drafts; a trial of it begins with short ones.

Throughput counts expected tokens and times without noise, so that only the choices differ from run to run.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tandem_serving.bls.calls import LONGEST_SPAN, TAKEN_IN
from tandem_serving.bls.draft_length import draft_ahead
from tandem_serving.bls.draft_length.acceptance import AcceptanceEstimate
from tandem_serving.bls.draft_length.call_costs import WAY_ROWS, Costs
from tandem_serving.bls.draft_length.goodput import Devices, DraftLengthChoice, GoodputDraftLength
from tandem_serving.bls.draft_length.trials import ALONE_CALLS, TRIAL_ROWS
from tandem_serving.bls.in_flight import LONG_ENOUGH

MAXIMUM = 8
MOST_AHEAD = 8  # rows; what drafting ahead brings more of them was not measured


@dataclass(frozen=True)
class Engines:
    """A draft step of 2 ms (`draft_step`), a target step of 12, 0.05 ms more a row, and `position` a row and token.

    `gap`: seconds a row between the calls of a round; `way`: seconds of a call without rows; `overlap`: share of what
    is thought of two cohorts that they take; `short`: seconds a row that a draft of one token takes longer than its
    tokens tell, one of k a k-th of that; `together`: seconds a row that calls of the target alone take longer where
    all begin in the same moment, as the first ones do after a round; `uneven`: relative deviation of what rounds of
    engines side by side take; `regroup`, `retime`: rounds that they lose with other cohorts, with another length.
    """

    position: float = 0.0
    devices: Devices = "separate"
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

    def alone(self, rows: float, length: int = LONGEST_SPAN) -> float:
        """A call of several tokens, which waits for the step in flight."""
        return (length + TAKEN_IN) * self.target(rows, 0, queued=True) + self._way(1)

    def period(self, rows: float, k: int, micro_batches: int) -> float:
        """Seconds of a round; of a token with the target alone."""
        if k == 0:
            return self.alone(rows) / LONGEST_SPAN
        if micro_batches == 1:
            return self.draft(rows, k) + self.target(rows, k) + rows * self.gap
        halves = self.draft(rows / 2, k, queued=True), self.target(rows / 2, k, queued=True)
        return 2 * self.overlap * side_by_side(*halves)

    def _way(self, rows: float, queued: bool = False) -> float:
        return 0.0 if queued else self.way * (1 + rows / WAY_ROWS)

    def ahead(self, acceptances: list[float], k: int) -> float:
        """A round of several rows that draft ahead: those whose tokens were hit_rate, the target's own too
        (a**(k + 1)), go on at once, the others draft meanwhile."""
        rows = len(acceptances)
        longer = side_by_side(self.draft(rows, k + 1), self.target(rows, k))
        return (2 - sum(a ** (k + 1) for a in acceptances) / rows) * longer + rows * self.gap

    def ahead_alone(self, acceptance: float, k: int) -> float:
        """A round of a single row that drafts ahead: it waits for that where all tokens were kept (a**k), and drafts
        anew unless the target's own token was hit_rate too (a**(k + 1))."""
        draft, target = self.draft(1, k), self.target(1, k)
        waiting = max(0.0, self.draft(1, k + 1) - target)
        return target + acceptance**k * waiting + (1 - acceptance ** (k + 1)) * draft + self.gap

    def shortest(self, acceptances: list[float], k: int) -> float:
        """Seconds of a round, at its best."""
        rows = len(acceptances)
        if rows == 1 and k and self.devices == "separate":
            return self.ahead_alone(acceptances[0], k)
        if self.devices == "shared" or rows < 2 or not k:
            return self.period(rows, k, 1)
        periods = [self.period(rows, k, micro_batches) for micro_batches in (1, 2)]
        if rows <= MOST_AHEAD:
            periods.append(self.ahead(acceptances, k))
        return min(periods)


def side_by_side(draft: float, target: float) -> float:
    """As measured, see tandem_serving.bls.draft_length.draft_ahead."""
    seconds: float = (draft**5 + target**5) ** (1 / 5)
    return seconds


def tokens(acceptance: float, k: int) -> float:
    """Expected tokens of a round."""
    return sum(acceptance**i for i in range(k + 1))


def fixed(engines: Engines, acceptances: list[float], k: int) -> float:
    """Tokens a second with the same length for all, in the best order."""
    return sum(tokens(a, k) for a in acceptances) / engines.shortest(acceptances, k)


@dataclass
class User:
    """A stream of sequences of 64..512 tokens, one after the other, of the same acceptance."""

    acceptance: float
    estimate: AcceptanceEstimate
    left: float = 0.0


@dataclass
class Server:
    """The policy under test in front of `engines`; the times that it sees have noise of 5% and stalls.

    `astray`: rounds after a trial of the target alone in which two cohorts are three, and take half as long again.
    """

    engines: Engines
    acceptances: list[float]
    seed: int = 0
    minimum: int = 0
    astray: int = 0
    lengths: list[int] = field(default_factory=list)
    alone: int = 0
    now: float = 0.0
    left_astray: int = 0
    span: int = 0
    calls: int = 0
    order: tuple[int, int] = (0, 0)
    late: float = 0.0
    made: int | None = None

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.costs = Costs()
        self.policy = GoodputDraftLength(self.minimum, MAXIMUM, self.costs, self.engines.devices)
        self.users = [
            User(a, AcceptanceEstimate(MAXIMUM, self.policy.server), self._life()) for a in self.acceptances
        ]

    def run(self, rounds: int) -> float:
        """Tokens a second over so many rounds."""
        begin, made = self.now, 0.0
        for _ in range(rounds):
            made += self._round()
        return made / (self.now - begin)

    def become(self, acceptance: float) -> None:
        """Change the acceptance of all sequences."""
        for user in self.users:
            user.acceptance = acceptance

    def _life(self) -> float:
        return self.rng.uniform(64, 512)

    def _noisy(self, seconds: float) -> float:
        return seconds * max(0.3, self.rng.gauss(1, 0.05)) * (5 if self.rng.random() < 0.003 else 1)

    def _round(self) -> float:
        rows = len(self.users)
        choice = self.policy.choose(self.now, rows, [user.estimate for user in self.users], self.made)
        if self.policy.off:
            return self._alone(choice)
        k = choice.k
        apart = [user for user in self.users if self.policy.alone(self.now, user.estimate, rows)]
        together = [user for user in self.users if user not in apart] if apart else self.users
        if not together:
            k = 0
        self.lengths.append(k)
        self.made = k
        self.alone += len(apart)
        step = self.engines.target(rows, 0, queued=True)
        self.span = 0 if k else max(1, 2 * self.span)
        self.calls = 0 if k else self.calls + 1
        period = self._speculate(together, len(apart), k) if k else self._call(self.span)
        if self.span >= LONG_ENOUGH:
            self._tell(self.span, period)
        self.left_astray = max(0, self.left_astray - 1) if k else self.astray
        if k and self.left_astray and self.policy.micro_batches(len(together), k) == 2:
            period *= 1.5
        if k and self.engines.devices == "separate":
            period *= max(0.5, self.rng.gauss(1, self.engines.uneven))
            period += self._changed(self.policy.micro_batches(len(together), k), k) * period
        made = sum(self._advance(user, k, max(1, self.span)) for user in together)
        made += sum(self._advance(user, 0, period / step) for user in apart)
        self.now += period
        return made

    def _changed(self, micro_batches: int, k: int) -> float:
        """Rounds that are lost in this one, the second since cohorts or lengths changed."""
        lost, (before, length) = self.late, self.order
        self.order = micro_batches, k
        self.late = self.engines.regroup * (before != micro_batches) or self.engines.retime * (length != k)
        return lost

    def _alone(self, choice: DraftLengthChoice) -> float:
        """A call of the target for each user, after a round some short ones; `choice.turns` of them draft first, if
        it says so: a few."""
        rows = len(self.users)
        assert not choice.k or choice.rounds <= min(TRIAL_ROWS, (rows + 1) // 2)
        call, spans = 0.0, [LONGEST_SPAN] if self.calls else [1, 2, 4, 8]
        for span in spans:
            self.calls += 1
            call += self._call(span)
        self._tell(spans[-1], self._call(spans[-1]))
        trial = self.rng.sample(self.users, choice.rounds if choice.k else 0)
        self.lengths.append(choice.k)
        self.made = 0
        made = 0.0
        for user in self.users:
            left = float(sum(spans))
            if user in trial:  # the verification waits for the step in flight, of others
                made += self._advance(user, choice.k)
                left -= (1.5 if rows > 1 else 1.0) + self.engines.draft(len(trial), choice.k) * sum(spans) / call
            made += self._advance(user, 0, left)
        self.now += call
        return made

    def _call(self, span: int) -> float:
        """Each user's call of the target alone: how many since a round is known."""
        rows = len(self.users)
        return self.engines.alone(rows, span) + (self.calls <= ALONE_CALLS) * self.engines.together * rows

    def _tell(self, span: int, seconds: float) -> None:
        """What such calls took."""
        for _ in self.users:
            rows, together = len(self.users), self.calls <= ALONE_CALLS
            self.costs.observe_alone(rows, span + TAKEN_IN, self._noisy(seconds), together)

    def _speculate(self, together: list[User], apart: int, k: int) -> float:
        """The cohort's round; those apart make steps of the target meanwhile, merged with its verifications."""
        micro_batches = self.policy.micro_batches(len(together), k)
        rows = len(together) / micro_batches
        drafts_queue = micro_batches == 2 and self.engines.draft(rows, k) > self.engines.target(rows, k)
        verifications_queue = micro_batches == 2 and not drafts_queue
        draft = self.engines.draft(rows, k, drafts_queue)
        more = self.engines.target(apart, 0, queued=True) - self.engines.target(0, 0, queued=True)
        target = self.engines.target(rows, k, verifications_queue) + more
        for _ in range(micro_batches):
            size = len(together) // micro_batches
            self.costs.observe_draft(size, k, self._noisy(draft), queued=drafts_queue)
            self.costs.observe_target(size, k, self._noisy(target), queued=verifications_queue)
        if len(together) == 1 and self.engines.devices == "separate":
            period = self.engines.ahead_alone(together[0].acceptance, k)
        elif micro_batches == 1 and self._draft_ahead(len(together), k):
            period = self.engines.ahead([user.acceptance for user in together], k)
        else:
            period = self.engines.period(len(together), k, micro_batches)
        return period + more

    def _draft_ahead(self, rows: int, k: int) -> bool:
        """As the runner decides, see rounds.py."""
        hit_rate = self.policy.server.ahead_hit_rate(k)
        times = self.costs.draft(rows, k), self.costs.draft(rows, k + 1), self.costs.target(rows, k)
        return self.engines.devices == "separate" and draft_ahead.pays(rows, hit_rate, *times)

    def _advance(self, user: User, k: int, steps: float = 1.0) -> float:
        """Expected tokens of a user's round, or of `steps` without a draft; a finished sequence is replaced."""
        expected = tokens(user.acceptance, k) * steps
        if k:
            accepted = 0
            while accepted < k and self.rng.random() < user.acceptance:
                accepted += 1
            user.estimate.observe(k, accepted)
        user.left -= expected
        if user.left <= 0:
            user.estimate, user.left = AcceptanceEstimate(MAXIMUM, self.policy.server), self._life()
        return expected
