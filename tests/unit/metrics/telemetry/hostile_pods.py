"""Servers on the loopback that stand for pods, good ones and hostile ones: each is what it writes to a connection."""

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\n"


def fixed(body: bytes, headers: str = "Content-Type: text/plain\r\n", status: str = "200 OK") -> Answer:
    """One answer with a length."""
    head = f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode()

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head + body)
        await writer.drain()

    return answer


def endless(start: bytes, part: bytes, pause: float = 0) -> Answer:
    """A start, then the same part until the reader goes."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while True:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)

    return answer


async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes the request and never answers."""
    await asyncio.Event().wait()


async def leaves(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Closes in the middle of the page."""
    writer.write(OK + b"Content-Length: 1000\r\n\r\ntandem_requests_running 1\n")
    await writer.drain()


def bomb() -> bytes:
    """50 MB of zeros, compressed to some ten kB."""
    return gzip.compress(bytes(50_000_000), 1)


@dataclass
class Pod:
    """A server: how often it was asked, what it was asked last, and how many bytes it got rid of."""

    port: int = 0
    asked: int = 0
    request: bytes = b""
    written: int = 0


@contextlib.asynccontextmanager
async def serve(answer: Answer, host: str = "127.0.0.1") -> AsyncIterator[Pod]:
    """A server with this answer to every request."""
    pod = Pod()
    open_tasks = set[asyncio.Task[None]]()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_tasks.add(task)
        counted = writer.write

        def write(data: bytes) -> None:
            pod.written += len(data)
            counted(data)

        writer.write = write  # type: ignore[method-assign,assignment]
        try:
            pod.request = await reader.readuntil(b"\r\n\r\n")
            pod.asked += 1
            await answer(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            open_tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(handle, host, 0)
    pod.port = server.sockets[0].getsockname()[1]
    try:
        yield pod
    finally:
        server.close()
        for task in list(open_tasks):
            task.cancel()
        await asyncio.gather(*open_tasks, return_exceptions=True)
