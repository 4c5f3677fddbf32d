"""HTTP servers that hold a bounded number of connections, shared among those who connect.

A client that opens many connections and sends little on them, or nothing, keeps no other client out: at the limit the
address that holds the most loses its oldest. aiohttp bounds only how long a connection may be idle; asyncio's own
server does not expose a connection's address before TLS has begun, nor end one whatever state it is in.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tandem.errors import SettingsError

log = logging.getLogger(__name__)

BACKLOG = 128


@dataclass(frozen=True)
class ConnectionLimits:
    """What connections may cost."""

    connections: int = 256
    """Open at once; each takes up to 300 KiB, most of it for TLS. The API server and autoscalers need some tens."""
    tls_seconds: float = 10.0
    """For TLS to begin, and to end."""
    idle_seconds: float = 90.0
    """Until the whole head of a request is there, from the start or the answer before it. Clients in Go, such as the
    API server, give an idle connection up after as long."""


class _Connection(socket.socket):
    """Gives its place back when it is closed, by whomever."""

    place: "tuple[_Places, str] | None" = None
    _transport: asyncio.Transport | None = None
    _over = False

    def begun(self, transport: asyncio.Transport) -> None:
        """TLS has begun, if any."""
        self._transport = transport
        if self._over:
            transport.abort()

    def end(self) -> None:
        """End it, whatever it does."""
        self._over = True
        if self._transport:
            # Not by its socket alone: asyncio would keep one whose client has sent an end, and reads no answer.
            self._transport.abort()
            return
        with contextlib.suppress(OSError):  # its client may be gone
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self.place:
            places, address = self.place
            places.give_back(self, address)
        super().close()


class _Places:
    """The connections that are open, by the address that they come from, its oldest first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: dict[str, list[_Connection]] = {}

    def take(self, connection: _Connection, address: str) -> None:
        if sum(map(len, self._taken.values())) >= self._most:
            greediest = max(self._taken, key=lambda each: len(self._taken[each]))
            oldest = self._taken[greediest][0]
            self.give_back(oldest, greediest)
            oldest.end()
        self._taken.setdefault(address, []).append(connection)
        connection.place = self, address

    def give_back(self, connection: _Connection, address: str) -> None:
        held = self._taken.get(address, [])
        if connection in held:
            held.remove(connection)
        if not held:
            self._taken.pop(address, None)


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens; without a host at all addresses, of whichever families the machine has."""
    if not host and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


class Listener:
    """Serves an application at one address."""

    def __init__(self, app: web.Application, host: str, port: int, limits: ConnectionLimits | None = None) -> None:
        self._limits = limits or ConnectionLimits()
        self._runner = web.AppRunner(app, access_log=None, keepalive_timeout=self._limits.idle_seconds)
        self._places = _Places(self._limits.connections)
        self._address = (host, port)
        self._tls: dict[str, Any] = {}
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None

    async def listen(self, context: ssl.SSLContext | None = None) -> None:
        """Serve new connections with `context` (None: without TLS).

        Call it again with another: connections that are there go on, and no client is turned away in between.

        Raises:
            SettingsError: the address is somebody else's, or none of this machine.
        """
        seconds = self._limits.tls_seconds
        timeouts = {"ssl_handshake_timeout": seconds, "ssl_shutdown_timeout": seconds}
        self._tls = {"ssl": context, **timeouts} if context else {}
        if self._socket is None:
            await self._runner.setup()
            try:
                self._socket = _bound(*self._address)
            except OSError as error:
                host, port = self._address
                raise SettingsError(f"cannot listen at {host}:{port}: {error.strerror}") from error
            self._socket.setblocking(False)
            self._accepting = asyncio.create_task(self._accept(self._socket))

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as beginning:
            while True:
                try:
                    accepted, address = await loop.sock_accept(listening)
                except ConnectionAbortedError:
                    continue
                except OSError as error:  # such as too many open files
                    log.warning("no connection can be taken for a second: %s", error)
                    await asyncio.sleep(1)
                    continue
                connection = _Connection(fileno=accepted.detach())
                self._places.take(connection, address[0])
                beginning.create_task(self._begin(connection))
                await asyncio.sleep(0)  # for the others: accepting goes on at once while somebody waits

    async def _begin(self, connection: _Connection) -> None:
        assert self._runner.server is not None
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.connect_accepted_socket(self._runner.server, connection, **self._tls)
            connection.begun(transport)
        except OSError as error:
            log.debug("a client went away, or there is no TLS to be had with it: %s", error)
        except Exception:  # a defect that one connection finds must not end the accepting of others
            log.exception("a connection could not be begun")
            connection.close()

    @property
    def port(self) -> int:
        """Where it listens; 0 while it does not."""
        return int(self._socket.getsockname()[1]) if self._socket else 0

    async def close(self) -> None:
        """End all connections."""
        if self._accepting and self._socket:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
            self._socket.close()
        await self._runner.cleanup()
