"""The endpoint's HTTP server: routes, streams, and their ends."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from tandem_serving.openai.access import ApiKeys
from tandem_serving.openai.api import ChatRequest, CompletionRequest, parse
from tandem_serving.openai.completion import Completion, Delta
from tandem_serving.openai.errors import ApiError
from tandem_serving.openai.metrics import EVENTS, Metrics
from tandem_serving.openai.model import ChatModel
from tandem_serving.openai.tensors import Prompts, explained, tensors
from tandem_serving.openai.tool_calls import Format
from tandem_serving.openai.tools import tool_use
from tandem_serving.openai.triton import OUTPUTS, TOKEN_OUTPUTS, TritonServer
from tandem_serving.requests.refused import RefusedParameters
from tandem_serving.requests.tensors import Array

BODY_SECONDS = 60.0
"""In which a request's body must have come."""
T = TypeVar("T")


@dataclass(frozen=True)
class Endpoint:
    """What answers. `name`: the model's, in requests and answers; `max_body`: bytes; `tool_calls`: how the model
    writes calls of tools, None: the service names none; `refused`: parameters that the engine would drop."""

    name: str
    triton: TritonServer
    model: ChatModel
    keys: ApiKeys
    max_body: int
    metrics: Metrics
    tool_calls: Format | None = None
    refused: RefusedParameters = field(default_factory=RefusedParameters)

    async def health(self, _: Request) -> Response:
        """Whether Triton takes requests."""
        return Response(status_code=200 if await self.triton.ready() else 503)

    async def page(self, _: Request) -> Response:
        """Figures, no prompts: no key is needed, as for Triton's own page."""
        return Response(await run_in_threadpool(self.metrics.text), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def live(self, _: Request) -> Response:
        """That the endpoint itself answers."""
        return Response()

    async def models(self, request: Request) -> Response:
        """The one model."""
        self.keys.check(request.headers.get("authorization", ""))
        model = {"id": self.name, "object": "model", "created": self.model.created, "owned_by": "tandem"}
        if "model" in request.path_params:
            self._check_model(request.path_params["model"])
            return JSONResponse(model)
        return JSONResponse({"object": "list", "data": [model]})

    async def embeddings(self, request: Request) -> Response:
        """Refused."""
        self.keys.check(request.headers.get("authorization", ""))
        raise ApiError(404, "embeddings are not served: this model generates text", None, "unsupported_endpoint")

    async def chat(self, http: Request) -> Response:
        """POST /v1/chat/completions."""
        request = parse(ChatRequest, await self._body(http))
        self._check_model(request.model)
        use = tool_use(request, self.tool_calls)
        ids = await run_in_threadpool(self.model.encode_chat, request, use.tools)
        request = request.model_copy(update={"response_format": use.guide}) if use.guide else request
        if not request.ignore_eos and (end := await run_in_threadpool(lambda: self.model.turn_end)):
            request = request.model_copy(update={"stop": [*request.stops, end]})
        completion = Completion(request, _identity("chatcmpl"), reader=use.reader)
        return await self._answer(http, request, [ids], completion)

    async def completions(self, http: Request) -> Response:
        """POST /v1/completions."""
        request = parse(CompletionRequest, await self._body(http))
        self._check_model(request.model)
        prompts = request.prompts
        echo: list[str] = []
        if request.echo:
            texts = [p if isinstance(p, str) else await run_in_threadpool(self.model.decode, p) for p in prompts]
            echo = [text for text in texts for _ in range(request.n)]
        return await self._answer(http, request, prompts, Completion(request, _identity("cmpl"), echo))

    async def _answer(
        self, http: Request, request: ChatRequest | CompletionRequest, prompts: Prompts, completion: Completion
    ) -> Response:
        deltas = self._deltas(request, tensors(self.triton.model, request, prompts, refused=self.refused), completion)
        if not request.stream:
            return JSONResponse(completion.whole(await _while_connected(http, _all(deltas))))
        first = await _while_connected(http, _first(deltas))  # an error before it has a status of its own
        return StreamingResponse(_events(request.include_usage, completion, first, deltas), media_type=EVENTS)

    async def _deltas(
        self, request: ChatRequest | CompletionRequest, requests: list[dict[str, Array]], completion: Completion
    ) -> AsyncGenerator[Delta]:
        outputs = [*OUTPUTS, *(TOKEN_OUTPUTS if request.with_log_probs else ())]
        try:
            async with aclosing(self.triton.generate(requests, outputs)) as chunks:
                async for index, chunk in chunks:
                    yield completion.delta(index, chunk, self.model.piece)
        except ApiError as error:
            raise explained(self.triton.model, error, request.guided_by) from None

    async def _body(self, http: Request) -> bytes:
        self.keys.check(http.headers.get("authorization", ""))
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for part in http.stream():
                    body += part
                    if len(body) > self.max_body:
                        raise ApiError(413, f"the body has more than {self.max_body} bytes: send a shorter prompt")
        except TimeoutError:
            raise ApiError(408, f"the body did not come within {BODY_SECONDS:g} s: send it again") from None
        return bytes(body)

    def _check_model(self, name: str) -> None:
        if name != self.name:
            message = f"the model {name!r} is not served here: ask for {self.name!r}"
            raise ApiError(404, message, "model", "model_not_found")


async def _events(
    include_usage: bool, completion: Completion, first: Delta, deltas: AsyncGenerator[Delta]
) -> AsyncIterator[str]:
    async with aclosing(deltas):
        yield _event(completion.event(first))
        try:
            async for delta in deltas:
                yield _event(completion.event(delta))
        except ApiError as error:  # the status is sent already
            yield _event(error.body)
            return
    if include_usage:
        yield _event(completion.last_event())
    yield "data: [DONE]\n\n"


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"


async def _all(deltas: AsyncGenerator[Delta]) -> list[Delta]:
    async with aclosing(deltas):
        return [delta async for delta in deltas]


async def _first(deltas: AsyncGenerator[Delta]) -> Delta:
    return await anext(deltas)


async def _while_connected(http: Request, work: Coroutine[Any, Any, T]) -> T:
    """Its result; a client that leaves ends it. Raises ClientDisconnect."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(http))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(http: Request) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


def _identity(prefix: str) -> tuple[str, int]:
    return f"{prefix}-{uuid.uuid4().hex}", int(time.time())


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body, error.status, error.headers)


def _http_error(_: Request, error: Exception) -> Response:
    """Starlette's own, such as 404."""
    assert isinstance(error, HTTPException)
    message = f"{error.detail}: see docs/reference/openai.md for what is served"
    return _refused(_, ApiError(error.status_code, message))


def _left_early(_: Request, error: Exception) -> Response:
    return Response(status_code=499)  # no client is left to read it


def _fault(_: Request, error: Exception) -> Response:
    return _refused(_, ApiError(500, "the endpoint failed at this request; its log says why"))


def application(endpoint: Endpoint, lifespan: Callable[[Starlette], Any]) -> ASGIApp:
    """The ASGI application."""
    served = Starlette(
        routes=[
            Route("/live", endpoint.live),
            Route("/health", endpoint.health),
            Route("/metrics", endpoint.page),
            Route("/v1/models", endpoint.models),
            Route("/v1/models/{model:path}", endpoint.models),
            Route("/v1/chat/completions", endpoint.chat, methods=["POST"]),
            Route("/v1/completions", endpoint.completions, methods=["POST"]),
            Route("/v1/embeddings", endpoint.embeddings, methods=["POST"]),
        ],
        exception_handlers={
            ApiError: _refused,
            HTTPException: _http_error,
            ClientDisconnect: _left_early,
            Exception: _fault,
        },
        lifespan=lifespan,
    )
    return endpoint.metrics.counting(served)
