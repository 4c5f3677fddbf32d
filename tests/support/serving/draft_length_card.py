"""A GPU's server in closed loop, simulated: answers end, and new prompts stall a pass.

The times are those of `docs/reference/benchmarks/gpu.md`, one H200. What `draft_length_simulation` leaves out:
each answer of 128 tokens is followed by a new prompt. Both engines read it, the draft when its sequence first drafts.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import linear_regression

from tandem_serving.bls.draft_length.policy import AdaptiveDraftLength

LONGEST, ANSWER = 7, 128
# ms, by streams: a token of the target alone, and rounds of 4 and of 7 draft tokens.
ALONE: Mapping[int, float] = {1: 4.4, 4: 4.5, 16: 5.0, 64: 5.7}
ROUNDS: Mapping[int, tuple[float, float]] = {1: (12.2, 15.2), 4: (13.5, 17.2), 16: (17.6, 22.0), 64: (37.9, 45.8)}
# Of the draft tokens in a position, how many are accepted where those before were.
ACCEPTED = (0.82, 0.88, 0.89, 0.9, 0.88, 0.9, 0.87)


@dataclass(frozen=True)
class Prompts:
    """ms that a prompt takes in the target, and in the draft: new ones, or such as are in the KV cache."""

    target: float
    draft: float


NEW, KNOWN = Prompts(10.0, 2.5), Prompts(3.0, 0.5)
SCOUT = 2.0  # ms that a draft of one sequence and its verification take from the others, which decode


@dataclass
class Stream:
    """A sequence: tokens to come, and whether the draft has read its prompt."""

    number: int
    left: int
    read: bool = False


class Card:
    """The policy under test, with `minimum` = `maximum` a fixed length; all times in seconds."""

    def __init__(self, streams: int, prompts: Prompts, seed: int = 0, fixed: int | None = None) -> None:
        self.now, self.made, self.prompts_drafted = 0.0, 0, 0
        self._rng, self._prompts, self._numbers = random.Random(seed), prompts, 0
        limits = (0, LONGEST) if fixed is None else (fixed, fixed)
        self.policy = AdaptiveDraftLength(*limits, separate_devices=False, clock=lambda: self.now)
        self.accepted: tuple[float, ...] = ACCEPTED
        self.streams: list[Stream] = []
        self.resize(streams)

    def resize(self, streams: int) -> None:
        """Another number of streams from now on."""
        while len(self.streams) > streams:
            self.policy.leave(self.streams.pop().number)
        while len(self.streams) < streams:
            self._enter(self._rng.randint(1, ANSWER))
        if not streams:
            return
        self._alone = 1e-3 * ALONE[streams]
        four, seven = ROUNDS[streams]
        line = linear_regression((4, 7), (four, seven))
        self._rounds = {k: 1e-3 * (line.intercept + line.slope * k) for k in range(1, LONGEST + 1)}

    def become(self, prompts: Prompts, streams: int) -> None:
        """Other prompts, of other streams, from now on."""
        self._prompts = prompts
        self.resize(0)
        self.resize(streams)

    def speed(self, seconds: float) -> float:
        """Tokens a second, over so many seconds from now on."""
        begin, made = self.now, self.made
        while self.now < begin + seconds:
            self._step()
        return (self.made - made) / (self.now - begin)

    def _enter(self, left: int) -> None:
        self._numbers += 1
        self.streams.append(Stream(self._numbers, left))
        self.policy.enter(self._numbers, LONGEST)
        self.now += 1e-3 * self._prompts.target

    def _step(self) -> None:
        """A round of all; or a token of the target alone, while a scout may draft."""
        drafts = [(stream, self.policy.length(stream.number)) for stream in self.streams]
        longest = max(length for _, length in drafts)
        drafting = [stream for stream, length in drafts if length]
        for stream in drafting:
            if not stream.read:
                self.now += 1e-3 * self._prompts.draft
                self.prompts_drafted += 1
                stream.read = True
        if len(drafting) == len(self.streams):
            seconds = self._rounds[longest]
        else:
            seconds = self._alone + 1e-3 * SCOUT * len(drafting)
        self.now += seconds * max(0.5, self._rng.gauss(1, 0.03))
        alone = len(drafts) - len(drafting)
        if drafting:
            self.policy.rounds_ended(len(drafting), longest)
        if alone:
            self.policy.rounds_ended(alone, 0)
        for stream, length in drafts:
            self._take(stream, length)

    def _take(self, stream: Stream, length: int) -> None:
        accepted = 0
        while accepted < length and self._rng.random() < self.accepted[accepted]:
            accepted += 1
        tokens = min(stream.left, accepted + 1)
        self.policy.acceptance.observe(length, min(accepted, tokens))
        self.made += tokens
        stream.left -= tokens
        if not stream.left:
            self.streams.remove(stream)
            self.policy.leave(stream.number)
            self._enter(ANSWER)
