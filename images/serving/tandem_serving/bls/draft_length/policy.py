"""How many tokens to draft, and how many batches are in flight: the choice with the most tokens a second. Pure.

A round with k draft tokens yields tau(k) tokens a sequence, see `acceptance`. What it takes is measured at each load:
the period in which each running sequence makes a round, with all that happens meanwhile (`periods`). Their quotient
is the goodput (Liu et al., 2024, "Optimizing Speculative Decoding for Serving Large Language Models Using Goodput",
arXiv:2406.14066); for k = 0, the target alone, a round is a token. All choices share the noise of acceptance; that of
periods is small.

What may be better than the present choice is tried for some rounds, for a bounded share of the time: optimism in the
face of uncertainty (Lai, Robbins, 1985, "Asymptotically Efficient Adaptive Allocation Rules"). The choice changes
when what staying has lost adds up to what the change costs. While the target runs alone, one sequence, the scout,
drafts a token now and then, for a bounded share of the time, which shows the acceptance; after a pause, twice as long
each time that it was in vain, all draft some rounds.

Where the target alone is no choice, as with a fixed length, it is measured all the same, in *probes*: now and then
all sequences go without a draft for some tokens, for a bounded share of the time. Nothing else shows what speculation
is worth.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable

from tandem_serving.bls.draft_length.acceptance import Acceptance
from tandem_serving.bls.draft_length.periods import Choice, Load, Period

FIRST_LENGTH = 4
# Rounds of each sequence, or tokens of the target alone, in a window, after which the choice is made anew; those of a
# trial; and those after a change that are not measured: sequences that come one by one wait for each other. A fresh
# server makes so many rounds in all first.
WINDOW, WINDOW_ALONE = 4, 16
TRIAL, TRIAL_ALONE = 6, 12
SETTLE, SETTLE_ALONE, SETTLE_BACK, SETTLE_FRESH = 2, 3, 8, 64
# Draft tokens by which a trial differs from the present choice, at most.
NEAR = 2
# Rounds' worth that a change costs: of the length; of micro-batches besides; from or to the target alone, for each
# sequence besides. A gain below MIN_GAIN is none.
RELENGTH, REGROUP, RESTART, MIN_GAIN = 0.2, 1.5, 1 / 16, 0.015
# While the target runs alone: rounds that a scout drafts each time, and the share of the time that this may take;
# seconds until all draft. Speculation came back in vain when it ends within VAIN rounds.
SCOUT_ROUNDS, SCOUT_SHARE = 4, 0.01
RETRY_SECONDS, VAIN, MOST_VAIN = 15.0, 100, 5
# Share of the time that probes may take.
PROBE_SHARE = 0.02
# Rounds after which an observed acceptance counts half: at least, and for each sequence. While the target runs alone:
# fewer, and what was known before counts as so many.
HALF_LIFE, HALF_LIFE_EACH = 128, 16
HALF_LIFE_ALONE, KNOWN_ALONE = 16, 8


class AdaptiveDraftLength:
    """One choice for all sequences of a service, of lengths between `minimum` and `maximum`; 0 is one unless
    `minimum` >= 1. The scheduler asks and reports under its lock, and reports each round to `acceptance`, too.

    Of a `minimum` that is the `maximum` only the number of micro-batches is chosen: it can be two where engines have
    `separate_devices`, and sequences share engine calls (`batched`). `clock` in seconds.
    """

    def __init__(
        self,
        minimum: int,
        maximum: int,
        separate_devices: bool,
        batched: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.acceptance = Acceptance(maximum)
        self._minimum, self._maximum = minimum, maximum
        self._most_batches = 2 if separate_devices and batched else 1
        self._clock = clock
        self._running: dict[Hashable, int] = {}  # with the most tokens that they draft
        self._fixed: set[Hashable] = set()  # of them, those that take no part in probes
        self._probe_credit = 0.0  # seconds that the next probe may take
        self._loads: dict[int, Load] = {}  # by the logarithm of the sequences that run
        self._plan = Choice(min(max(minimum, FIRST_LENGTH), maximum))
        self._lost, self._kept = 0.0, 0.0  # rounds' worth that staying with it has lost; its rounds
        self._scout: Hashable = None  # it stays one to its end: the draft engine reads its prompt once
        self._scouting, self._scouted = 0, -math.inf  # rounds that it is still to draft
        self._begin(self._plan, 0, measured=False)

    @property
    def off(self) -> bool:
        """Whether the target runs alone, but for trials."""
        return not self._plan.k

    @property
    def probes(self) -> bool:
        """Whether the target alone is only probed."""
        return self._minimum > 0

    @property
    def probing(self) -> bool:
        """Whether a probe is on, and what comes now counts."""
        return self.probes and self._measured and not self._used.k

    def enter(self, sequence: Hashable, most: int, fixed: bool = False) -> None:
        """A sequence that speculates starts to run, and drafts `most` tokens a round at most. `fixed`: its request
        asks for a length, which it keeps in probes."""
        idle = not self._running
        self._running[sequence] = most
        if fixed:
            self._fixed.add(sequence)
        if idle:
            self._begin(self._used, SETTLE, measured=False)

    def leave(self, sequence: Hashable) -> None:
        """It is over, or speculates no longer."""
        self._running.pop(sequence, None)
        self._fixed.discard(sequence)

    def length(self, sequence: Hashable) -> int:
        """Tokens to draft in a sequence's next round; 0: the target alone. The same for all, but for a scout that
        drafts now and then while the target runs alone, and those that take no part in a probe."""
        if self.probes and not self._used.k and sequence in self._fixed:
            return self._plan.k
        if self._used.k or not self._scouting:
            return self._used.k
        if self._scout not in self._running:
            self._scout = sequence
        if sequence != self._scout:
            return 0
        self._scouting -= 1
        return 1

    def micro_batches(self, sequences: int) -> int:
        """In flight: 1, all sequences in lock-step, or 2, where there are several."""
        return self._used.micro_batches if sequences > 1 else 1

    def rounds_ended(self, rows: int, length: int) -> None:
        """So many rounds of `length` draft tokens ended; or the target alone, `length` 0, made so many tokens.

        Reported before their sequences ask for their next `length`: another choice may be made.
        """
        self._ended += rows
        self._alike += rows * ((length > 0) == (self._used.k > 0))
        self._tokens += rows * self.acceptance.yields[min(length, self._maximum)]
        rounds = self._rounds
        if not self._load.periods:  # a fresh server: what it accepts decides how rounds go, too
            rounds = max(rounds, min(SETTLE_BACK, SETTLE_FRESH / self._rows))
        if self._ended >= rounds * self._rows:
            self._end_window()

    # --- windows: some rounds by one choice -------------------------------------------------------
    @property
    def _rows(self) -> int:
        return max(1, len(self._running))

    def _begin(self, choice: Choice, rounds: float, measured: bool) -> None:
        self._used, self._measured = choice, measured
        self._load, self._rounds = self._load_of(self._rows), rounds
        self._since, self._ended, self._alike, self._tokens = self._clock(), 0, 0, 0.0

    def _end_window(self) -> None:
        used, alone = self._used, not self._used.k
        if not self._measured:
            self.acceptance.update(self._half_life())
            trial, window = (TRIAL_ALONE, WINDOW_ALONE) if alone else (TRIAL, WINDOW)
            self._begin(used, window if used == self._plan else trial, measured=True)
            return
        now, load = self._clock(), self._load_of(self._rows)
        rounds = self._tokens / self.acceptance.yields[used.k] / self._rows
        if load is self._load and 2 * self._alike >= self._ended:  # most went by this choice, at this load
            load.observe(used, min(max((now - self._since) / rounds, 1e-6), 1e6), rounds, now)
        self._probe_credit += PROBE_SHARE * min(max(now - self._since, 0.0), 1e6)
        self.acceptance.update(self._half_life())
        self._kept += rounds if used == self._plan else 0.0
        choice = self._next(load, rounds, now)
        if choice == used:
            self._begin(used, WINDOW_ALONE if alone else WINDOW, measured=True)
        else:
            settle = SETTLE_ALONE if not choice.k else SETTLE_BACK if alone else SETTLE
            self._begin(choice, settle, measured=False)

    def _half_life(self) -> float:
        return HALF_LIFE_ALONE if self.off else max(HALF_LIFE, HALF_LIFE_EACH * self._rows)

    def _load_of(self, rows: int) -> Load:
        """A new load is taken for one like the nearest that is known."""
        number = round(math.log2(rows))
        if number not in self._loads:
            known = [other for other, load in self._loads.items() if load.periods]
            nearest = min(known, key=lambda other: abs(other - number), default=None)
            periods = {} if nearest is None else self._loads[nearest].periods
            self._loads[number] = Load({choice: Period(period.seconds) for choice, period in periods.items()})
        return self._loads[number]

    # --- choices ----------------------------------------------------------------------------------
    def _choices(self) -> list[Choice]:
        """No request drafts more than it asks for."""
        most = min(self._maximum, max(self._running.values(), default=self._maximum))
        lengths = range(min(self._minimum, most), most + 1)
        batches = range(1, 1 + (self._most_batches if self._rows > 1 else 1))
        return [Choice(k, number) for k in lengths for number in (batches if k else (1,))]

    def _next(self, load: Load, rounds: float, now: float) -> Choice:
        """What is used from now on: the plan, which may change, or a trial."""
        choices = self._choices()
        if self._plan not in choices:
            self._plan, self._lost = min(choices, key=lambda choice: abs(choice.k - self._plan.k)), 0.0
        if not load.measured(self._plan):
            return self._plan
        goodput = {choice: self.acceptance.yields[choice.k] / load.predict(choice, now).seconds for choice in choices}
        best = max(filter(load.measured, choices), key=goodput.__getitem__)
        gain = goodput[best] / goodput[self._plan] - 1
        self._lost = self._lost + gain * rounds if gain > MIN_GAIN else 0.0
        if self._lost < self._cost(best):
            return self._trial(load, goodput, now) or self._probe(load, now) or self._plan
        if not best.k:
            self._pause(load, load.vain + 1 if self._kept < VAIN else 0, now)
            self.acceptance.update(math.inf, most=KNOWN_ALONE)
        if self.off or not best.k:
            self._kept = 0.0
        self._plan, self._lost = best, 0.0
        load.credit += (SETTLE + TRIAL) * load.periods[best].seconds  # what was tried has paid: once more
        return best

    def _cost(self, choice: Choice) -> float:
        """Rounds' worth that a change from the plan costs."""
        if self.off or not choice.k:
            return RELENGTH + RESTART * self._rows
        return RELENGTH + REGROUP * (choice.micro_batches != self._plan.micro_batches)

    def _pause(self, load: Load, vain: int, now: float) -> None:
        load.vain = min(vain, MOST_VAIN)
        load.retry = now + RETRY_SECONDS * 2**load.vain

    # --- trials -----------------------------------------------------------------------------------
    def _trial(self, load: Load, goodput: dict[Choice, float], now: float) -> Choice | None:
        """What may be better than the plan, and can be afforded."""
        hopes = {
            choice: speed * (1 + load.deviation(choice, now))
            for choice, speed in goodput.items()
            if choice != self._plan and self._is_near(choice, load)
        }
        if not hopes:
            return None
        best = max(hopes, key=hopes.__getitem__)
        if self.off:
            self._scout_again(load.predict(best, now).seconds, now)
            if now >= load.retry:
                self._pause(load, load.vain + 1, now)
                return max(hopes, key=goodput.__getitem__)
        rounds = SETTLE + TRIAL if best.k else SETTLE_ALONE + TRIAL_ALONE
        seconds = (rounds + RESTART * self._rows * (self.off or not best.k)) * load.predict(best, now).seconds
        if hopes[best] <= goodput[self._plan] or load.credit < seconds:
            return None
        load.credit -= seconds
        return best

    def _probe(self, load: Load, now: float) -> Choice | None:
        """The target alone, where it is no choice, can be afforded, and most take part."""
        alone = Choice(0)
        seconds = (SETTLE_ALONE + TRIAL_ALONE + RESTART * self._rows) * load.predict(alone, now).seconds
        if not self.probes or self._probe_credit < seconds or 2 * len(self._fixed) > self._rows:
            return None
        self._probe_credit = 0.0
        return alone

    def _scout_again(self, seconds: float, now: float) -> None:
        """A sequence drafts again, where a round of all takes so many seconds: for a bounded share of the time, or in
        each window where it speaks for a change, until that is sure."""
        pause = SCOUT_ROUNDS * RESTART * (1 + 1 / self._rows) * seconds / SCOUT_SHARE
        if self._lost or now >= self._scouted + pause:
            self._scouted, self._scouting = now, SCOUT_ROUNDS

    def _is_near(self, choice: Choice, load: Load) -> bool:
        """Whether it is tried: the target alone, and a length near a known one; of other micro-batches one as long as
        the plan's, or longer where two hide it."""
        if more := choice.k and choice.micro_batches - self._plan.micro_batches:
            return load.measured(choice) or (choice.k - self._plan.k) * more in (0, NEAR)
        alike = [other.k for other in load.periods if other.micro_batches == choice.micro_batches]
        return not choice.k or any(abs(choice.k - k) <= NEAR for k in alike)
