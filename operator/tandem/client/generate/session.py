"""Runs prompts against a server, shows and compares them."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tandem.client.generate.client import Stream, TritonClient
from tandem.client.generate.errors import RequestRefusedError, ServerError
from tandem.client.generate.figures import Chunk, Completion, PromptResult, Recorder
from tandem.client.generate.request import Request, Sampling
from tandem.client.generate.view import View

WARM_UP = "Hello"
WARM_UP_SAMPLING = Sampling(max_tokens=16)


@dataclass(frozen=True)
class CompletionPlan:
    """What to run: every prompt with at most `num_draft_tokens` draft tokens a pass (None: the service's
    own number), and with `compare` by the target alone as well; `concurrency` requests at once."""

    prompts: Sequence[str]
    sampling: Sampling
    num_draft_tokens: int | None = None
    compare: bool = False
    concurrency: int = 1


class Session:
    """One run of a plan."""

    def __init__(
        self, server: TritonClient, plan: CompletionPlan, view: View, progress: Callable[[str], None]
    ) -> None:
        self._server = server
        self._plan = plan
        self._view = view
        self._progress = progress

    async def run(self) -> list[PromptResult]:
        """Run all; the outcomes are in the order of the prompts.

        To compare, each group of `concurrency` prompts runs with speculation and then again without, never
        both at once: they would slow each other down. Two short requests before that are not measured: the
        first ones of a fresh server are slow, and speculation, which runs first, would pay for it. It still
        runs first on each prompt, whose KV cache the target alone then finds: the ratio errs on the safe side.

        Raises:
            ServerError: the server is not there, or went away.
        """
        plan = self._plan
        await self._server.check(drafts_by_request=plan.compare or plan.num_draft_tokens is not None)
        if plan.compare:
            await self._warm_up()
        size = plan.concurrency if plan.compare else len(plan.prompts)
        outcomes: list[PromptResult] = []
        for start in range(0, len(plan.prompts), size):
            outcomes += await self._group(range(start, min(start + size, len(plan.prompts))))
        self._view.summary(outcomes, plan.compare)
        return outcomes

    async def _warm_up(self) -> None:
        self._progress("warming up the server")
        for draft_tokens in (self._plan.num_draft_tokens, 0):
            stream = Stream(self._server, Request(WARM_UP, WARM_UP_SAMPLING, draft_tokens), asyncio.Semaphore())
            try:
                await _finish(PromptResult(0, WARM_UP), stream, lambda _: None)
            finally:
                await stream.close()
        self._progress("")

    async def _group(self, indices: range) -> list[PromptResult]:
        outcomes = await self._speculative(indices)
        return await self._alone(outcomes) if self._plan.compare else outcomes

    async def _speculative(self, indices: range) -> list[PromptResult]:
        plan, outcomes = self._plan, []
        streams = self._start([Request(plan.prompts[i], plan.sampling, plan.num_draft_tokens) for i in indices])
        try:
            for index, stream in zip(indices, streams, strict=True):
                prompt = plan.prompts[index]
                self._view.begin(index, len(plan.prompts), prompt)
                outcomes.append(await _finish(PromptResult(index, prompt), stream, self._view.chunk))
                self._view.outcome(outcomes[-1])
        finally:
            await _close(streams)
        return outcomes

    async def _alone(self, outcomes: Sequence[PromptResult]) -> list[PromptResult]:
        plan, compared = self._plan, [outcome for outcome in outcomes if not outcome.error]
        streams = self._start([Request(outcome.prompt, plan.sampling, 0) for outcome in compared])
        done = {outcome.index: outcome for outcome in outcomes}
        try:
            for outcome, stream in zip(compared, streams, strict=True):
                self._progress(f"prompt {outcome.index + 1} of {len(plan.prompts)}: target alone, to compare")
                alone = await _finish(PromptResult(outcome.index, outcome.prompt), stream, lambda _: None)
                self._progress("")
                done[outcome.index] = replace(outcome, alone=alone.completion, error=alone.error)
                self._view.outcome(done[outcome.index])
        finally:
            await _close(streams)
        return list(done.values())

    def _start(self, requests: Sequence[Request]) -> list[Stream]:
        gate = asyncio.Semaphore(self._plan.concurrency)
        return [Stream(self._server, request, gate) for request in requests]


async def _finish(outcome: PromptResult, stream: Stream, show: Callable[[Chunk], None]) -> PromptResult:
    try:
        return replace(outcome, completion=await _read(stream, show))
    except RequestRefusedError as error:
        return replace(outcome, error=str(error))


async def _read(stream: Stream, show: Callable[[Chunk], None]) -> Completion:
    recorder = Recorder()
    async for arrival in stream:
        recorder.add(arrival)
        show(arrival.chunk)
    completion = recorder.completion()
    if completion is None:
        raise ServerError(
            f"the stream ended after {recorder.tokens} tokens, before the completion did: see the server's log"
        )
    return completion


async def _close(streams: Sequence[Stream]) -> None:
    await asyncio.gather(*(stream.close() for stream in streams))
