"""Uvicorn's server with a bounded number of connections, shared among those who connect.

At the limit the address that holds the most connections loses its oldest one without a request to generate. So a
client that opens many and sends little keeps no other one out. Uvicorn itself would answer 503 to all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
from asyncio import sslproto
from collections.abc import Callable
from typing import Any

import uvicorn

from tandem_serving.openai import connections
from tandem_serving.openai.connections import Connection, listening_socket

log = logging.getLogger("tandem.openai")
# asyncio gives each connection with TLS a buffer of 256 KiB as soon as its first byte is there. A record has 16 KiB.
sslproto.SSLProtocol.max_size = connections.READ_BYTES
MOST_CONNECTIONS = 1024
"""A third more than requests are answered at once. Each takes up to 50 KiB while its request comes."""
OTHER_FILES = 128
"""Open files that are no clients' connections."""
TLS_SECONDS = 10.0
"""For TLS to begin, and to end."""
BACKLOG = 1024
"""Connections that wait to be taken: a client whose connection finds no room tries again after a second."""


class _Socket(socket.socket):
    """A connection, which gives its place back when it is closed, by whomever."""

    place: tuple[Places, str] | None = None
    connection: Connection | None = None
    _silent: asyncio.TimerHandle | None = None

    def listen_to(self, spoke: Callable[[_Socket], None]) -> None:
        """Wait for its first byte: until then it takes little memory and time."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self, self._spoke, spoke)
        self._silent = loop.call_later(connections.KEEP_ALIVE_SECONDS, self.end)

    @property
    def waits(self) -> bool:
        """Whether nothing is lost with it."""
        return self.connection is None or self.connection.waits

    @property
    def is_silent(self) -> bool:
        """Whether no byte came yet."""
        return self._silent is not None

    def end(self) -> None:
        """Close it."""
        if self.connection:
            self.connection.end()
        elif self._silent:
            self._listened()
            self.close()
        else:  # TLS has not begun
            with contextlib.suppress(OSError):
                self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self.place:
            places, address = self.place
            places.give_back(self, address)
        super().close()

    def _spoke(self, spoke: Callable[[_Socket], None]) -> None:
        self._listened()
        spoke(self)

    def _listened(self) -> None:
        assert self._silent
        self._silent.cancel()
        self._silent = None
        asyncio.get_running_loop().remove_reader(self)


class Places:
    """The connections that are open, by the address that they come from, its oldest first."""

    def __init__(self, most: int) -> None:
        self._most, self._open = most, 0
        self._taken: dict[str, dict[_Socket, None]] = {}

    def take(self, connection: _Socket, address: str) -> bool:
        """For a new connection; another one may have to go. False: all others have requests that are answered."""
        if self._open >= self._most:
            if not (found := self._one_to_end()):
                return False
            self.give_back(*found)
            found[0].end()
        self._taken.setdefault(address, {})[connection] = None
        self._open += 1
        connection.place = self, address
        return True

    def give_back(self, connection: _Socket, address: str) -> None:
        """Idempotent."""
        held = self._taken.get(address, {})
        self._open -= connection in held
        held.pop(connection, None)
        if not held:
            self._taken.pop(address, None)

    def end_silent(self) -> None:
        """Close those that have sent nothing."""
        for connection in [each for held in self._taken.values() for each in held if each.is_silent]:
            connection.end()

    def _one_to_end(self) -> tuple[_Socket, str] | None:
        for address in sorted(self._taken, key=lambda each: len(self._taken[each]), reverse=True):
            if oldest := next((each for each in self._taken[address] if each.waits), None):
                return oldest, address
        return None


class Server(uvicorn.Server):
    """Listens at the address of its configuration."""

    def __init__(self, config: uvicorn.Config, most: int = MOST_CONNECTIONS) -> None:
        super().__init__(config)
        self._places = Places(min(most, _most_files() - OTHER_FILES))
        self._listening: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._beginning = set[asyncio.Task[None]]()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn.Server."""
        await super().startup(sockets=[])
        self._listening = listening_socket(self.config.host, self.config.port, BACKLOG)
        self._listening.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(self._listening))
        log.info("listening at %s:%s", *self._listening.getsockname()[:2])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn.Server."""
        if self._accepting and self._listening:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
            self._listening.close()
        self._places.end_silent()
        await super().shutdown(sockets)

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                accepted, address = await asyncio.get_running_loop().sock_accept(listening)
            except ConnectionAbortedError:
                continue
            except OSError as error:  # such as too many open files
                log.warning("no connection can be taken for a second: %s", error)
                await asyncio.sleep(1)
                continue
            connection = _Socket(fileno=accepted.detach())
            connection.setblocking(False)
            if self._places.take(connection, address[0]):
                connection.listen_to(self._spoke)
            else:
                connection.close()
            await asyncio.sleep(0)  # for the others: accepting goes on at once while somebody waits

    def _spoke(self, connection: _Socket) -> None:
        task = asyncio.create_task(self._begin(connection))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _begin(self, connection: _Socket) -> None:
        tls = {"ssl_handshake_timeout": TLS_SECONDS, "ssl_shutdown_timeout": TLS_SECONDS} if self.config.ssl else {}
        make: Callable[[], Any] = self._protocol
        try:
            _, protocol = await asyncio.get_running_loop().connect_accepted_socket(
                make, connection, ssl=self.config.ssl, **tls
            )
            connection.connection = protocol
        except OSError as error:
            log.debug("a client went away, or there is no TLS to be had with it: %s", error)
        except Exception:  # a defect that one connection finds must not end the accepting of others
            log.exception("a connection could not be begun")
            connection.close()

    def _protocol(self) -> Connection:
        return Connection(self.config, self.server_state, self.lifespan.state, asyncio.get_running_loop())


def _most_files() -> int:
    """Open files that the process may have, as many as it is let."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else MOST_CONNECTIONS + OTHER_FILES
