"""A closed loop: so many streams, each sending its next request when the one before is done."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from tandem.client.bench.figures import Window
from tandem.client.generate.client import TritonClient
from tandem.client.generate.errors import RequestRefusedError
from tandem.client.generate.figures import Arrival, Completion, Recorder
from tandem.client.generate.request import Request, Sampling

REFUSED_PAUSE_SECONDS = 0.5
"""Before a stream sends its next request: a server that has no place now is not asked all the time."""


@dataclass(frozen=True)
class Load:
    """What the streams ask for. `num_draft_tokens`: 0 for the target alone, None for the service's own number."""

    prompts: Sequence[str]
    sampling: Sampling
    streams: int
    num_draft_tokens: int | None = None


@dataclass
class _Seen:
    """What came, with its time."""

    tokens: list[tuple[float, int]] = field(default_factory=list)
    first_tokens: list[tuple[float, float]] = field(default_factory=list)
    completions: list[tuple[float, Completion]] = field(default_factory=list)
    refusals: list[tuple[float, str]] = field(default_factory=list)

    def window(self, start: float, end: float) -> Window:
        """What lies between two times."""
        return Window(
            seconds=end - start,
            tokens=sum(tokens for at, tokens in self.tokens if start <= at < end),
            completions=tuple(completion for at, completion in self.completions if start <= at < end),
            first_tokens=tuple(seconds for at, seconds in self.first_tokens if start <= at < end),
            refusals=tuple(text for at, text in self.refusals if start <= at < end),
        )


async def play(server: TritonClient, load: Load, warm_up: float, seconds: float) -> Window:
    """Play a load for `warm_up` and then `seconds`, which is the window; requests under way then are cancelled.

    Others may use the service, too: a stream that is refused goes on with its next request a little later.

    Raises:
        RequestRefusedError: the server refused one of each stream and has made no token, or none in the window.
        ServerError: it went away.
    """
    seen, numbers = _Seen(), count()
    streams = [asyncio.ensure_future(_stream(server, load, numbers, seen)) for _ in range(load.streams)]
    start = time.monotonic() + warm_up
    try:
        done, _ = await asyncio.wait(streams, timeout=warm_up + seconds, return_when=asyncio.FIRST_COMPLETED)
        for stream in done:
            stream.result()  # streams end only by errors
    finally:
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
    window = seen.window(start, start + seconds)
    if window.refusals and not window.tokens:
        raise RequestRefusedError(window.refusals[-1])
    return window


async def _stream(server: TritonClient, load: Load, numbers: Iterator[int], seen: _Seen) -> None:
    while True:
        prompt = load.prompts[next(numbers) % len(load.prompts)]
        try:
            await _request(server, Request(prompt, load.sampling, load.num_draft_tokens), seen)
        except RequestRefusedError as error:
            seen.refusals.append((time.monotonic(), str(error)))
            if not seen.tokens and len(seen.refusals) >= load.streams:
                raise
            await asyncio.sleep(REFUSED_PAUSE_SECONDS)


async def _request(server: TritonClient, request: Request, seen: _Seen) -> None:
    recorder, sent = Recorder(), time.monotonic()
    first = True
    async for chunk in server.stream(request):
        now = time.monotonic()
        recorder.add(Arrival(now - sent, chunk))
        if chunk.ids:
            seen.tokens.append((now, len(chunk.ids)))
            if first:
                seen.first_tokens.append((now, now - sent))
            first = False
    completion = recorder.completion()
    if completion is None:
        raise RequestRefusedError("a stream ended before its completion did: see the server's log")
    seen.completions.append((time.monotonic(), completion))
