"""Requests of the LLM-API model while they run: an asyncio loop on a thread, a task for each sequence.

Triton calls `submit`, which checks the request and returns. The engine's responses become chunks on the loop;
`delivery` sends them, since sending waits for the server. `watch` looks whether a client is gone, a request's
time is over or the engine has died, and reports the metrics.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from tandem_serving import metrics as m
from tandem_serving.engine.health import CANARY_PROMPT, IDLE, PROMPT_TOKENS, EngineHealth
from tandem_serving.engine.watch import AskAgainError, EngineWatch, WatchHooks
from tandem_serving.errors import (
    FAILED,
    CancelledError,
    EngineError,
    QueueFullError,
    ServingError,
    Survived,
    faults_as_errors,
)
from tandem_serving.llmapi.chunks import LlmApiChunk, LlmApiWriter, SequenceOutput
from tandem_serving.llmapi.engine import STOPPED
from tandem_serving.llmapi.meter import Meter
from tandem_serving.llmapi.request import Codec, LlmApiParser, LlmApiPrompt, LlmApiRequest
from tandem_serving.llmapi.statistics import EngineState
from tandem_serving.requests.active import ActiveRequest, ActiveRequests, Responder
from tandem_serving.requests.delivery import Delivery
from tandem_serving.requests.tensors import Array
from tandem_serving.threads import end_process
from tandem_serving.threads import start as start_thread

log = logging.getLogger("tandem.llmapi")

WATCH_SECONDS = 0.1
SLOW_WATCH_SECONDS = 0.5  # metrics and the engine's health
STATE_SECONDS = 1.0


class LlmApiCall(AsyncIterable[SequenceOutput], Protocol):
    """A sequence in the engine; iterating raises ServingError."""

    def abort(self) -> None:
        """Have the engine give it up, unless it is over."""
        ...


class LlmApiEngine(Protocol):
    """What runs sequences; `start` is called on the session's loop."""

    codec: Codec

    def start(self, prompt: LlmApiPrompt, request: LlmApiRequest) -> LlmApiCall:
        """Start a sequence. Raises ServingError."""
        ...

    def states(self) -> AsyncIterator[EngineState]:
        """Its state after each iteration, while there are some; nothing where it does not tell."""
        ...

    def healthy(self) -> bool:
        """Whether it lives."""
        ...

    def close(self) -> None:
        """End it."""
        ...


@dataclass(frozen=True)
class LlmApiOptions:
    """Settings of a session. `running`: sequences that the engine runs at once; `waiting`: beyond those.
    `canary_seconds`: see engine_health.IDLE."""

    request_timeout: float
    running: int
    waiting: int
    speculates: bool
    canary_seconds: float = IDLE


