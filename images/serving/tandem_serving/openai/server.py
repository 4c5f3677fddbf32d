"""The endpoint's HTTP server: routes, streams, and their ends."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from tandem_serving.openai import json_text
from tandem_serving.openai.access import ApiKeys
from tandem_serving.openai.api import ChatRequest, CompletionRequest, parse
from tandem_serving.openai.bodies import Bodies
from tandem_serving.openai.completion import Completion, Delta, Reading
from tandem_serving.openai.errors import ApiError
from tandem_serving.openai.metrics import EVENTS, Metrics
from tandem_serving.openai.model import LONG_TEXT, ChatModel
from tandem_serving.openai.tensors import explained, tensors
from tandem_serving.openai.thinking import Markers, ThoughtReader
from tandem_serving.openai.tool_calls import Format
from tandem_serving.openai.tools import ToolUse, tool_use
from tandem_serving.openai.triton import MOST_TOKENS, OUTPUTS, PROMPT_OUTPUTS, TOKEN_IDS, TOKEN_OUTPUTS, TritonServer
from tandem_serving.requests.refused import RefusedParameters
from tandem_serving.requests.tensors import Array

MOST_REQUESTS = 768
"""Answered at once."""
T = TypeVar("T")


class Prepared(NamedTuple):
    """A request to be sent to Triton: `request` without its texts, `tensors` for each choice."""

    request: ChatRequest | CompletionRequest
    tensors: list[dict[str, Array]]
    completion: Completion


@dataclass
class Endpoint:
    """What answers. `name`: the model's, in requests and answers; `max_body`: bytes; `tool_calls`: how the model
    writes calls of tools, `thinking`: between what it thinks; None: the service names none. `refused`: parameters
    that the engine would drop."""

    name: str
    triton: TritonServer
    model: ChatModel
    keys: ApiKeys
    max_body: int
    metrics: Metrics
    tool_calls: Format | None = None
    thinking: Markers | None = None
    refused: RefusedParameters = field(default_factory=RefusedParameters)

    def __post_init__(self) -> None:
        self._bodies = Bodies(self.max_body)
        self._most_values = max(json_text.MOST_VALUES, self.max_body // 16)
        self._answered = 0

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
        return await self._answer(http, await self._prepared(http, self._chat))

    async def completions(self, http: Request) -> Response:
        """POST /v1/completions."""
        return await self._answer(http, await self._prepared(http, self._completion))

    async def _prepared(self, http: Request, prepare: Callable[[bytes, int], Prepared]) -> Prepared:
        self.keys.check(http.headers.get("authorization", ""))
        async with self._bodies.received(http) as body:
            with self._one_more():
                most_tokens = await self.triton.most_tokens() if len(body) > LONG_TEXT else MOST_TOKENS
                return await self._bodies.work(prepare, body, most_tokens)

    # In a thread: to read, render and tokenize a text takes long.

    def _chat(self, body: bytes, most_tokens: int) -> Prepared:
        request = parse(ChatRequest, body, self._most_values)
        self._check_model(request.model)
        use = tool_use(request, self.tool_calls)
        ids = self.model.encode_chat(request, use.tools, most_tokens)
        request = request.model_copy(update={"response_format": use.guide}) if use.guide else request
        end = "" if request.ignore_eos else self.model.turn_end
        reading, ends = self._reading(request, use, ids), [end] if end else []
        completion = Completion(request.without_text, _identity("chatcmpl"), reading=reading)
        if completion.stops_here:
            asked = request.model_copy(update={"stop": ends, "stream": True})
        else:
            asked = request.model_copy(update={"stop": [*request.stops, *ends]})
        made = tensors(self.triton.model, asked, [ids], refused=self.refused)
        return Prepared(request.without_text, made, completion)

    def _reading(self, request: ChatRequest, use: ToolUse, prompt: list[int]) -> Reading:
        """Guided decoding leaves no room for a thought; without calls and stop words nothing depends on one."""
        if not self.thinking or request.is_guided or not (use.reader or request.stops):
            return Reading(use.reader)
        inside = self.model.thinks_after(prompt, self.thinking)
        return Reading(use.reader, partial(ThoughtReader, self.thinking, inside), len(prompt))

    def _completion(self, body: bytes, _: int) -> Prepared:
        request = parse(CompletionRequest, body, self._most_values)
        self._check_model(request.model)
        prompts = request.prompts
        echo: list[str] = []
        if request.echo:
            texts = [p if isinstance(p, str) else self.model.decode(p) for p in prompts]
            echo = [text for text in texts for _ in range(request.n)]
        made = tensors(self.triton.model, request, prompts, refused=self.refused)
        request = request.without_text
        return Prepared(request, made, Completion(request, _identity("cmpl"), echo))

    async def _answer(self, http: Request, prepared: Prepared) -> Response:
        request, _, completion = prepared
        deltas = self._deltas(prepared)
        if not request.stream:
            return JSONResponse(completion.whole(await _while_connected(http, _all(deltas))))
        first = await _while_connected(http, _first(deltas))  # an error before it has a status of its own
        return StreamingResponse(_events(request.include_usage, completion, first, deltas), media_type=EVENTS)

    async def _deltas(self, prepared: Prepared) -> AsyncGenerator[Delta]:
        request, requests, completion = prepared
        outputs = [*OUTPUTS, *(TOKEN_OUTPUTS if request.with_log_probs else ())]
        outputs += PROMPT_OUTPUTS if request.with_prompt_log_probs else ()
        if completion.stops_here and not request.with_log_probs:
            outputs.append(TOKEN_IDS)
        with self._one_more():
            try:
                async with aclosing(self.triton.generate(requests, outputs)) as chunks:
                    async for index, chunk in chunks:
                        if delta := completion.delta(index, chunk, self.model.piece):
                            yield delta
                        if completion.left_behind(len(requests)):
                            return
            except ApiError as error:
                raise explained(self.triton.model, error, request.guided_by) from None

    @contextmanager
    def _one_more(self) -> Iterator[None]:
        if self._answered >= MOST_REQUESTS:
            raise ApiError(503, f"{MOST_REQUESTS} requests are being answered: ask again")
        self._answered += 1
        try:
            yield
        finally:
            self._answered -= 1

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
