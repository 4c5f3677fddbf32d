"""The service of the LLM-API model: requests in, chunks out.

Triton calls `submit`, which checks the request and returns; its sequences are tasks (`tasks`). `watch` looks whether
a client is gone, a request's time is over or the engine has died, and reports the metrics.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable, Mapping

import numpy as np

from tandem_serving import metrics as m
from tandem_serving.engine import failure
from tandem_serving.engine.health import CANARY_PROMPT, EngineHealth
from tandem_serving.engine.watch import AskAgainError, EngineWatch, WatchHooks
from tandem_serving.errors import (
    CancelledError,
    ServingError,
    Survived,
    faults_as_errors,
)
from tandem_serving.llmapi.chunks import LlmApiChunk
from tandem_serving.llmapi.engine import STOPPED, LlmApiEngine
from tandem_serving.llmapi.request import LlmApiParser, LlmApiRequest
from tandem_serving.llmapi.statistics import EngineState
from tandem_serving.llmapi.suspects import Suspects
from tandem_serving.llmapi.tasks import LlmApiOptions, SequenceTasks
from tandem_serving.requests.active import ActiveRequests, Responder
from tandem_serving.requests.tensors import Array
from tandem_serving.threads import end_process

log = logging.getLogger("tandem.llmapi")

WATCH_SECONDS = 0.1
SLOW_WATCH_SECONDS = 0.5  # metrics and the engine's health
STATE_SECONDS = 1.0


class LlmApiService:
    """Runs requests on an engine; thread-safe. `close` ends everything. `guard` lets the engine be judged."""

    def __init__(self, engine: LlmApiEngine, parser: LlmApiParser, options: LlmApiOptions) -> None:
        self._failure: ServingError | None = None
        self._held_back = 0  # sequences that wait in the engine, such as for room in its KV cache
        # What an engine reports of speculation shows with its first answers.
        self.metrics = m.Metrics(m.ALWAYS)
        self._health = EngineWatch(engine.name, self.metrics, EngineHealth(options.canary_seconds))
        self._asking: concurrent.futures.Future[None] | None = None
        self._engine = engine
        self._parser = parser
        self._options = options
        self._active: ActiveRequests[LlmApiChunk] = ActiveRequests(options.request_timeout, self.metrics.fault)
        self._closed = threading.Event()
        self._suspects = Suspects(failure.folder(), self.metrics)
        self._tasks = SequenceTasks(engine, options, self.metrics, self._health, self._suspects)
        self._follower = self._tasks.run(self._follow())

    @property
    def healthy(self) -> bool:
        """Whether the engine works, as far as is known."""
        return self._failure is None

    def guard(self, end: Callable[[], None] = end_process) -> None:
        """Judge the engine from now on; `end` the process where it has failed."""
        tensors = {
            "text_input": np.array([CANARY_PROMPT.encode()], np.object_),
            "sampling_param_max_tokens": np.array([1]),
        }
        request = self._parser.parse(tensors)
        self._suspects.trust(request.prompts[0])
        self._health.begin(WatchHooks(lambda: self._ask(request), self.fail, end=end))

    def fail(self, error: ServingError) -> None:
        """End all requests, and refuse later ones: the engine has failed."""
        self._suspects.freeze()
        self._failure = error
        self._end_all(error)

    def submit(self, tensors: Mapping[str, Array], request_id: str, responder: Responder[LlmApiChunk]) -> None:
        """Start a request; everything that is wrong with it goes to `responder`."""
        try:
            if self._failure:
                raise self._failure
            with faults_as_errors("a request could not be read"):
                request = self._parser.parse(tensors)
                self._suspects.check(request)
            self._tasks.admit(len(request.prompts))
        except ServingError as error:
            responder.fail(error)
            return
        active = self._active.make(len(request.prompts), request_id, responder)
        # Started, then watched: whoever ends it cancels what has been started.
        self._tasks.start(active, request)
        self._active.add(active)
        if self._failure:  # meanwhile
            self.fail(self._failure)

    def cancel(self, request_id: str) -> None:
        """End all requests with this id: the client asked for it."""
        self._active.cancel(request_id)
        self._tasks.cancel_ended()

    def watch(self, sink: m.Sink) -> None:
        """Watch over requests and report metrics until `close`; run on a thread of its own."""
        looked = 0.0
        over, slow = (
            Survived(f"{what} failed", self.metrics.fault) for what in ("requests that end", "health and metrics")
        )
        while not self._closed.wait(WATCH_SECONDS):
            now = time.monotonic()
            with over:
                if self._active.watch(now):
                    self._tasks.cancel_ended()
            if now - looked >= SLOW_WATCH_SECONDS:
                looked = now
                with slow:
                    self._check_health()
                    self._report(sink)

    def close(self) -> None:
        """End all requests, the engine and the threads."""
        self._health.close(lambda: self._asking and self._asking.cancel())
        self._closed.set()
        self._end_all(CancelledError("the server is shutting down: send the request again"))
        self._follower.cancel()
        self._tasks.close()
        self._engine.close()

    def _end_all(self, error: ServingError) -> None:
        self._active.fail_all(error)
        self._tasks.cancel_ended()

    async def _follow(self) -> None:
        """Report the engine's state while sequences run; then, that they hold nothing."""
        state, busy = None, False
        unreported = Survived(
            "the engine's state is not reported any more; requests are not affected", self.metrics.fault
        )
        while True:
            await asyncio.sleep(STATE_SECONDS)
            with unreported:  # whatever is wrong with the engine's statistics: requests go on without
                if self._tasks.count or busy:  # the last ones may have ended since
                    busy = bool(self._tasks.count)
                    async for state in self._engine.states():
                        self._report_state(state)
                if state and not self._tasks.count:
                    self._report_state(EngineState(0, state.blocks, 0))

    def _report_state(self, state: EngineState) -> None:
        for (family, labels), value in state.gauges(self._engine.families).items():
            self.metrics.set(family, value, labels)
        self._held_back = state.waiting
        if state.preemptions:
            self.metrics.add(m.PREEMPTIONS, state.preemptions)
        if state.speculation:
            told = state.speculation
            self.metrics.rounds(told.rounds, told.drafted, told.accepted)

    def _check_health(self) -> None:
        if self.healthy and not self._alive():
            self._health.stopped(self._engine.error() or STOPPED)

    def _ask(self, request: LlmApiRequest) -> None:
        """The canary, on its thread. Raises ServingError, and AskAgainError where the session closes."""
        self._asking = self._tasks.run(self._answer(request))
        try:
            self._asking.result()
        except concurrent.futures.CancelledError:
            raise AskAgainError from None

    async def _answer(self, request: LlmApiRequest) -> None:
        call = self._engine.start(request.prompts[0], request)
        try:
            async for _ in call:
                pass
        finally:
            call.abort()

    def _alive(self) -> bool:
        try:
            return self._engine.healthy()
        except Exception:  # of the engine's own check, whatever it raises: an engine that cannot tell is not healthy
            log.exception("the engine's health cannot be checked")
            return False

    def _report(self, sink: m.Sink) -> None:
        sequences = self._tasks.count
        waiting = min(sequences, max(sequences - self._options.running, self._held_back))
        self.metrics.set(m.RUNNING, sequences - waiting)
        self.metrics.set(m.WAITING, waiting)
        self.metrics.flush(sink)
