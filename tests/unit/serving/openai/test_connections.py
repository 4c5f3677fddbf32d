"""Connections of clients that send too little, too much, or nothing, on real sockets."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from cluster.ports import free_port
from support.serving.openai import write_certificate
from tandem_serving.openai import connections
from tandem_serving.openai.listener import Server

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"


class App:
    """Answers with `text` once a test lets it; `asked`: requests that it has, `left`: clients that it saw leave."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.asked = self.left = 0
        self.text = b"ok"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        while (message := await receive()).get("more_body"):
            pass
        self.asked += 1
        leaving = asyncio.ensure_future(receive())
        await asyncio.wait({leaving, asyncio.ensure_future(self.may.wait())}, return_when=asyncio.FIRST_COMPLETED)
        if message["type"] == "http.disconnect" or leaving.done():
            self.left += 1
            return
        leaving.cancel()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": self.text})


@pytest.fixture
async def app() -> App:
    return App()


@contextlib.asynccontextmanager
async def serving(app: App, most: int = 100, tls: Path | None = None) -> AsyncIterator[int]:
    files = {"ssl_certfile": tls / "tls.crt", "ssl_keyfile": tls / "tls.key"} if tls else {}
    config = uvicorn.Config(app, port=free_port(), lifespan="off", log_config=None, ws="none", **files)  # type: ignore[arg-type]
    config.load()
    server = Server(config, most)
    served = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    try:
        yield config.port
    finally:
        app.may.set()
        server.should_exit = server.force_exit = True
        await served


@contextlib.asynccontextmanager
async def connected(port: int, data: bytes = b"") -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    await writer.drain()
    try:
        yield reader, writer
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> tuple[int, str]:
    """The status, and the error's message or the text; (0, "") for a connection that is closed without one."""
    try:
        async with asyncio.timeout(60):
            head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return 0, ""
    status = int(head.split()[1])
    if status == 100:
        return await answer(reader)
    if status == 200:
        return status, (await reader.readuntil(b"\r\n0\r\n\r\n")).split(b"\r\n")[1].decode()
    return status, json.loads(await reader.read(1000))["error"]["message"]


async def test_a_client_that_closes_its_side_is_answered(app: App) -> None:
    async with serving(app) as port, connected(port, GET) as (reader, writer):
        writer.write_eof()
        await asyncio.sleep(0.2)
        app.may.set()
        assert await answer(reader) == (200, "ok")
        assert await reader.read() == b"", "and then the connection is closed"


async def test_a_client_that_closes_both_has_left(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LEFT_SECONDS", 0.05)
    async with serving(app) as port:
        async with connected(port, GET):
            await asyncio.sleep(0.1)
        async with asyncio.timeout(60):
            while not app.left:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


PARTS = [
    (b"POST / HTT", "before the request was whole"),
    (POST + b"12345", "before the request was whole"),
]


@pytest.mark.parametrize(("data", "says"), PARTS)
async def test_a_part_of_a_request_is_not_waited_for_once_its_client_closed(app: App, data: bytes, says: str) -> None:
    async with serving(app) as port, connected(port, data) as (reader, writer):
        await asyncio.sleep(0.05)
        writer.write_eof()
        status, message = await answer(reader)
        assert (status, says in message) == (400, True)


@pytest.mark.parametrize(("data", "status"), [(b"", 0), (b"GET / HTTP/1.1\r\nA: ", 408)])
async def test_a_head_has_a_time_limit_however_slowly_it_comes(
    app: App, monkeypatch: pytest.MonkeyPatch, data: bytes, status: int
) -> None:
    monkeypatch.setattr(connections, "KEEP_ALIVE_SECONDS", 0.3)
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)

    async def go_on(writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            writer.write(data[-1:])
            await asyncio.sleep(0.1)

    async with serving(app) as port, connected(port, data) as (reader, writer):
        slowly = asyncio.create_task(go_on(writer))
        assert (await answer(reader))[0] == status
        slowly.cancel()


async def test_a_request_later_on_a_connection_has_a_time_limit_too(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.1)
    app.may.set()
    async with serving(app) as port, connected(port, GET + b"GET") as (reader, _):
        assert await answer(reader) == (200, "ok")
        status, message = await answer(reader)
        assert (status, message.startswith("the request's head did not come")) == (408, True)


async def test_a_client_that_reads_nothing_is_left(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.2)
    app.text = b"x" * (32 << 20)
    app.may.set()
    async with serving(app) as port, connected(port, GET) as (reader, _):
        await asyncio.sleep(1)  # the client's buffers and the kernel's are full
        read = 0
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(1 << 20):
                read += len(part)
        assert read < len(app.text)


REFUSED = [
    (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000, 431, "16384 bytes"),
    (b"\x16\x03\x01\r\n\r\n", 400, "no HTTP/1.1"),
    (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 5000, 400, "tiny chunks"),
]


@pytest.mark.parametrize(("data", "status", "says"), REFUSED, ids=[row[2] for row in REFUSED])
async def test_what_is_no_request_is_refused_in_the_api_s_form(app: App, data: bytes, status: int, says: str) -> None:
    async with serving(app) as port, connected(port) as (reader, writer):
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            await writer.drain()
        got, message = await answer(reader)
        assert (got, says in message) == (status, True)


WHOLE = POST + b"0123456789"


async def test_at_the_limit_the_oldest_without_a_request_makes_room(app: App) -> None:
    async with (
        serving(app, most=3) as port,
        connected(port, WHOLE) as (busy, _),
        connected(port) as (silent, _),
        connected(port, POST) as (begun, _),
    ):
        await asyncio.sleep(0.1)
        async with connected(port, WHOLE) as (first, _), connected(port, WHOLE) as (second, _):
            assert await silent.read() == b""
            assert (await answer(begun))[0] == 408, "a part of a request is told so"
            while app.asked < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            async with connected(port, WHOLE) as (third, _):
                assert await answer(third) == (0, ""), "all places have requests that are answered"
            app.may.set()
            assert [await answer(each) for each in (busy, first, second)] == [(200, "ok")] * 3


async def test_probes_that_wait_make_room(app: App) -> None:
    async with serving(app, most=2) as port, connected(port, GET) as (oldest, _), connected(port, GET) as (older, _):
        await asyncio.sleep(0.1)
        async with connected(port, GET) as (newest, _):
            assert await answer(oldest) == (0, "")
            app.may.set()
            assert [await answer(each) for each in (older, newest)] == [(200, "ok")] * 2


async def test_silent_connections_that_never_begin_tls_make_room(app: App, tmp_path: Path) -> None:
    write_certificate(tmp_path, "endpoint")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    app.may.set()
    async with serving(app, most=3, tls=tmp_path) as port, contextlib.AsyncExitStack() as silent:
        for _ in range(6):
            await silent.enter_async_context(connected(port))
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(GET)
        assert await answer(reader) == (200, "ok")
        writer.close()
