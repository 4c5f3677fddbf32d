"""A server under test: completions of many rows at once, and what the target alone answers to the same."""

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from tandem.client.conformance.exactness import TIE_SAMPLES, TIE_TEMPERATURE, Tie, tie
from tandem.client.generate.client import TritonClient
from tandem.client.generate.errors import RequestRefusedError
from tandem.client.generate.figures import Arrival, Completion, Recorder
from tandem.client.generate.request import Request, Sampling

ANSWER_SECONDS = 900.0
"""For one completion: longer than `serving.requestTimeoutSeconds` by default, so that the server answers first."""
TIE_ROWS = 16
"""Samples at once."""
BEYOND = 2**30
"""Tokens that no model has room for: the refusal names the limit."""
_LIMIT = re.compile(r"limit of (\d+)")

Answer = Completion | str
"""A completion; or why there is none."""


class Running(Protocol):
    """Sequences that run or wait now, by the pods' metrics; None where these cannot be read."""

    def __call__(self) -> Awaitable[float | None]:
        """Read them."""


@dataclass(frozen=True)
class Alone:
    """Who answers by the target alone: the service itself, or another. `num_draft_tokens`: as requests to it say."""

    server: TritonClient
    num_draft_tokens: int | None


@dataclass
class Subject:
    """A service's server. `alone` None: no server answers by the target alone, for the reason `why_not`; then the
    service's own answers, a row at a time, are what others are compared with. `refused`: parameters that it refuses
    since its engine would drop them."""

    server: TritonClient
    max_tokens: int
    running: Running
    alone: Alone | None
    why_not: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)
    known: dict[tuple[str, Sampling], Answer] = field(default_factory=dict)

    def seeded(self, sampling: Sampling, seed: int) -> Sampling:
        """With a seed, where the service takes one."""
        return sampling if "seed" in self.refused else replace(sampling, seed=seed)

    @property
    def reference(self) -> Alone:
        """Whose answers are the expected ones."""
        return self.alone or Alone(self.server, None)

    async def together(self, requests: Sequence[Request]) -> list[Answer]:
        """The answers to requests that are sent at once."""
        return list(await asyncio.gather(*(answer(self.server, request) for request in requests)))

    async def expected(self, prompt: str, sampling: Sampling) -> Answer:
        """What the reference answers, asked once, with nothing else on its way from here."""
        key = (prompt, sampling)
        if not isinstance(self.known.get(key), Completion):
            alone = self.reference
            self.known[key] = await answer(alone.server, Request(prompt, sampling, alone.num_draft_tokens))
        return self.known[key]

    async def tie(self, request: Request, expected: Completion, got: Completion, position: int) -> Tie:
        """Sample the reference from its two likeliest tokens, as far as `position`."""
        alone, gate = self.reference, asyncio.Semaphore(TIE_ROWS)
        near = replace(request.sampling, max_tokens=position + 1, temperature=TIE_TEMPERATURE, top_k=2)

        async def sample(seed: int) -> Answer:
            async with gate:
                asked = Request(request.prompt, self.seeded(near, seed), alone.num_draft_tokens)
                return await answer(alone.server, asked)

        answers = await asyncio.gather(*(sample(seed) for seed in range(1, TIE_SAMPLES + 1)))
        samples = [each.ids for each in answers if isinstance(each, Completion)]
        return tie(expected.ids, got.ids, position, samples)

    async def limit(self) -> int | None:
        """Tokens of prompt and answer that the service has room for; None where its refusal does not name them."""
        found = await answer(self.server, Request("a", Sampling(BEYOND)))
        named = _LIMIT.search(found) if isinstance(found, str) else None
        return int(named[1]) if named else None


async def answer(server: TritonClient, request: Request) -> Answer:
    """A completion, or the server's refusal. Raises ServerError: it went away."""
    recorder, sent = Recorder(), time.monotonic()
    try:
        async with asyncio.timeout(ANSWER_SECONDS), contextlib.aclosing(server.stream(request)) as chunks:
            async for chunk in chunks:
                recorder.add(Arrival(time.monotonic() - sent, chunk))
    except RequestRefusedError as error:
        return str(error)
    except TimeoutError:
        return f"no answer within {ANSWER_SECONDS:.0f} s"
    return recorder.completion() or "the stream ended before its completion did"


async def leave(server: TritonClient, request: Request) -> str:
    """Cancel a completion after its first chunk; why that was impossible, else empty."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS), contextlib.aclosing(server.stream(request)) as chunks:
            async for _ in chunks:
                break
    except RequestRefusedError as error:
        return str(error)
    except TimeoutError:
        return f"no chunk within {ANSWER_SECONDS:.0f} s"
    return ""


async def until(holds: Callable[[], Awaitable[bool]], seconds: float, pause: float = 0.5) -> bool:
    """Whether it holds within so many seconds."""
    deadline = time.monotonic() + seconds
    while not await holds():
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(pause)
    return True
