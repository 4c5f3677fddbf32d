"""Speculative decoding in rounds: all sequences draft together, then the target verifies all drafts together.

A pass that is half empty costs a GPU as much as a full one, so no sequence goes on by itself; TensorRT-LLM's
PyExecutor works the same way. Drafts and verifications are requests of their own to the engines, which find what the
rounds before computed in their KV caches. A new sequence joins the first round after the target has read its prompt;
its prompt takes the room that verifications leave in the target's passes.

Draft tokens stand where they equal the target's choice, which depends on the text, the seed and the position
alone: the output is the target's own, token for token, sampled or greedy.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from reference_engine.engine import STOPPED, Call, Engine, EngineStopped
from reference_engine.kv_cache import blocks
from reference_engine.request import Finish, Output, Request, Sink, Stats, check
from reference_engine.statistics import Statistics

from . import batch
from .drafters import Drafter
from .llm_args import SpeculativeConfig

IntArray = npt.NDArray[np.int32]
_NO_DRAFT: IntArray = np.empty(0, np.int32)


class Speculator:
    """Runs sequences on a target and a drafter, on a thread of its own. Thread-safe.

    At most as many as the target has slots, in order of arrival. Outputs come on the speculator's thread, the first
    of a sequence on the target engine's.
    """

    def __init__(self, target: Engine, drafter: Drafter, config: SpeculativeConfig) -> None:
        self._target = target
        self._drafter = drafter
        self._config = config
        self._slots = target.statistics.slots
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
            self._admit()
        return partial(self._cancel, sequence)

    def close(self) -> None:
        """End all sequences with an error after the round under way, and the engines."""
        with self._wake:
            self._open = False
            self._wake.notify()
        self._thread.join()

    @property
    def statistics(self) -> Statistics:
        """The target engine's state; a sequence runs, and holds its blocks, between its rounds too.

        Read without a lock: a moment's picture.
        """
        running = [each for each in self._running if not each.finish]
        used = sum(blocks(len(each.tokens)) for each in running)
        return replace(self._target.statistics, running=len(running), waiting=len(self._waiting), used=used)

    @property
    def alive(self) -> bool:
        """Whether it takes sequences."""
        return self._open and self._target.alive

    def _run(self) -> None:
        """Round after round until closed. An error ends all sequences: none is left waiting for ever."""
        error = STOPPED
        try:
            while ready := self._ready():
                self._round(ready)
        except EngineStopped as stopped:
            error = str(stopped)
        finally:
            with self._wake:
                self._open = False
            self._drafter.close()
            self._target.close()  # no output comes from here on
            for sequence in [*self._running, *self._waiting]:
                sequence.end(Finish.ERROR, error)

    def _ready(self) -> "list[_Sequence]":
        """Wait for sequences that the next round is for; none: closed."""
        with self._wake:
            while self._open:
                self._drop_cancelled()
                self._admit()
                ready = [each for each in self._running if not each.reading]
                if ready:
                    return ready
                self._wake.wait()
            return []

    def _drop_cancelled(self) -> None:
        for sequence in [*self._running, *self._waiting]:
            if sequence.cancelled and not sequence.reading:
                sequence.end(Finish.CANCELLED)
        self._waiting = deque(each for each in self._waiting if not each.finish)

    def _admit(self) -> None:
        """Let both models read the prompts of those that wait, while there is room."""
        self._running = [each for each in self._running if each.reading or not each.finish]
        while self._waiting and len(self._running) < self._slots:
            sequence = self._waiting.popleft()
            self._running.append(sequence)
            sequence.reading = self._target.submit(sequence.verification(_NO_DRAFT), partial(self._read, sequence))
            self._drafter.read(sequence.request.input_ids)

    def _read(self, sequence: "_Sequence", output: Output) -> None:
        """Take the first token, on the target engine's thread: it does not wait for the round under way."""
        sequence.take(output)
        with self._wake:
            sequence.reading = None
            self._wake.notify()

    def _round(self, ready: "Sequence[_Sequence]") -> None:
        length = min(self._config.draft_len(len(self._running)), self._target.limits.max_draft_len)
        drafts = self._drafter.propose([each.draft(length) for each in ready])
        verifications = [each.verification(draft) for each, draft in zip(ready, drafts, strict=True)]
        for sequence, output in zip(ready, batch.run(self._target, verifications), strict=True):
            sequence.take(output)

    def _cancel(self, sequence: "_Sequence") -> None:
        """End it before the next round, or while its prompt is read."""
        with self._wake:
            sequence.cancelled = True
            if sequence.reading:
                self._target.cancel(sequence.reading)
            self._wake.notify()


class _Sequence:
    """A sequence: its tokens so far. `reading`: the target's call that reads its prompt, until it has."""

    def __init__(self, request: Request, sink: Sink) -> None:
        self.request = request
        self.tokens: IntArray = request.input_ids
        self.reading: Call | None = None
        self.cancelled = False
        self.finish = Finish.NONE
        self._sink = sink
        self._stats: Stats | None = None
        # Neither end_id nor min_tokens: the end of the text is the target's to find.
        self._draft_sampling = replace(request.sampling, min_tokens=0)

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
