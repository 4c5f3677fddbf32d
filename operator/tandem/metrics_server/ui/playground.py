"""The playground: a prompt from the page goes to a service's Triton, and its tokens come back with their origin.

Who may use it is what the API server itself asks of those who send requests to a Service through it: `create` on
`services/proxy` of that Service. The address is that of a service in the inventory, never one from a request.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Annotated, Any

from aiohttp import web
from pydantic import Field, ValidationError

from tandem import names
from tandem.api import ports
from tandem.api.conditions import ConditionType
from tandem.api.types import SpeculativeInferenceService
from tandem.api.wire import StrictWire
from tandem.client.generate.client import TritonClient
from tandem.client.generate.errors import GenerateError, RequestRefusedError, UnreachableError
from tandem.client.generate.figures import Chunk
from tandem.client.generate.request import Request, Sampling
from tandem.cluster.kinds import SERVICE
from tandem.metrics_server.authentication import User
from tandem.metrics_server.authorization import ObjectRequest
from tandem.metrics_server.gate import Gate
from tandem.metrics_server.inventory import Known

MOST_BODY, BODY_SECONDS = 64 * 1024, 10.0
"""Bytes of a request's body; seconds within which it must come."""
MOST_SECONDS, LOOK_SECONDS = 120.0, 0.5
"""Of a completion; between looks whether its page was left."""
MOST_STREAMS, MOST_OF_A_USER = 16, 4
"""At once, of each metrics server."""
MOST_MESSAGE = 1024 * 1024
"""Bytes of one of Triton's responses, which holds a few tokens: a pod may be hostile."""


class Prompt(StrictWire):
    """What the page sends."""

    prompt: Annotated[str, Field(min_length=1, max_length=32768)]
    max_tokens: Annotated[int, Field(ge=1, le=2048)] = 128
    draft_tokens: Annotated[int, Field(ge=0, le=64)] | None = None
    """Draft tokens a round at most, 0: the target alone; None: the service's own choice."""


def endpoint(service: SpeculativeInferenceService) -> str:
    """HOST:PORT of Triton's gRPC, by the name of the service's own Service."""
    return f"{names.endpoint(service.name)}.{service.namespace}.svc:{ports.GRPC}"


