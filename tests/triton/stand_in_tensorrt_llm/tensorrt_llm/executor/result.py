"""Results: a sequence's tokens so far, as the engine adds to them."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from reference_engine.kv_cache import BLOCK, blocks
from reference_engine.request import Finish, Output, Stats

from .utils import RequestError

FINISH = {Finish.LENGTH: "length", Finish.END_ID: "stop", Finish.STOP: "stop", Finish.CANCELLED: "cancelled"}


@dataclass(slots=True)
class CompletionOutput:
    """One sequence's output: all of its tokens so far."""

    index: int
    text: str = ""
    token_ids: list[int] | None = field(default_factory=list)
    cumulative_logprob: float | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    request_perf_metrics: Any = None


class RequestOutput:
    """A request's output, awaited on the loop it was made on. `group`: tokens an iteration gives."""

    def __init__(self, request_id: int, prompt_token_ids: list[int], streaming: bool, group: int) -> None:
        self.request_id = request_id
        self.prompt_token_ids = prompt_token_ids
        self.outputs = [CompletionOutput(0)]
        self.finished = False
        self.avg_decoded_tokens_per_iter: float | None = None
        self.on_abort: Callable[[], None] = lambda: None
        self._streaming = streaming
        self._group = group
        self._iterations = 0
        self._pending: list[int] = []
        self._aborted = False
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Exception | tuple[list[int], Output]] = asyncio.Queue()

    def abort(self) -> None:
        """Abort the request."""
        self._aborted = True
        print(f"stand-in: request {self.request_id} aborted", flush=True)
        self.on_abort()

    def aborted(self) -> bool:
        """Whether the request was aborted."""
        return self._aborted

    def add(self, output: Output) -> None:
        """Take an output of the engine, on its thread: an iteration's worth of tokens makes a response."""
        self._pending += output.tokens
        while len(self._pending) >= self._group or output.finish:
            tokens, self._pending = self._pending[: self._group], self._pending[self._group :]
            last = bool(output.finish) and not self._pending
            self._respond((tokens, output if last else Output([], [], [], Finish.NONE, output.stats)))
            if last:
                break

    def fail(self, error: Exception) -> None:
        """End with an error."""
        self._respond(error)

    def _respond(self, item: Exception | tuple[list[int], Output]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)

    def __aiter__(self) -> "RequestOutput":
        return self

    async def __anext__(self) -> "RequestOutput":
        while not self.finished:
            item = await self._queue.get()
            if isinstance(item, Exception):
                self.finished = True
                raise item
            self._take(*item)
            if self._streaming or self.finished:
                return self
        raise StopAsyncIteration

    def _take(self, tokens: list[int], output: Output) -> None:
        best = self.outputs[0]
        assert best.token_ids is not None
        if tokens:
            best.token_ids.extend(tokens)
            self._iterations += 1
            self.avg_decoded_tokens_per_iter = len(best.token_ids) / self._iterations
        best.cumulative_logprob = (best.cumulative_logprob or 0.0) + sum(output.log_probs)
        if output.finish == Finish.ERROR:
            raise RequestError(output.error)
        if output.finish:
            best.finish_reason = FINISH[output.finish]
            best.request_perf_metrics = self._perf_metrics(output.stats, len(best.token_ids))
            self.finished = True

    def _perf_metrics(self, stats: Stats, tokens: int) -> Any:
        """The attributes of upstream's RequestPerfMetrics; version 1.2 does not count what was drafted."""
        drafted = (self._group - 1) * self._iterations if os.environ.get("STAND_IN_VERSION") == "1.3" else 0
        accepted = tokens - self._iterations if drafted else 0
        reused, total = stats.reused_tokens // BLOCK, blocks(stats.cached_tokens)
        return SimpleNamespace(
            kv_cache_metrics=SimpleNamespace(
                num_reused_blocks=reused,
                num_missed_blocks=total - reused,
                num_new_allocated_blocks=total - reused,
                num_total_allocated_blocks=total,
                kv_cache_hit_rate=reused / total if total else 0.0,
            ),
            timing_metrics=SimpleNamespace(
                arrival_time=_time(stats.first_scheduled_ns),
                first_scheduled_time=_time(stats.first_scheduled_ns),
                first_token_time=_time(stats.first_token_ns),
                last_token_time=_time(stats.last_token_ns),
            ),
            speculative_decoding=SimpleNamespace(
                acceptance_rate=accepted / drafted if drafted else 0.0,
                total_accepted_draft_tokens=accepted,
                total_draft_tokens=drafted,
            ),
        )


def _time(nanoseconds: int) -> timedelta:
    return timedelta(microseconds=nanoseconds // 1000)
