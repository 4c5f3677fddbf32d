"""Speculative decoding in rounds: all sequences draft together, then the target verifies all drafts together.

A pass that is half empty costs a GPU as much as a full one, so no sequence goes on by itself. One thread drives both
models, as TensorRT-LLM's PyExecutor does: it admits, drafts, verifies and delivers, and never waits for another.
Drafts and verifications are requests of their own to the schedulers, which find what the rounds before computed in
their KV caches. A prompt is read piece by piece, in the room that verifications leave in the target's passes; its
sequence joins the round after.

Draft tokens stand where they equal the target's choice, which depends on the text, the seed and the position
alone: the output is the target's own, token for token, sampled or greedy.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from reference_engine import sequence as scheduled
from reference_engine.engine import STOPPED, EngineStopped
from reference_engine.kv_cache import blocks
from reference_engine.request import Finish, Output, Request, Sink, Stats, check
from reference_engine.scheduler import Scheduler
from reference_engine.statistics import Statistics

from . import batch
from .drafters import Drafter
from .llm_args import SpeculativeConfig

IntArray = npt.NDArray[np.int32]
_NO_DRAFT: IntArray = np.empty(0, np.int32)


class Speculator:
    """Runs sequences on a target and a drafter: `most` at once, and no more than the target has slots, in order of
    arrival.

    The schedulers are its own until `close`. Thread-safe; outputs come on its thread.
    """

    def __init__(self, target: Scheduler, drafter: Drafter, config: SpeculativeConfig, most: int) -> None:
        self._target = target
        self._drafter = drafter
        self._config = config
        self._most = min(most, target.statistics.slots)
        self._waiting: deque[_Sequence] = deque()
        self._running: list[_Sequence] = []
        self._wake = threading.Condition()
        self._open = True
        self._thread = threading.Thread(target=self._run, name="speculation", daemon=True)
        self._thread.start()

    def submit(self, request: Request, sink: Sink) -> Callable[[], None]:
        """Start a sequence; `sink` gets an output for each pass of the target. Returns what cancels it.

        Raises RequestError and EngineStopped.
        """
        check(request, self._target.limits)
        sequence = _Sequence(request, sink)
        with self._wake:
            if not self._open:
                raise EngineStopped(STOPPED)
            self._waiting.append(sequence)
            self._wake.notify()
        return sequence.cancel

    def close(self) -> None:
        """End all sequences with an error after the round under way, and the thread."""
        with self._wake:
            self._open = False
            self._wake.notify()
        self._thread.join()

    @property
    def statistics(self) -> Statistics:
        """The target's state, without spare slots; a sequence runs, and holds its blocks, between its rounds too.

        Read without a lock: a moment's picture.
        """
        running = [each for each in self._running if not each.finish]
        used = sum(blocks(len(each.tokens)) for each in running)
        state, most = self._target.statistics, self._most
        total = state.blocks * most // state.slots
        counts = {"running": len(running), "waiting": len(self._waiting), "used": used}
        return replace(state, slots=most, blocks=total, **counts)

    @property
    def alive(self) -> bool:
        """Whether it takes sequences: neither closed nor stopped by an error."""
        return self._open

    def _run(self) -> None:
        """Until closed. An error ends all sequences: none is left waiting for ever."""
        try:
            while self._receive():
                self._iterate()
        finally:
            with self._wake:
                self._open = False
            for sequence in [*self._running, *self._waiting]:
                sequence.end(Finish.ERROR, STOPPED)

    def _receive(self) -> bool:
        """Wait for a sequence if there is none, then start those that have room; False: closed."""
        with self._wake:
            while self._open and not (self._waiting or self._running):
                self._wake.wait()
            for sequence in self._waiting:
                sequence.drop_if_cancelled()
            self._waiting = deque(each for each in self._waiting if not each.finish)
            while self._waiting and len(self._running) < self._most:
                self._running.append(self._waiting.popleft())
            return self._open

    def _iterate(self) -> None:
        """A round of the sequences whose prompts are read; where there are none, a pass of both models on prompts."""
        for sequence in self._running:
            if not sequence.started:
                sequence.read(self._target)
                self._drafter.read(sequence.request.input_ids)
            sequence.drop_if_cancelled()
        ready = [each for each in self._running if each.has_read and not each.finish]
        if ready:
            self._round(ready)
        else:
            self._target.step()
            self._drafter.step()
        self._running = [each for each in self._running if not each.finish]

    def _round(self, ready: "Sequence[_Sequence]") -> None:
        length = min(self._config.draft_len(len(self._running)), self._target.limits.max_draft_len)
        drafts = self._drafter.propose([each.draft(length) for each in ready])
        verifications = [each.verification(draft) for each, draft in zip(ready, drafts, strict=True)]
        for sequence, output in zip(ready, batch.run(self._target, verifications), strict=True):
            sequence.take(output)


class _Sequence:
    """A sequence: its tokens so far, and where it stands."""

    def __init__(self, request: Request, sink: Sink) -> None:
        self.request = request
        self.tokens: IntArray = request.input_ids
        self.finish = Finish.NONE
        self._reading: scheduled.Sequence | None = None
        self._cancelled = False
        self._sink = sink
        self._stats: Stats | None = None
        # Neither end_id nor min_tokens: the end of the text is the target's to find.
        self._draft_sampling = replace(request.sampling, min_tokens=0)

    def cancel(self) -> None:
        """End it before the next round, or pass over its prompt. From any thread."""
        self._cancelled = True

    def drop_if_cancelled(self) -> None:
        """End it where it was cancelled; what reads its prompt, too."""
        if self._cancelled and self._reading and not self.has_read:
            self._reading.cancelled = True
        elif self._cancelled:
            self.end(Finish.CANCELLED)

    @property
    def started(self) -> bool:
        """Whether `read` was called."""
        return self._reading is not None

    @property
    def has_read(self) -> bool:
        """Whether the target has read the prompt: there is a first token."""
        return self._stats is not None

    def read(self, target: Scheduler) -> None:
        """Let the target read the prompt, and choose the first token."""
        self._reading = target.submit(self.verification(_NO_DRAFT), self.take)

    @property
    def _generated(self) -> int:
        return len(self.tokens) - len(self.request.input_ids)

    @property
    def _left(self) -> int:
        return self.request.max_new_tokens - self._generated

    def draft(self, length: int) -> Request:
        """What the drafter is asked for. The last token is the target's: it is not drafted."""
        return Request(self.tokens, min(length, self._left - 1), sampling=self._draft_sampling)

    def verification(self, draft: IntArray) -> Request:
        """What the target is asked for: a pass over the draft, or the next token where there is none."""
        sampling = self.request.sampling
        if sampling.min_tokens:
            sampling = replace(sampling, min_tokens=max(0, sampling.min_tokens - self._generated))
        return replace(
            self.request,
            input_ids=self.tokens,
            max_new_tokens=self._left if len(draft) else 1,
            draft_ids=draft if len(draft) else None,
            sampling=sampling,
            streaming=False,
        )

    def take(self, output: Output) -> None:
        """Add a pass's tokens and send them on."""
        if output.finish in (Finish.CANCELLED, Finish.ERROR):
            self.end(output.finish, output.error)
            return
        self.tokens = np.concatenate([self.tokens, np.array(output.tokens, np.int32)])
        self._stats = _sum(self._stats, output.stats)
        if output.finish in (Finish.END_ID, Finish.STOP) or self._left == 0:
            self.finish = output.finish
        self._sink(replace(output, finish=self.finish, stats=self._stats))

    def end(self, finish: Finish, error: str = "") -> None:
        """End it without a further token, unless it has ended."""
        if not self.finish:
            self.finish = finish
            self._sink(Output([], [], [], finish, self._stats or Stats(), error))


def _sum(before: Stats | None, last: Stats) -> Stats:
    """Of a sequence: what its first request found and when, what all drafted, what the last holds."""
    if before is None:
        return last
    return replace(
        before,
        draft_tokens=before.draft_tokens + last.draft_tokens,
        accepted_draft_tokens=before.accepted_draft_tokens + last.accepted_draft_tokens,
        cached_tokens=last.cached_tokens,
        last_token_ns=last.last_token_ns,
    )