class Playground:
    """Streams completions; `known` gives the services, `address` where one's Triton is."""

    def __init__(
        self,
        gate: Gate,
        known: Callable[[], Sequence[Known]],
        address: Callable[[SpeculativeInferenceService], str] = endpoint,
    ) -> None:
        self._gate, self._known, self._address = gate, known, address
        self._users: list[str] = []
        self._running: set[asyncio.Task[Any]] = set()

    async def why_not(self, user: User, namespace: str, name: str) -> str:
        """Why `user` may not send prompts to a service; empty where they may."""
        asked = _proxy(namespace, name)
        return "" if await self._gate.allows(user, asked) else f"you may not create {asked}"

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """One JSON object a line: text with its origin, at last the totals, or an error."""
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        user = await self._gate.user(request)
        await self._gate.demand(user, _proxy(namespace, name))
        services = (each.service for each in self._known())
        service = next((s for s in services if (s.namespace, s.name) == (namespace, name)), None)
        if service is None:
            raise web.HTTPNotFound(text=f"there is no service {namespace}/{name}, or it is being deleted")
        prompt = await _read(request)
        with self._place(user.name):
            return await self._stream(request, service, prompt)

    async def close(self, _: web.Application) -> None:
        """End all streams: the process is about to end."""
        for task in self._running:
            task.cancel()

    @contextmanager
    def _place(self, user: str) -> Iterator[None]:
        task = asyncio.current_task()
        assert task
        if len(self._users) >= MOST_STREAMS or self._users.count(user) >= MOST_OF_A_USER:
            raise web.HTTPTooManyRequests(text="too many completions run here: try again when one has ended")
        self._users.append(user)
        self._running.add(task)
        try:
            yield
        finally:
            self._users.remove(user)
            self._running.discard(task)

    async def _stream(
        self, request: web.Request, service: SpeculativeInferenceService, prompt: Prompt
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        try:
            async with (
                asyncio.timeout(MOST_SECONDS),
                _while_connected(request),
                aclosing(self._lines(service, prompt)) as lines,
            ):
                async for line in lines:
                    await response.write(json.dumps(line).encode() + b"\n")
        except TimeoutError:
            await _end_late(request, response)
        except ConnectionError:  # the page was left
            pass
        return response

    async def _lines(
        self, service: SpeculativeInferenceService, prompt: Prompt
    ) -> AsyncGenerator[dict[str, Any], None]:
        try:
            async with TritonClient(self._address(service), max_message_bytes=MOST_MESSAGE) as triton:
                await triton.check()
                if prompt.draft_tokens is not None and (why := await triton.drafts_fixed()):
                    yield {"error": f"the server runs {why}: leave the draft length to the service"}
                    return
                sampling, shown = Sampling(prompt.max_tokens), await triton.shows_refused()
                request = Request(prompt.prompt, sampling, prompt.draft_tokens, refused_text=shown)
                async with aclosing(triton.stream(request)) as chunks:
                    async for chunk in chunks:
                        yield _line(chunk)
        except UnreachableError:
            yield {"error": unreachable(service)}
        except RequestRefusedError as error:
            yield {"error": str(error)[:1000]}
        except GenerateError:
            yield {"error": f"{self._address(service)} is no Triton server of Tandem's: see the service's pods"}


@asynccontextmanager
async def _while_connected(request: web.Request) -> AsyncGenerator[None, None]:
    """Cancel what runs within it once the client has gone: without a token to write, it would not be noticed."""
    work = asyncio.current_task()
    assert work

    async def watch() -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if request.transport is None or request.transport.is_closing():
                work.cancel()
                return

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()


async def _end_late(request: web.Request, response: web.StreamResponse) -> None:
    error = {"error": f"the completion was ended after {MOST_SECONDS:.0f} s"}
    try:
        async with asyncio.timeout(1):
            await response.write(json.dumps(error).encode() + b"\n")
    except (TimeoutError, ConnectionError):  # a client that reads nothing keeps no connection
        if request.transport:
            request.transport.abort()


def _proxy(namespace: str, name: str) -> ObjectRequest:
    return ObjectRequest("create", SERVICE, namespace, names.endpoint(name), "proxy")


async def _read(request: web.Request) -> Prompt:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await request.content.read(MOST_BODY + 1)
            while len(body) <= MOST_BODY and (more := await request.content.read(MOST_BODY + 1)):
                body += more
    except TimeoutError:
        raise web.HTTPRequestTimeout(text=f"the body did not come within {BODY_SECONDS:.0f} s") from None
    if len(body) > MOST_BODY:
        raise web.HTTPRequestEntityTooLarge(MOST_BODY, len(body), text=f"a prompt may have {MOST_BODY} bytes")
    try:
        return Prompt.model_validate_json(body)
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise web.HTTPBadRequest(text="; ".join(faults)) from None


def _line(chunk: Chunk) -> dict[str, Any]:
    """What the page gets of a chunk: text of accepted draft tokens, of refused ones, then the target's own. Pure."""
    cut = chunk.draft_text_length
    line: dict[str, Any] = {
        "draft": chunk.text[:cut],
        "refused": chunk.refused_text,
        "target": chunk.text[cut:],
        "accepted": chunk.accepted,
        "tokens": len(chunk.ids),
    }
    if chunk.totals is None:
        return line
    totals = chunk.totals
    sums = {"drafted": totals.draft_tokens, "accepted": totals.accepted_draft_tokens, "prompt": totals.input_tokens}
    return line | {"finish": chunk.finish_reason, "totals": sums}


def unreachable(service: SpeculativeInferenceService) -> str:
    """Why there may be no answer, and what to do. Pure."""
    if not service.status.ready_replicas:
        ready = next((c for c in service.status.conditions if c.type == ConditionType.READY), None)
        return f"no server is Ready: {ready.reason}: {ready.message}" if ready else "no server is Ready"
    if service.spec.serving.access.sources:
        return (
            "the service lets in the clients that its serving.access.from names alone: add the metrics server's pods"
            " (a namespaceSelector with kubernetes.io/metadata.name of its namespace)"
        )
    return (
        f"nothing answers at {endpoint(service)}: look for a NetworkPolicy, or a mesh with mutual TLS, between the"
        " metrics server and the service's pods"
    )
