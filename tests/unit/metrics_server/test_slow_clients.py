"""Clients that hold connections and say little: they take a bounded number, for a bounded time, from nobody else."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import psutil
import pytest

from tandem.http.listener import ConnectionLimits, Listener
from tandem.http.probes import LIMITS, serve
from tandem.metrics_server.authentication import Authenticator
from tandem.metrics_server.authorization import Authorizer
from tandem.metrics_server.board import Board
from tandem.metrics_server.certificates import renewed, utc_now
from tandem.metrics_server.gate import Gate
from tandem.metrics_server.server import application

from .conftest import FakeReviews, report

MOST = 16
ALICE = {"Authorization": "Bearer team-a-token"}
SLOW = "127.0.0.2"
CERTIFICATE = renewed(None, ["metrics.ns.svc"], utc_now())
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def trusting() -> ssl.SSLContext:
    assert CERTIFICATE is not None
    return ssl.create_default_context(cadata=CERTIFICATE.authorities.decode())


@asynccontextmanager
async def listening(reviews: FakeReviews, limits: ConnectionLimits) -> AsyncIterator[Listener]:
    assert CERTIFICATE is not None
    board = Board(120)
    board.post([report()])
    reviews.allowed = {("alice", "/v1/services")}
    made = Listener(application(board, Gate(Authenticator(reviews), Authorizer(reviews))), "127.0.0.1", 0, limits)
    await made.listen(CERTIFICATE.context(""))
    yield made
    await made.close()
    await asyncio.sleep(0.1)  # TLS takes some turns of the loop to end


async def connect(port: int, source: str, *, tls: bool, said: bytes = b"") -> Connection:
    """A connection from the address `source` on which so much was said."""
    more: dict[str, Any] = {"ssl": trusting(), "server_hostname": "metrics.ns.svc"} if tls else {}
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0), **more)
    writer.write(said)
    await writer.drain()
    return reader, writer


async def ended(connection: Connection, seconds: float) -> bool:
    """Whether the server ends it, within the time."""
    try:
        async with asyncio.timeout(seconds):
            while await connection[0].read(1 << 16):
                pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


async def get(port: int) -> int:
    url = f"https://127.0.0.1:{port}/v1/services"
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting())) as session,
        session.get(url, headers=ALICE, server_hostname="metrics.ns.svc") as answer,
    ):
        return answer.status


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not check():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def held_open(port: int) -> int:
    """Connections of the server, in this process, that are open."""
    every = psutil.Process().net_connections("tcp4")
    return sum(each.laddr.port == port and each.status != psutil.CONN_LISTEN for each in every)


HALF = b"GET /v1/services HTTP/1.1\r\nHost: x\r\nX-A: "
UNREAD = b"GET /v1/services HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer team-a-token\r\n\r\n" * 2000
FLOODS: list[tuple[str, bool, bytes]] = [
    ("that never begin TLS", False, b""),
    ("that say nothing", True, b""),
    ("whose request never ends", True, HALF),
    ("that read no answer", True, UNREAD),
]


@pytest.mark.parametrize(("tls", "said"), [f[1:] for f in FLOODS], ids=[f[0] for f in FLOODS])
async def test_many_connections_take_no_place_from_others(reviews: FakeReviews, tls: bool, said: bytes) -> None:
    async with listening(reviews, ConnectionLimits(connections=MOST)) as listener, AsyncExitStack() as held:
        early = await connect(listener.port, "127.0.0.1", tls=True)
        files = psutil.Process().num_fds()
        flood = []
        for _ in range(3 * MOST):
            flood.append(await connect(listener.port, SLOW, tls=tls, said=said))
            held.callback(flood[-1][1].transport.abort)
        assert await ended(flood[0], 60), "its oldest made place for its own"
        assert not await ended(early, 0.1)
        assert await get(listener.port) == 200, "nor is anybody new kept out"
        assert held_open(listener.port) <= MOST
        await held.aclose()
        await until(lambda: psutil.Process().num_fds() <= files)
        early[1].close()


async def test_a_place_is_given_back(reviews: FakeReviews) -> None:
    """Else the server would end connections of today for those of yesterday."""
    async with listening(reviews, ConnectionLimits(connections=MOST)) as listener:
        kept = [await connect(listener.port, "127.0.0.3", tls=True) for _ in range(2)]
        for number in range(2 * MOST):
            _, writer = await connect(listener.port, f"127.0.1.{number}", tls=True)
            writer.close()
            await writer.wait_closed()
        for each in kept:
            assert not await ended(each, 0.1)
            each[1].close()


SLOWLY: list[tuple[str, bool, bytes]] = [
    ("TLS that does not begin", False, b""),
    ("a request that does not begin", True, b""),
    ("a request that does not end", True, HALF),
]


@pytest.mark.parametrize(("tls", "said"), [s[1:] for s in SLOWLY], ids=[s[0] for s in SLOWLY])
async def test_what_does_not_come_is_not_waited_for(reviews: FakeReviews, tls: bool, said: bytes) -> None:
    async with listening(reviews, ConnectionLimits(tls_seconds=4, idle_seconds=4)) as listener:
        connection = await connect(listener.port, SLOW, tls=tls, said=said)
        assert not await ended(connection, 0.5)
        assert await ended(connection, 60)
        connection[1].close()


async def test_a_byte_now_and_then_gains_no_time(reviews: FakeReviews) -> None:
    async with listening(reviews, ConnectionLimits(idle_seconds=1)) as listener:
        connection = await connect(listener.port, SLOW, tls=True, said=HALF)
        for _ in range(100):
            connection[1].write(b"a")
            if await ended(connection, 0.1):
                break
        else:
            pytest.fail("the connection lives on")
        connection[1].close()


async def test_strangers_keep_no_connection(reviews: FakeReviews) -> None:
    async with listening(reviews, ConnectionLimits()) as listener:
        asked = b"GET /v1/services HTTP/1.1\r\nHost: x\r\n\r\n"
        connection = await connect(listener.port, SLOW, tls=True, said=asked)
        assert b" 401 " in await connection[0].readline()
        assert await ended(connection, 60)
        connection[1].close()


class Fine:
    def not_ready(self) -> str:
        return ""

    def broken(self) -> str:
        return ""

    def ready(self) -> str:
        return "ok"


async def test_probes_are_answered_through_a_flood() -> None:
    """A kubelet that gets no answer restarts the process."""
    listener = await serve(Fine(), "127.0.0.1", 0)
    async with AsyncExitStack() as held:
        flood = [
            await connect(listener.port, SLOW, tls=False, said=b"GET /he") for _ in range(2 * LIMITS.connections)
        ]
        for _, writer in flood:
            held.callback(writer.transport.abort)
        url = f"http://127.0.0.1:{listener.port}/healthz"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            assert answer.status == 200
        assert await ended(flood[0], 60)
    await listener.close()


async def test_a_defect_that_one_connection_finds_costs_no_other(
    reviews: FakeReviews, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    connects = loop.connect_accepted_socket

    async def once(*_: object, **__: object) -> None:
        monkeypatch.setattr(loop, "connect_accepted_socket", connects)
        raise RuntimeError("a defect")

    async with listening(reviews, ConnectionLimits()) as listener:
        monkeypatch.setattr(loop, "connect_accepted_socket", once)
        connection = await connect(listener.port, SLOW, tls=False)
        assert await ended(connection, 60)
        connection[1].close()
        await until(lambda: "could not be begun" in caplog.text)
        assert await get(listener.port) == 200