class LlmApiService:
    """Runs requests on an engine; thread-safe. `close` ends everything. `guard` lets the engine be judged."""

    def __init__(self, engine: LlmApiEngine, parser: LlmApiParser, options: LlmApiOptions) -> None:
        self._failure: ServingError | None = None
        # What an engine tells of speculation shows with its first answers.
        self.metrics = m.Metrics(m.ALWAYS)
        self._unaborted = Survived("a sequence could not be given up", self.metrics.fault)
        self._health = EngineWatch("tensorrt_llm", self.metrics, EngineHealth(options.canary_seconds))
        self._asking: concurrent.futures.Future[None] | None = None
        self._engine = engine
        self._parser = parser
        self._options = options
        self._active: ActiveRequests[LlmApiChunk] = ActiveRequests(options.request_timeout, self.metrics.fault)
        self._delivery: Delivery[None] = Delivery(threads=2)
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._sequences = 0
        self._tasks: dict[asyncio.Task[None], ActiveRequest[LlmApiChunk]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = start_thread("llmapi", self._loop.run_forever)
        self._follower = asyncio.run_coroutine_threadsafe(self._follow(), self._loop)

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
        self._health.begin(WatchHooks(lambda: self._ask(request), self.fail, end=end))

    def fail(self, error: ServingError) -> None:
        """End all requests, and refuse later ones: the engine has failed."""
        self._failure = error
        self._end_all(error)

    def submit(self, tensors: Mapping[str, Array], request_id: str, responder: Responder[LlmApiChunk]) -> None:
        """Start a request; everything that is wrong with it goes to `responder`."""
        try:
            if self._failure:
                raise self._failure
            with faults_as_errors("a request could not be read"):
                request = self._parser.parse(tensors)
            self._admit(len(request.prompts))
        except ServingError as error:
            responder.fail(error)
            return
        active = self._active.make(len(request.prompts), request_id, responder)
        # Started, then watched: whoever ends it cancels what has been started.
        self._loop.call_soon_threadsafe(self._start, active, request)
        self._active.add(active)
        if self._failure:  # meanwhile
            self.fail(self._failure)

    def cancel(self, request_id: str) -> None:
        """End all requests with this id: the client asked for it."""
        self._active.cancel(request_id)
        self._soon(self._cancel_ended)

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
                    self._soon(self._cancel_ended)
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
        asyncio.run_coroutine_threadsafe(self._ended(), self._loop).result()
        self._delivery.close()
        self._soon(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._engine.close()

    def _soon(self, work: Callable[[], object]) -> None:
        """Have the loop do `work`, unless it is closed: then there is nothing left to do it for."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(work)

    def _admit(self, count: int) -> None:
        limit = self._options.running + self._options.waiting
        with self._lock:
            if self._sequences + count > limit:
                self.metrics.add(m.REFUSED, count, m.QUEUE_FULL)
                raise QueueFullError(
                    f"{self._sequences} sequences are running or waiting and the limit is {limit}: "
                    f"no room for {count} more; send the request again later or to another replica"
                )
            self._sequences += count

    def _start(self, active: ActiveRequest[LlmApiChunk], request: LlmApiRequest) -> None:
        for prompt in request.prompts:
            task = self._loop.create_task(self._run(active, request, prompt))
            self._tasks[task] = active
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        active = self._tasks.pop(task)
        with self._lock:
            self._sequences -= 1
        # Whatever `_run` let through, be it no Exception; a task is cancelled where its request is over.
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None and not active.over:
            log.error("a sequence broke off", exc_info=error)
            self._broke_off(active)

    async def _run(self, active: ActiveRequest[LlmApiChunk], request: LlmApiRequest, prompt: LlmApiPrompt) -> None:
        try:
            await self._generate(active, request, prompt)
        except ServingError as error:
            self._fail(active, error)
        except Exception:  # whatever it is, the client must hear of it, and nobody else
            log.exception("a sequence broke off")
            self._broke_off(active)

    async def _generate(
        self, active: ActiveRequest[LlmApiChunk], request: LlmApiRequest, prompt: LlmApiPrompt
    ) -> None:
        writer = LlmApiWriter(prompt, request, self._engine.codec.decode)
        meter = Meter(self.metrics, active.arrived)
        with self._health.call(_work(prompt), _kind(prompt)) as answered:
            call = self._engine.start(prompt, request)
            try:
                async for progress in call:
                    answered()
                    meter.count(progress, streamed=prompt.best_of == 1)
                    chunk = writer.write(progress)
                    if chunk is not None:
                        self._send(active, chunk)
                    if writer.over:
                        meter.finish(prompt, progress, self._options.speculates)
                        return
            finally:
                with self._unaborted:  # what was generated is right all the same
                    call.abort()

    def _send(self, active: ActiveRequest[LlmApiChunk], chunk: LlmApiChunk) -> None:
        def deliver() -> None:
            try:
                active.send(chunk)
            except Exception:  # of Triton's sender, whatever it is: deliveries to others must go on
                log.exception("a response could not be sent")
                self._broke_off(active)

        self._delivery.put(active, deliver)

    def _broke_off(self, active: ActiveRequest[LlmApiChunk]) -> None:
        """End a request for a fault of ours."""
        self.metrics.fault(m.ENDED_REQUEST)
        self._fail(active, EngineError(FAILED))

    def _fail(self, active: ActiveRequest[LlmApiChunk], error: ServingError) -> None:
        """End a request with all its sequences."""
        active.fail(error)
        self._soon(self._cancel_ended)

    def _cancel_ended(self) -> None:
        for task, active in self._tasks.items():
            if active.over:
                task.cancel()

    def _end_all(self, error: ServingError) -> None:
        self._active.fail_all(error)
        self._soon(self._cancel_ended)

    async def _ended(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self) -> None:
        """Tell the engine's state while sequences run; then, that they hold nothing."""
        state = None
        unreported = Survived(
            "the engine's state cannot be told any more; requests are not affected", self.metrics.fault
        )
        while True:
            await asyncio.sleep(STATE_SECONDS)
            with unreported:  # whatever is wrong with the engine's statistics: requests go on without
                if self._sequences:
                    async for state in self._engine.states():
                        self._report_state(state)
                if state and not self._sequences:
                    self._report_state(replace(state, requests=0, used=0))

    def _report_state(self, state: EngineState) -> None:
        for (family, labels), value in state.gauges().items():
            self.metrics.set(family, value, labels)

    def _check_health(self) -> None:
        if self.healthy and not self._alive():
            self._health.stopped(STOPPED)

    def _ask(self, request: LlmApiRequest) -> None:
        """The canary, on its thread. Raises ServingError, and AskAgainError where the session closes."""
        self._asking = asyncio.run_coroutine_threadsafe(self._answer(request), self._loop)
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
            log.exception("the engine's health cannot be told")
            return False

    def _report(self, sink: m.Sink) -> None:
        sequences, running = self._sequences, self._options.running
        self.metrics.set(m.RUNNING, min(sequences, running))
        self.metrics.set(m.WAITING, max(0, sequences - running))
        self.metrics.flush(sink)


def _work(prompt: LlmApiPrompt) -> float:
    """In steps of the engine, until its first response."""
    steps = 1 if prompt.best_of == 1 else prompt.sampling["max_tokens"]
    return float(steps) + len(prompt.ids) / PROMPT_TOKENS


def _kind(prompt: LlmApiPrompt) -> tuple[object, ...]:
    """What decides which code of the engine runs."""
    return frozenset(prompt.sampling), bool(prompt.guide), bool(prompt.lora)
