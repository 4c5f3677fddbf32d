"""A proxy between an operator and the API server that does what a fault says to the requests it passes on."""

import asyncio
import contextlib
import json
import ssl
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from .requests import Request, parse

DROPPED = ("host", "content-length", "transfer-encoding", "connection")
"""Headers that are of one connection."""
COMPRESSED = ("accept-encoding", "content-encoding")
"""The session decompresses what the API server sends, and it is passed on as it is then."""


class Fault:
    """What becomes of requests; of this one nothing.

    `struck` is the monotonic time at which it did harm first; 0 before.
    """

    struck = 0.0

    def strike(self) -> None:
        """It does harm now."""
        self.struck = self.struck or time.monotonic()

    async def before(self, call: "Call") -> web.Response | None:
        """An answer in the API server's place. Raises `Cut`."""

    async def after(self, call: "Call", status: int, body: bytes) -> bytes:
        """The answer to pass on, once the API server has given it. Raises `Cut`."""
        return body

    def event(self, call: "Call", event: dict[str, Any]) -> dict[str, Any] | None:
        """The event of a watch to pass on; None: none. Raises `Cut`."""
        return event


class Cut(Exception):
    """The connection ends without an answer."""


@dataclass(eq=False)
class Call:
    """A request under way."""

    request: Request
    number: int
    """Of its kind since the fault was armed, from 1."""
    proxy: "Proxy"
    raw: web.Request

    def abort(self) -> None:
        """End its connection."""
        if self.raw.transport:
            self.raw.transport.abort()


@dataclass(frozen=True)
class Write:
    """A write that the API server answered, or that the operator was to believe it had not."""

    at: float
    request: Request
    status: int


class Proxy:
    """Of one operator. `user`: whom the API server takes its requests for; empty: whose token they bring."""

    def __init__(self, session: aiohttp.ClientSession, upstream: str, user: str = "") -> None:
        self._session, self._upstream, self._user = session, upstream, user
        self._open: list[Call] = []
        self.fault = Fault()
        self.calls: Counter[Request] = Counter()
        """Since the fault was armed."""
        self.writes: list[Write] = []
        self.on_kill: Callable[[], None] = lambda: None
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen on a port of its own."""
        app = web.Application(client_max_size=16 << 20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """End, and cut what is open."""
        self.cut()
        if self._runner:
            await self._runner.cleanup()

    def arm(self, fault: Fault) -> None:
        """From now on this fault; requests are counted anew."""
        self.calls.clear()
        self.fault = fault

    def cut(self, which: Callable[[Request], bool] = lambda _: True) -> int:
        """Cut open requests; how many."""
        chosen = [call for call in self._open if which(call.request)]
        for call in chosen:
            call.abort()
        return len(chosen)

    @property
    def open(self) -> list[Request]:
        """Requests under way, watches among them."""
        return [call.request for call in self._open]

    async def _handle(self, raw: web.Request) -> web.StreamResponse:
        body = await raw.read()
        request = parse(raw.method, raw.rel_url, json.loads(body) if body and raw.method == "POST" else None)
        self.calls[request] += 1
        call = Call(request, self.calls[request], self, raw)
        self._open.append(call)
        try:
            return await self._pass_on(call, body)
        except Cut:
            call.abort()
            return web.Response(status=500)
        finally:
            self._open.remove(call)

    async def _pass_on(self, call: Call, body: bytes) -> web.StreamResponse:
        raw = call.raw
        if instead := await call.proxy.fault.before(call):
            return instead
        headers = raw.headers.copy()
        for name in DROPPED + COMPRESSED:
            headers.popall(name, None)
        if self._user:
            headers.popall("Authorization", None)
            headers["Impersonate-User"] = self._user
        url = f"{self._upstream}{raw.rel_url}"
        async with self._session.request(raw.method, url, headers=headers, data=body or None) as answer:
            passed = {n: v for n, v in answer.headers.items() if n.lower() not in DROPPED + COMPRESSED}
            if call.request.verb == "watch" and answer.status == 200:
                return await self._watch(call, answer, passed)
            whole = await answer.read()
            if call.request.writes:
                self.writes.append(Write(time.monotonic(), call.request, answer.status))
            whole = await self.fault.after(call, answer.status, whole)
            return web.Response(status=answer.status, headers=passed, body=whole)

    async def _watch(self, call: Call, answer: aiohttp.ClientResponse, headers: dict[str, str]) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(call.raw)
        rest = b""
        with contextlib.suppress(ConnectionError, aiohttp.ClientError):
            async for part in answer.content.iter_any():
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    await self._event(call, response, json.loads(line))
        return response

    async def _event(self, call: Call, response: web.StreamResponse, event: dict[str, Any]) -> None:
        if passed := self.fault.event(call, event):
            await response.write(json.dumps(passed).encode() + b"\n")


def kubeconfig(path: Path, port: int, token: str = "t") -> Path:
    """A kubeconfig at `path` that leads to the proxy on `port`."""
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    parts = {"clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {"token": token}}]}
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "c", **parts}))
    return path


def client_session(trust: ssl.SSLContext) -> aiohttp.ClientSession:
    """Connections to the API server, shared by all proxies."""
    connector = aiohttp.TCPConnector(ssl=trust, limit=0)
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None), read_bufsize=1 << 20)


def status_answer(code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    """An answer as the API server gives it to a request that fails."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return web.json_response({**body, "reason": reason, "message": message}, status=code, headers=headers)


async def hang() -> None:
    """Until the connection is cut."""
    await asyncio.Event().wait()
