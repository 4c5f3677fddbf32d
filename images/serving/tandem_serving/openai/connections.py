"""One connection of a client, with the limits that uvicorn does not have.

What a client must send next has a time limit, and so has what it must read. A client that sends its request and then
closes its side is answered. Errors are OpenAI's JSON.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from tandem_serving.openai.errors import ApiError

KEEP_ALIVE_SECONDS = 75
"""Longer than load balancers commonly keep an idle connection: they must be the ones that close it."""
HEAD_SECONDS = 10.0
"""For the head of a request, from its first byte."""
REST_SECONDS = 5.0
"""For the rest of a body that was refused before it was there."""
WRITE_SECONDS = 60.0
"""For a client to read what is sent."""
LEFT_SECONDS = 1.0
"""After which a client is asked again whether it reads."""
MOST_HEAD = 16 << 10
"""Bytes of a request's head."""
READ_BYTES = 16 << 10
MOST_PARTS, LEAST_PART = 1024, 64
"""Chunks of a body, after which they must have so many bytes on average: each takes as long as a large one."""
_READ = bytearray(READ_BYTES)
"""Where all connections read to, one after the other."""


class _Parser(h11.Connection):
    """Refuses bodies in tiny chunks."""

    _parts = _bytes = 0

    def next_event(self) -> Any:
        """See h11.Connection. Raises h11.RemoteProtocolError."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._parts = self._bytes = 0
        elif isinstance(event, h11.Data):
            self._parts += event.chunk_start
            self._bytes += len(event.data)
            if self._parts > MOST_PARTS and self._bytes < LEAST_PART * self._parts:
                raise h11.RemoteProtocolError("the body comes in tiny chunks: send it with a Content-Length")
        return event


class Connection(H11Protocol, asyncio.BufferedProtocol):
    """As uvicorn's, but for what the module says. It reads into one buffer: so a connection takes little memory."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.conn = _Parser(h11.SERVER, MOST_HEAD)
        self._limit: asyncio.TimerHandle | None = None
        self._limited = ""
        self._unread: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Whether little is lost with it: it has no whole request, or one that generates nothing, as a probe's."""
        return not self._answering or self.cycle.scope["method"] != "POST"

    def end(self) -> None:
        """Give its place to another one."""
        if self._begun:
            self._refuse(ApiError(408, "the request did not come whole while others waited: send it again"))
        self.transport.abort()

    @property
    def _answering(self) -> bool:
        return bool(self.cycle and not self.cycle.response_complete and not self.cycle.more_body)

    @property
    def _begun(self) -> bool:
        """Whether a part of a request is there, and no answer."""
        if self.conn.their_state is h11.IDLE:
            return bool(self.conn.trailing_data[0])
        return bool(self.cycle and self.cycle.more_body and not self.cycle.response_started)

    # What asyncio calls.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self._set_limit()

    def get_buffer(self, sizehint: int) -> bytearray:
        """See asyncio.BufferedProtocol."""
        return _READ

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        self.data_received(bytes(_READ[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        super().data_received(data)
        if self.cycle and self.cycle.more_body and not self.cycle.response_started:
            self.flow.pause_reading()  # until it is asked for
        self._set_limit()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether it stays open to be answered; with TLS it cannot."""
        if self._begun:
            self._refuse(ApiError(400, "the connection was closed before the request was whole: send it again"))
        if not self._answering or self.scheme == "https":
            return False
        self.cycle.keep_alive = False
        if self.cycle.scope["http_version"] == "1.1":
            self._ask_for_a_reader(True)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        super().connection_lost(exc)
        for timer in (self._limit, self._unread):
            if timer:
                timer.cancel()

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        super().pause_writing()
        self._unread = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        super().resume_writing()
        if self._unread:
            self._unread.cancel()

    # What uvicorn calls.

    def on_response_complete(self) -> None:
        """See uvicorn."""
        super().on_response_complete()
        self._set_limit()

    def send_400_response(self, msg: str) -> None:
        """For what h11 refuses, of which uvicorn's message says nothing."""
        error = sys.exception()
        if getattr(error, "error_status_hint", 400) == 431:
            self._refuse(ApiError(431, f"the request's head has more than {MOST_HEAD} bytes: send fewer headers"))
        else:
            self._refuse(ApiError(400, f"the request is no HTTP/1.1: {error}"))

    def _ask_for_a_reader(self, again: bool) -> None:
        """A client that has left altogether answers the next two bytes with a reset, which ends the connection."""
        if self._answering and not self.cycle.response_started and not self.transport.is_closing():
            self.transport.write(self.conn.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            if again:
                self.loop.call_later(LEFT_SECONDS, self._ask_for_a_reader, False)

    def _set_limit(self) -> None:
        """For what the client must send now."""
        if self._answering or self.transport.is_closing():
            wanted, seconds = "", 0.0
        elif self.conn.their_state is h11.IDLE:
            begun = bool(self.conn.trailing_data[0])
            wanted, seconds = ("head", HEAD_SECONDS) if begun else ("request", KEEP_ALIVE_SECONDS)
        elif self.cycle and self.cycle.response_complete:
            wanted, seconds = "rest", REST_SECONDS
        else:
            wanted, seconds = "", 0.0  # the application limits how long a body takes
        if wanted != self._limited:
            if self._limit:
                self._limit.cancel()
            self._limited = wanted
            self._limit = self.loop.call_later(seconds, self._late) if wanted else None

    def _late(self) -> None:
        if self._limited == "head":
            self._refuse(ApiError(408, f"the request's head did not come within {HEAD_SECONDS:g} s: send it again"))
        if self._limited == "rest" or self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def _refuse(self, error: ApiError) -> None:
        """Answer with an error, and close, unless an answer has begun."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE) or self.transport.is_closing():
            return
        body = json.dumps(error.body).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        head = h11.Response(status_code=error.status, headers=headers, reason=STATUS_PHRASES[error.status])
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def listening_socket(host: str, port: int, backlog: int) -> socket.socket:
    """At one address, of its family."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=backlog)
