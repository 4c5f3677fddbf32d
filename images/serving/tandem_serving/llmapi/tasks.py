"""Sequences on the engine: an asyncio loop on a thread of its own, a task for each sequence.

The engine's responses become chunks on the loop; `delivery` sends them, since sending waits for the server.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from tandem_serving import metrics as m
from tandem_serving.engine.health import IDLE, PROMPT_TOKENS
from tandem_serving.engine.watch import EngineWatch
from tandem_serving.errors import FAILED, EngineError, QueueFullError, ServingError, Survived
from tandem_serving.llmapi.chunks import LlmApiChunk, LlmApiWriter
from tandem_serving.llmapi.engine import LlmApiEngine
from tandem_serving.llmapi.meter import Meter
from tandem_serving.llmapi.outbox import Outbox
from tandem_serving.llmapi.request import LlmApiPrompt, LlmApiRequest
from tandem_serving.llmapi.suspects import Suspects, Turn
from tandem_serving.requests.active import ActiveRequest
from tandem_serving.requests.delivery import Delivery
from tandem_serving.threads import start as start_thread

log = logging.getLogger("tandem.llmapi")

LOST = (
    "the engine answers this request no longer, and has answered later ones: send the request again, or to another"
    " replica"
)


@dataclass(frozen=True)
class LlmApiOptions:
    """Settings of the service. `running`: sequences that the engine runs at once; `waiting`: beyond those.
    `canary_seconds`: see engine.health.IDLE."""

    request_timeout: float
    running: int
    waiting: int
    reports_drafts: bool
    canary_seconds: float = IDLE


class SequenceTasks:
    """The sequences that run or wait in the engine; thread-safe. `watch` gets the engine's answers."""

    def __init__(
        self,
        engine: LlmApiEngine,
        options: LlmApiOptions,
        metrics: m.Metrics,
        watch: EngineWatch,
        suspects: Suspects,
    ) -> None:
        self._engine = engine
        self._options = options
        self._metrics = metrics
        self._watch = watch
        self._suspects = suspects
        self._unaborted = Survived("a sequence could not be given up", metrics.fault)
        self._delivery: Delivery[None] = Delivery(threads=2)
        self._batch: list[tuple[ActiveRequest[LlmApiChunk], Callable[[], None], bool]] = []
        self._lock = threading.Lock()
        self._count = 0
        self._tasks: dict[asyncio.Task[None], ActiveRequest[LlmApiChunk]] = {}
        self.loop = asyncio.new_event_loop()
        self._thread = start_thread("llmapi", self.loop.run_forever)

    @property
    def count(self) -> int:
        """Sequences that run or wait."""
        return self._count

    def admit(self, count: int) -> None:
        """Count sequences that are about to start, all or none. Raises QueueFullError."""
        limit = self._options.running + self._options.waiting
        with self._lock:
            if self._count + count > limit:
                self._metrics.add(m.REFUSED, count, m.QUEUE_FULL)
                raise QueueFullError(self._count, limit, count)
            self._count += count

    def start(self, active: ActiveRequest[LlmApiChunk], request: LlmApiRequest) -> None:
        """Start the sequences of a request, which are counted already."""
        self.loop.call_soon_threadsafe(self._start, active, request)

    def cancel_ended(self) -> None:
        """End the sequences whose requests are over."""
        self._soon(self._cancel_ended)

    def run(self, work: Coroutine[Any, Any, None]) -> concurrent.futures.Future[None]:
        """Run something else on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        """End the loop and the threads, when all sequences have ended."""
        self.run(self._ended()).result()
        self._delivery.close()
        self._soon(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def _soon(self, work: Callable[[], object]) -> None:
        """Have the loop do `work`, unless it is closed: then there is nothing left to do it for."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(work)

    def _start(self, active: ActiveRequest[LlmApiChunk], request: LlmApiRequest) -> None:
        for prompt in request.prompts:
            task = self.loop.create_task(self._run(active, request, prompt))
            self._tasks[task] = active
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        active = self._tasks.pop(task)
        with self._lock:
            self._count -= 1
        # Whatever `_run` let through, be it no Exception; a task is cancelled where its request is over.
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None and not active.over:
            log.error("a sequence broke off", exc_info=error)
            self._broke_off(active)

    async def _run(self, active: ActiveRequest[LlmApiChunk], request: LlmApiRequest, prompt: LlmApiPrompt) -> None:
        try:
            async with self._suspects.run(prompt, request) as turn:
                await self._generate(active, request, prompt, turn)
        except ServingError as error:
            self._fail(active, error)
        except Exception:  # whatever it is, its client alone gets the error
            log.exception("a sequence broke off")
            self._broke_off(active)

    async def _generate(
        self, active: ActiveRequest[LlmApiChunk], request: LlmApiRequest, prompt: LlmApiPrompt, turn: Turn
    ) -> None:
        writer = LlmApiWriter(prompt, request, self._engine.codec.decode)
        meter = Meter(self._metrics, active.arrived)
        outbox = Outbox(partial(self._put, active), partial(self._send, active))
        lost = partial(self._fail, active, EngineError(LOST, "UNAVAILABLE"))
        with self._watch.call(_work(prompt), _kind(prompt), lost) as answer:
            answered = turn.until_first(answer)
            call = self._engine.start(prompt, request)
            try:
                async for progress in call:
                    answered()
                    meter.count(progress, streamed=prompt.best_of == 1)
                    chunk = writer.write(progress)
                    if chunk is not None:
                        outbox.add(chunk)
                    if writer.over:
                        meter.finish(prompt, progress, self._options.reports_drafts)
                        return
            finally:
                with self._unaborted:  # what was generated is right all the same
                    call.abort()

    def _put(self, active: ActiveRequest[LlmApiChunk], work: Callable[[], None], first: bool = False) -> None:
        """On the loop: have another thread do it, after all that was put before for this request."""
        if not self._batch:
            self.loop.call_soon(self._deliver)
        self._batch.append((active, work, first))

    def _deliver(self) -> None:
        """What a pass of the loop brought: threads that woke one by one would take the interpreter from the rest."""
        batch, self._batch = self._batch, []
        for first in (True, False):
            if steps := [(active, work) for active, work, each in batch if each is first]:
                self._delivery.put_batch(steps, first)

    def _send(self, active: ActiveRequest[LlmApiChunk], chunk: LlmApiChunk) -> None:
        try:
            active.send(chunk)
        except Exception:  # of Triton's sender, whatever it is: deliveries to others must go on
            log.exception("a response could not be sent")
            self._broke_off(active)

    def _broke_off(self, active: ActiveRequest[LlmApiChunk]) -> None:
        """End a request for a fault of ours."""
        self._metrics.fault(m.ENDED_REQUEST)
        self._fail(active, EngineError(FAILED))

    def _fail(self, active: ActiveRequest[LlmApiChunk], error: ServingError) -> None:
        """End a request with all its sequences; not here, where a client that takes nothing would hold up all."""

        def deliver() -> None:
            active.fail(error)
            self.cancel_ended()

        self._soon(partial(self._put, active, deliver))

    def _cancel_ended(self) -> None:
        for task, active in self._tasks.items():
            if active.over:
                task.cancel()

    async def _ended(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _work(prompt: LlmApiPrompt) -> float:
    """In steps of the engine, until its first response."""
    steps = 1 if prompt.best_of == 1 else prompt.sampling["max_tokens"]
    return float(steps) + len(prompt.ids) / PROMPT_TOKENS


def _kind(prompt: LlmApiPrompt) -> tuple[object, ...]:
    """What decides which code of the engine runs."""
    greedy = prompt.sampling.get("temperature") == 0
    return frozenset(prompt.sampling), greedy, bool(prompt.guide), bool(prompt.lora)
