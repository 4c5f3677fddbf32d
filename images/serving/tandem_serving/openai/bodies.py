"""Requests' bodies: received and worked on in bounded memory, while streams go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TypeVar

import anyio
from starlette.datastructures import Headers
from starlette.requests import Request

from tandem_serving.openai.errors import ApiError

BODY_SECONDS = 30.0
"""In which a request's body must have come."""
PLACES = {8 << 10: 128, 64 << 10: 4}
"""For bodies of more bytes: so many are on their way at once, others wait."""
LARGE = 64 << 10
THREADS = 2
"""For small bodies, and one more for large ones: each takes time from the event loop, which streams need."""
JSON = "application/json"
T = TypeVar("T")


class Bodies:
    """Receives bodies. `most`: bytes of one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._places = {above: asyncio.Semaphore(places) for above, places in PLACES.items()}
        self._small, self._large = anyio.CapacityLimiter(THREADS), anyio.CapacityLimiter(1)

    @asynccontextmanager
    async def received(self, http: Request) -> AsyncIterator[bytearray]:
        """A request's body, which keeps its place until it is left. Raises ApiError: it is too large, is not JSON, or
        does not come."""
        _check_headers(http.headers, self._most)
        async with AsyncExitStack() as places:
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    body = await self._read(http, places)
            except TimeoutError:
                raise ApiError(408, f"the body did not come within {BODY_SECONDS:g} s: send it again") from None
            yield body

    async def _read(self, http: Request, places: AsyncExitStack) -> bytearray:
        body, limits = bytearray(), sorted(self._places)
        async for part in http.stream():
            body += part
            while limits and len(body) > limits[0]:
                await places.enter_async_context(self._places[limits.pop(0)])
            if len(body) > self._most:
                raise _too_large(self._most)
        return body

    async def work(self, function: Callable[..., T], body: bytearray, *more: object) -> T:
        """What `function` makes of a body, in a thread: a large one does not keep small ones waiting."""
        limiter = self._small if len(body) <= LARGE else self._large
        return await anyio.to_thread.run_sync(partial(function, body, *more), limiter=limiter)


def _check_headers(headers: Headers, most: int) -> None:
    """Raises ApiError. Browsers send other types than JSON to any server, for any page that asks them to."""
    kind = headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != JSON:
        sent = f"not {kind!r}" if kind else "there is none"
        raise ApiError(415, f"the body must be JSON: send the header Content-Type: {JSON} ({sent})")
    coding = headers.get("content-encoding", "identity")
    if coding.lower() != "identity":
        raise ApiError(415, f"Content-Encoding {coding!r} is not supported: send the body as it is")
    length = headers.get("content-length", "")
    if length.isdecimal() and (len(length) > 18 or int(length) > most):
        raise _too_large(most)


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"the body has more than {most} bytes: send a shorter prompt")
