"""Results: a sequence's tokens so far, as the engine adds to them."""

import asyncio
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
    logprobs: list[float] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    request_perf_metrics: Any = None


class RequestOutput:
    """A request's output, awaited on the loop it was made on."""

    def __init__(self, request_id: int, prompt_token_ids: list[int], streaming: bool) -> None:
        self.request_id = request_id
        self.prompt_token_ids = prompt_token_ids
        self.outputs = [CompletionOutput(0)]
        self.finished = False
        self.avg_decoded_tokens_per_iter: float | None = None
        self.on_abort: Callable[[], None] = lambda: None
        self._streaming = streaming
        self._iterations = 0
        self._stats = Stats()
        self._rounds: list[int] = []
        self._aborted = False
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Exception | Output] = asyncio.Queue()

    def abort(self) -> None:
        """Abort the request."""
        self._aborted = True
        self.on_abort()

    def aborted(self) -> bool:
        """Whether the request was aborted."""
        return self._aborted

    def add(self, output: Output) -> None:
        """Take an output of the engine, on any thread: the tokens of one iteration."""
        self._respond(output)

    def fail(self, error: Exception) -> None:
        """End with an error."""
        self._respond(error)

    def _respond(self, item: Exception | Output) -> None:
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
            self._take(item)
            if self._streaming or self.finished:
                return self
        raise StopAsyncIteration

    def _take(self, output: Output) -> None:
        best = self.outputs[0]
        assert best.token_ids is not None
        if output.tokens:
            best.token_ids.extend(output.tokens)
            self._iterations += 1
            self.avg_decoded_tokens_per_iter = len(best.token_ids) / self._iterations
        self._count_round(output.stats)
        best.cumulative_logprob = (best.cumulative_logprob or 0.0) + sum(output.log_probs)
        if output.log_probs:
            best.logprobs = [*(best.logprobs or ()), *output.log_probs]
        if output.finish == Finish.ERROR:
            raise RequestError(output.error)
        if output.finish:
            best.finish_reason = FINISH[output.finish]
            best.request_perf_metrics = _perf_metrics(output.stats, self._rounds)
            self.finished = True

    def _count_round(self, stats: Stats) -> None:
        """Of a draft and its verification; `stats` are of the whole sequence so far."""
        before, self._stats = self._stats, stats
        if drafted := stats.draft_tokens - before.draft_tokens:
            self._rounds += [0] * (drafted + 1 - len(self._rounds))
            self._rounds[stats.accepted_draft_tokens - before.accepted_draft_tokens] += 1


def _perf_metrics(stats: Stats, rounds: list[int]) -> Any:
    """The attributes of upstream's RequestPerfMetrics, and `acceptance_histogram` of its pull request 19311."""
    drafted, accepted = stats.draft_tokens, stats.accepted_draft_tokens
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
            acceptance_histogram=rounds,
        ),
    )


def _time(nanoseconds: int) -> timedelta:
    return timedelta(microseconds=nanoseconds // 1000)
