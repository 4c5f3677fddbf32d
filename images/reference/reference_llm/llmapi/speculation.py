"""Speculative decoding: a drafter guesses, the target verifies all guesses in one pass, until the sequence ends.

Each pass is a request of its own to the target's engine, which finds what the passes before it computed in its KV
cache, and batches the passes of all sequences. Draft tokens stand where they equal the target's choice, which depends
on the text, the seed and the position alone: the output is the target's own, token for token, sampled or greedy.
"""

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from reference_engine.engine import Call, Engine, EngineStopped
from reference_engine.request import Finish, Output, Request, Sink, Stats, check
from reference_engine.statistics import Statistics

from .drafters import Drafter
from .llm_args import SpeculativeConfig

IntArray = npt.NDArray[np.int32]
_OVER = (Finish.END_ID, Finish.STOP)


class Speculator:
    """Runs sequences on a target and a drafter. Thread-safe; outputs come on the engines' threads."""

    def __init__(self, target: Engine, drafter: Drafter, config: SpeculativeConfig) -> None:
        self._target = target
        self._drafter = drafter
        self._config = config
        self._lock = threading.Lock()
        self._running = 0

    def submit(self, request: Request, sink: Sink) -> Callable[[], None]:
        """Start a sequence; `sink` gets an output for each pass of the target. Returns what cancels it.

        Raises RequestError.
        """
        check(request, self._target.limits)
        with self._lock:
            self._running += 1

        def count(output: Output) -> None:
            if output.finish:
                with self._lock:
                    self._running -= 1
            sink(output)

        sequence = _Sequence(self._target, self._drafter, request, count)
        sequence.advance(self._draft_len)
        return sequence.cancel

    def close(self) -> None:
        """End all sequences and the engines."""
        self._drafter.close()
        self._target.close()

    @property
    def statistics(self) -> Statistics:
        """The target engine's state."""
        return self._target.statistics

    @property
    def alive(self) -> bool:
        """Whether the target's engine runs."""
        return self._target.alive

    def _draft_len(self) -> int:
        with self._lock:
            return self._config.draft_len(self._running)


class _Sequence:
    """A sequence: its tokens so far, and the engine's request that it waits for."""

    def __init__(self, target: Engine, drafter: Drafter, request: Request, sink: Sink) -> None:
        self._target = target
        self._drafter = drafter
        self._request = request
        self._sink = sink
        self._tokens: IntArray = request.input_ids
        self._stats: Stats | None = None
        self._lock = threading.Lock()
        self._cancelled = False
        self._current: tuple[Engine, Call] | None = None

    @property
    def _generated(self) -> int:
        return len(self._tokens) - len(self._request.input_ids)

    @property
    def _left(self) -> int:
        return self._request.max_new_tokens - self._generated

    def advance(self, draft_len: Callable[[], int]) -> None:
        """Draft and verify once, then again until the end. The last token is the target's: it is not drafted."""

        def verify(draft: IntArray) -> None:
            self._start(self._target, self._verification(draft), take)

        def take(output: Output) -> None:
            if not self._take(output):
                self.advance(draft_len)

        count = min(draft_len(), self._left - 1)
        if count > 0:
            self._drafter.propose(self._tokens, count, self._request.sampling, self._start, verify)
        else:
            verify(self._tokens[:0])

    def cancel(self) -> None:
        """End it at the next pass."""
        with self._lock:
            self._cancelled = True
            if self._current:
                engine, call = self._current
                engine.cancel(call)

    def _verification(self, draft: IntArray) -> Request:
        sampling = self._request.sampling
        return replace(
            self._request,
            input_ids=self._tokens,
            max_new_tokens=self._left if len(draft) else 1,
            draft_ids=draft if len(draft) else None,
            sampling=replace(sampling, min_tokens=max(0, sampling.min_tokens - self._generated)),
            streaming=False,
        )

    def _start(self, engine: Engine, request: Request, sink: Sink) -> None:
        """Submit to an engine; whatever ends the request there ends the sequence."""

        def guarded(output: Output) -> None:
            if output.finish in (Finish.CANCELLED, Finish.ERROR):
                self._end(output.finish, output.error)
            else:
                sink(output)

        try:
            with self._lock:
                call = engine.submit(request, guarded)
                self._current = (engine, call)
                if self._cancelled:
                    engine.cancel(call)
        except EngineStopped as error:
            self._end(Finish.ERROR, str(error))

    def _end(self, finish: Finish, error: str) -> None:
        self._sink(Output([], [], [], finish, self._stats or Stats(), error))

    def _take(self, output: Output) -> bool:
        """Add a pass's tokens and pass them on; whether that was the last."""
        self._tokens = np.append(self._tokens, np.array(output.tokens, np.int32))
        self._stats = _sum(self._stats, output.stats)
        over = output.finish in _OVER or self._left == 0
        self._sink(replace(output, finish=output.finish if over else Finish.NONE, stats=self._stats))
        return over


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
