"""Requests' bodies: received and worked on in bounded memory, while streams go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import anyio
from starlette.datastructures import Headers
from starlette.requests import Request

from tandem_serving.openai.errors import ApiError

BODY_SECONDS = 60.0
"""In which a request's body must have come."""
SMALL = 16 << 10
"""Bytes. Every connection may have so many on their way; what is larger has one of few places."""
PLACES = 8
PLACE_SECONDS = 20.0
"""For a large body to come, once it has a place."""
THREADS = 2
"""For small bodies, and one more for large ones: Python's threads take time from the event loop, which streams need."""
JSON = "application/json"
T = TypeVar("T")


class Bodies:
    """Receives bodies. `most`: bytes of one."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._places = asyncio.Semaphore(PLACES)
        self._small, self._large = anyio.CapacityLimiter(THREADS), anyio.CapacityLimiter(1)

    @asynccontextmanager
    async def received(self, http: Request) -> AsyncIterator[bytearray]:
        """A request's body; a large one keeps its place until it is left. Raises ApiError: it is too large, is not
        JSON, or does not come."""
        _check_headers(http.headers, self.most)
        body, parts = bytearray(), aiter(http.stream())
        limit = asyncio.timeout(BODY_SECONDS)
        try:
            async with limit:
                await self._read(parts, body, SMALL)
                if len(body) > SMALL:
                    await self._places.acquire()
        except TimeoutError:
            raise _late(BODY_SECONDS) from None
        if len(body) <= SMALL:
            yield body
            return
        try:
            await self._rest(parts, body)
            yield body
        finally:
            self._places.release()

    async def work(self, function: Callable[..., T], body: bytearray, *more: object) -> T:
        """What `function` makes of a body, in a thread: a large one does not keep small ones waiting."""
        limiter = self._small if len(body) <= SMALL else self._large
        return await anyio.to_thread.run_sync(partial(function, body, *more), limiter=limiter)

    async def _rest(self, parts: AsyncIterator[bytes], body: bytearray) -> None:
        try:
            async with asyncio.timeout(PLACE_SECONDS):
                await self._read(parts, body, self.most)
        except TimeoutError:
            raise _late(PLACE_SECONDS) from None
        if len(body) > self.most:
            raise _too_large(self.most)

    async def _read(self, parts: AsyncIterator[bytes], body: bytearray, until: int) -> None:
        """Until it is longer than that, or over."""
        async for part in parts:
            body += part
            if len(body) > until:
                return


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


def _late(seconds: float) -> ApiError:
    return ApiError(408, f"the body did not come within {seconds:g} s: send it again")
