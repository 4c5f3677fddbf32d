"""The policy of speculation: how many tokens to draft, and how many batches are in flight.

The runner asks and reports under its lock, so policies need none. What it reports is noted only, while engines wait
for their next calls; a policy makes up its mind when they work.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from tandem_serving.bls.calls import Role
from tandem_serving.bls.draft_length.acceptance import AcceptanceEstimate
from tandem_serving.bls.draft_length.call_costs import Costs
from tandem_serving.bls.draft_length.goodput import Devices, GoodputDraftLength
from tandem_serving.bls.draft_length.trials import ALONE_CALLS

# Rounds of one length, as a share of all, from which on all count as of that length.
ALIKE = 0.8


class DraftLengthPolicy(Protocol):
    """Chooses draft lengths for all sequences of a service."""

    @property
    def server(self) -> AcceptanceEstimate:
        """What is known of all sequences."""
        ...

    @property
    def off(self) -> bool:
        """Whether the target runs alone, but for trials."""
        ...

    @property
    def alone(self) -> bool:
        """Whether it does so now, or in a trial of that."""
        ...

    @property
    def together(self) -> bool:
        """Whether all sequences begin their next calls of the target alone in the same moment."""
        ...

    def estimate(self) -> AcceptanceEstimate:
        """What will be known of a new sequence."""
        ...

    def enter(self, estimate: AcceptanceEstimate, most: int) -> None:
        """A sequence that speculates starts to run, and drafts so many tokens at most."""
        ...

    def leave(self, estimate: AcceptanceEstimate) -> None:
        """It is over, or speculates no longer."""
        ...

    def rounds_ended(self, rows: int, length: int) -> None:
        """A call of the target is over, with `length` draft tokens each: `rows` sequences are about to begin their
        next rounds."""
        ...

    def think(self) -> None:
        """Learn from what was reported."""
        ...

    def length(self, estimate: AcceptanceEstimate) -> int:
        """Tokens to draft in a sequence's next round; 0: the target alone."""
        ...

    def micro_batches(self, sequences: int) -> int:
        """In flight: 1, all sequences in lock-step, or 2."""
        ...

    def timed(
        self, role: Role, rows: float, length: int, seconds: float, prompt: int = 0, queued: bool = False
    ) -> None:
        """An engine call for `rows` sequences (on average, over its steps) took so long: `length` draft tokens each.

        Where each sequence makes its own calls, `rows` are all that run. `prompt`: tokens of the prompts that were
        new to the engine.
        """
        ...

    def timed_alone(self, rows: float, steps: float, seconds: float, together: bool) -> None:
        """A call of so many steps of the target alone took so long while `rows` sequences ran, on average.

        `together`: as when it began.
        """
        ...

    def step(self, rows: int) -> float:
        """Seconds of a step of the target alone, of a long call, while `rows` sequences run; 0: not known."""
        ...

    def ended(self, tokens: int, calls: int) -> None:
        """A sequence of so many tokens is over; the target alone makes so many calls of them."""
        ...


class AdaptiveDraftLength:
    """The length with the most tokens a second, see goodput.py; chosen anew when all made their rounds.

    What is chosen holds from one call of the target on: the sequences of a batch draft as many tokens. Of a `minimum`
    that is the `maximum` only the number of micro-batches is chosen. `batched`: sequences share engine calls;
    otherwise each makes its own.
    """

    def __init__(
        self,
        minimum: int,
        maximum: int,
        separate_devices: bool,
        batched: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._maximum = maximum
        self._clock = clock
        self._costs = Costs(batched)
        devices: Devices = "separate" if separate_devices else "shared"
        self._lengths = GoodputDraftLength(minimum, maximum, self._costs, devices, batched)
        self._running: dict[AcceptanceEstimate, int] = {}  # with the most tokens that they draft
        self._left = 0
        self._alone_rounds = 0  # since all began to let the target run alone
        self._made: Counter[int] = Counter()  # rounds since the latest choice, by the draft tokens that they had
        self._observations: list[Callable[[], None]] = []
        self._k = self._lengths.explain().k

    @property
    def server(self) -> AcceptanceEstimate:
        """What the lengths are chosen by."""
        return self._lengths.server

    @property
    def off(self) -> bool:
        """Whether the target runs alone, but for trials."""
        return self._lengths.off

    @property
    def alone(self) -> bool:
        """Whether it does so now, or in a trial of that."""
        return self.off or not self._k

    @property
    def together(self) -> bool:
        """The first calls of all, after rounds; not those of a few, while others draft."""
        return self.alone and self._alone_rounds < (ALONE_CALLS - 1) * len(self._running)

    def estimate(self) -> AcceptanceEstimate:
        """A sequence's own acceptance, which starts as the server's."""
        return AcceptanceEstimate(self._maximum, self.server)

    def enter(self, estimate: AcceptanceEstimate, most: int) -> None:
        """A sequence that speculates starts to run, and drafts so many tokens at most."""
        self._running[estimate] = most

    def leave(self, estimate: AcceptanceEstimate) -> None:
        """It is over."""
        self._running.pop(estimate, None)

    def rounds_ended(self, rows: int, length: int) -> None:
        """Another length may be chosen when as many rounds ended as sequences run."""
        self._left -= rows
        self._alone_rounds += rows
        self._made[length] += rows

    def think(self) -> None:
        """Learn what calls cost, and choose if it is time."""
        observations, self._observations = self._observations, []
        for learn in observations:
            learn()
        if self._left <= 0:
            made, self._made = self._made, Counter()
            [(length, most)] = made.most_common(1) or [(0, 0)]
            alike = length if most >= ALIKE * made.total() else None
            if self._running:
                self._lengths.limit(max(self._running.values()))
            choice = self._lengths.choose(self._clock(), max(1, len(self._running)), self._running, alike)
            alone, self._k = self.alone, choice.k
            if self.alone and not alone:
                self._alone_rounds = -len(self._running)  # they are still in rounds, which end first
            self._left = max(1, self._left + choice.rounds)

    def length(self, estimate: AcceptanceEstimate) -> int:
        """The length of all, or 0 for a sequence that is better off alone."""
        return 0 if self._lengths.alone(self._clock(), estimate, len(self._running)) else self._k

    def micro_batches(self, sequences: int) -> int:
        """By the time that a round would take."""
        return self._lengths.micro_batches(sequences, self._k)

    def timed(
        self, role: Role, rows: float, length: int, seconds: float, prompt: int = 0, queued: bool = False
    ) -> None:
        """Learn what calls cost; those of a trial while off run along with the target's own and show little."""
        if self._lengths.off:
            return
        learn = self._costs.observe_draft if role == "draft" else self._costs.observe_target
        self._observations.append(lambda: learn(rows, length, seconds, prompt, queued))

    def timed_alone(self, rows: float, steps: float, seconds: float, together: bool) -> None:
        """Learn what the target takes by itself."""
        self._observations.append(lambda: self._costs.observe_alone(rows, steps, seconds, together))

    def step(self, rows: int) -> float:
        """By the calls that the target makes by itself, or by verifications."""
        return self._costs.step(rows)

    def ended(self, tokens: int, calls: int) -> None:
        """Learn how many calls the target alone makes, whether it does or not: texts may become short or long."""
        self._observations.append(lambda: self._costs.observe_calls(tokens, calls))
        self._observations.append(lambda: self._lengths.ended(tokens))
