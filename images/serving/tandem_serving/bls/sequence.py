"""One sequence: its loop, its text, the request that it belongs to."""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from tandem_serving import metrics as m
from tandem_serving.bls.batches import BatchKey
from tandem_serving.bls.calls import NewTokens, Role
from tandem_serving.bls.chunks import BlsChunk, BlsWriter
from tandem_serving.bls.loop import SequenceLoop
from tandem_serving.errors import FAILED, EngineError, Survived
from tandem_serving.requests.active import ActiveRequest, AddressedChunk
from tandem_serving.requests.delivery import Make
from tandem_serving.requests.tensors import Array

log = logging.getLogger("tandem.sequence")

# Rounds that a sequence goes by itself, at most, before it shares calls again: engines that fail all shared calls
# cost one call more in so many rounds.
LONGEST_PAUSE = 64
_numbers = itertools.count(random.getrandbits(60))  # other processes call the same engines
MakeChunks = Make[AddressedChunk[BlsChunk]]
UNCOUNTED = Survived("a step could not be counted")


class State(Enum):
    """Where a sequence is. It goes on only as `NEXT` says."""

    WAITING = "waiting"  # in the queue
    RUNNING = "running"  # it makes engine calls
    FINISHED = "finished"  # its last token is known, and its text is on its way to the client
    ENDED = "ended"  # it gets no more work


NEXT = {
    State.WAITING: {State.RUNNING, State.ENDED},
    State.RUNNING: {State.FINISHED, State.ENDED},
    State.FINISHED: {State.ENDED},
    State.ENDED: {State.ENDED},  # its delivery, its client and a fault may each end it
}


@dataclass(frozen=True)
class EngineInputs:
    """What goes with each of a sequence's calls to one engine.

    `tensors` by name, shapes with batch 1; `outputs` are wanted besides the tokens; `seeded`: calls bring a
    seed of their own. Calls of sequences with equal `key` can share an engine call.
    """

    tensors: Mapping[str, Array]
    outputs: tuple[str, ...] = ()
    seeded: bool = False

    @property
    def key(self) -> Hashable:
        """Names, types and shapes."""
        shapes = sorted((name, value.dtype.char, value.shape) for name, value in self.tensors.items())
        return tuple(shapes), self.outputs, self.seeded


@dataclass(eq=False)
class BlsSequence:
    """A sequence of a request. `draft_length` is the request's; 0 once the draft engine is given up.

    `probe`: it runs without speculation to measure what that is worth. `reproducible`: its calls must not depend
    on what else runs. `asked`: its request asks for its draft length. `number`: names it, to the server.
    """

    request: ActiveRequest[BlsChunk]
    loop: SequenceLoop
    writer: BlsWriter
    engine_inputs: Mapping[Role, EngineInputs]
    metrics: m.Metrics
    draft_length: int
    probe: bool = False
    reproducible: bool = False
    asked: bool = False
    state: State = State.WAITING
    number: int = field(default_factory=lambda: next(_numbers))
    key: BatchKey = field(init=False)
    _last_at: float = 0.0
    _undrafted: bool = False
    _rounds_alone: int = 0
    _pause: int = 0

    def __post_init__(self) -> None:
        """Compute the key once: it is compared at every call."""
        keys = tuple((role, inputs.key) for role, inputs in self.engine_inputs.items())
        alike = len({key for _, key in keys}) == 1  # both engines get the same tensors
        self.key = BatchKey(keys, alike and self.loop.pads and not self.reproducible)

    @property
    def has_first_token(self) -> bool:
        """Whether its client has a first token."""
        return bool(self._last_at)

    @property
    def fixed(self) -> bool:
        """Whether its draft length is not to change to measure something."""
        return self.reproducible or self.asked

    @property
    def alive(self) -> bool:
        """Whether it runs, and somebody waits for more of it: no stop word has ended its text."""
        return self.state is State.RUNNING and not (self.writer.over or self.request.over)

    def become(self, state: State) -> None:
        """Go on to another state. Raises ValueError: it does not follow."""
        if state not in NEXT[self.state]:
            raise ValueError(f"a sequence that is {self.state.value} cannot become {state.value}")
        self.state = state

    @property
    def isolated(self) -> bool:
        """Whether its calls go by themselves, since they failed together with others'."""
        return self._rounds_alone > 0

    def isolate(self) -> None:
        """A call failed that it shared: it goes by itself for a round, and twice as many each time it fails again."""
        self._rounds_alone = self._pause = min(max(1, 2 * self._pause), LONGEST_PAUSE)

    def verified(self, by_itself: bool) -> None:
        """A call of the target worked, which it made `by_itself` or shared."""
        if by_itself:
            self._rounds_alone = max(0, self._rounds_alone - 1)
        else:
            self._pause = 0

    def take(self, step: NewTokens, probe: bool = False) -> MakeChunks:
        """Take a step, which may be of a `probe` of all sequences; making its chunks is left to the delivery. A stop
        word is found there, while the next round is under way, which is then in vain: that costs less than all
        engines waiting for texts."""
        return lambda: self._make(step, self.probe or probe)

    def count_draft_failure(self) -> None:
        """Count it, once, among those that went on with the target alone for the draft engine's sake."""
        if not self._undrafted:
            self._undrafted = True
            self.metrics.add(m.DRAFT_FAILURES, 1)

    def _make(self, step: NewTokens, probe: bool) -> list[AddressedChunk[BlsChunk]]:
        if self.writer.over:
            return []
        try:
            chunks = self.writer.write(step)
            with UNCOUNTED:
                self._count(step, self.writer.used, probe)
        except Exception:  # of text, whatever it is: its client must hear of it, and others' steps go on
            log.exception("a response could not be made")
            self.metrics.fault(m.ENDED_REQUEST)
            self.request.fail(EngineError(FAILED))
            return []
        return [AddressedChunk(self.request, chunk) for chunk in chunks]

    def _count(self, step: NewTokens, tokens: int, probe: bool) -> None:
        last_at, now, metrics = self._last_at, time.monotonic(), self.metrics
        self._last_at = now
        if not last_at:
            metrics.observe(m.FIRST_TOKEN, now - self.request.arrived)
        elif tokens:
            for family in (m.INTER_TOKEN, m.PROBE_INTER_TOKEN)[: 1 + probe]:
                metrics.observe(family, (now - last_at) / tokens, tokens)
        metrics.step(tokens, step.drafted, step.accepted)
        if self.writer.over:
            metrics.add(m.PROMPT_TOKENS, self.writer.prompt_tokens)
            metrics.observe(m.LATENCY, now - self.request.arrived)
            if self.probe:
                metrics.add(m.PROBES, 1)
