"""The faults that a plan may have: each strikes once, at the request or event that it names."""

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tandem import names

from .proxy import Call, Cut, Fault, hang, status_answer
from .requests import Request

REASONS = {
    403: ("Forbidden", "forbidden for now"),
    404: ("NotFound", "the server could not find the requested resource"),
    409: ("Conflict", "the object has been modified; please apply your changes to the latest version"),
    410: ("Expired", "too old resource version: 1 (2)"),
    422: ("Invalid", "spec: Invalid value"),
    429: ("TooManyRequests", "too many requests, try again"),
    500: ("InternalError", "etcdserver: request failed"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
}


def refusal(code: int) -> web.Response:
    """An answer of that code."""
    reason, message = REASONS[code]
    return status_answer(code, reason, message, {"Retry-After": "1"} if code == 429 else None)


@dataclass
class AtRequest(Fault):
    """Strikes at the `number`-th request of a kind."""

    where: str
    number: int

    def hits(self, call: Call) -> bool:
        """Whether this is the one; a later one, where its client gave that up."""
        return not self.struck and str(call.request) == self.where and call.number >= self.number


@dataclass
class Kill(AtRequest):
    """kill -9, before the API server has the request, or after it has carried it out."""

    after_it: bool = False

    async def before(self, call: Call) -> web.Response | None:
        """See the class."""
        if not self.after_it and self.hits(call):
            self._kill(call)
        return None

    async def after(self, call: Call, status: int, body: bytes) -> bytes:
        """See the class."""
        if self.after_it and self.hits(call):
            self._kill(call)
        return body

    def _kill(self, call: Call) -> None:
        self.strike()
        call.proxy.on_kill()
        raise Cut


@dataclass
class Answer(AtRequest):
    """An error in the API server's place."""

    code: int = 500

    async def before(self, call: Call) -> web.Response | None:
        """See the class."""
        if not self.hits(call):
            return None
        self.strike()
        return refusal(self.code)


@dataclass
class Lost(AtRequest):
    """No answer: the connection ends before the API server has the request, or after it has carried it out."""

    after_it: bool = False

    async def before(self, call: Call) -> web.Response | None:
        """See the class."""
        if not self.after_it and self.hits(call):
            self.strike()
            raise Cut
        return None

    async def after(self, call: Call, status: int, body: bytes) -> bytes:
        """See the class."""
        if self.after_it and self.hits(call):
            self.strike()
            raise Cut
        return body


@dataclass
class Hang(AtRequest):
    """No answer for ever, before or after the API server has carried it out: the client gives up."""

    after_it: bool = False

    async def before(self, call: Call) -> web.Response | None:
        """See the class."""
        if not self.after_it and self.hits(call):
            self.strike()
            await hang()
        return None

    async def after(self, call: Call, status: int, body: bytes) -> bytes:
        """See the class."""
        if self.after_it and self.hits(call):
            self.strike()
            await hang()
        return body


@dataclass
class Meanwhile(AtRequest):
    """Somebody does something just before the API server has the request."""

    done: asyncio.Event = field(default_factory=asyncio.Event)
    resumed: asyncio.Event = field(default_factory=asyncio.Event)

    async def before(self, call: Call) -> web.Response | None:
        """See the class."""
        if self.hits(call):
            self.strike()
            self.done.set()
            await self.resumed.wait()
        return None


@dataclass
class Refuse(Fault):
    """Lists and watches of some kinds (empty: all) are refused for some seconds; watches that are open are cut."""

    resource: str
    code: int
    seconds: float

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return bool(self.struck) and time.monotonic() - self.struck > self.seconds

    def concerns(self, request: Request) -> bool:
        """Whether it is a list or a watch of that kind."""
        return request.verb in ("list", "watch") and self.resource in ("", request.resource)

    async def before(self, call: Call) -> web.Response | None:
        """See the class."""
        if not self.concerns(call.request) or self.over:
            return None
        self.strike()
        return refusal(self.code)


@dataclass
class Down(Fault):
    """No API server for some seconds from when the fault is armed: connections end at once."""

    seconds: float

    @property
    def over(self) -> bool:
        """Whether it is there again."""
        return bool(self.struck) and time.monotonic() - self.struck > self.seconds

    def concerns(self, request: Request) -> bool:
        """All that is open ends, too."""
        return True

    async def before(self, call: Call) -> web.Response | None:
        """See the class."""
        if self.over:
            return None
        self.strike()
        raise Cut


class Page(Fault):
    """A login page in the API server's place."""

    text = "<!doctype html>\n<html><head><title>Sign in</title></head><body>Your session has ended.</body></html>\n"

    async def before(self, call: Call) -> web.Response | None:
        """See the class."""
        self.strike()
        return web.Response(text=self.text, content_type="text/html")


@dataclass
class OnWatch(Fault):
    """Strikes at the `number`-th event of a type (empty: any) of a kind."""

    resource: str
    type: str = ""
    number: int = 1
    seen: int = 0

    def hits(self, call: Call, event: dict[str, Any]) -> bool:
        """Whether this is the one."""
        if self.struck or call.request.resource != self.resource or event["type"] == "BOOKMARK":
            return False
        if self.type not in ("", event["type"]):
            return False
        self.seen += 1
        return self.seen == self.number


class Drop(OnWatch):
    """The event is not passed on."""

    def event(self, call: Call, event: dict[str, Any]) -> dict[str, Any] | None:
        """See the class."""
        if not self.hits(call, event):
            return event
        self.strike()
        return None


class CutWatch(OnWatch):
    """The watch ends before the event."""

    def event(self, call: Call, event: dict[str, Any]) -> dict[str, Any] | None:
        """See the class."""
        if not self.hits(call, event):
            return event
        self.strike()
        raise Cut


@dataclass
class Stall(OnWatch):
    """Nothing more comes of the watch, from that event on, and it does not end."""

    stalled: Call | None = None

    def event(self, call: Call, event: dict[str, Any]) -> dict[str, Any] | None:
        """See the class."""
        if self.hits(call, event):
            self.strike()
            self.stalled = call
        return None if call is self.stalled else event


@dataclass
class Gone(OnWatch):
    """The watch ends with an ERROR event of code 410 in the event's place."""

    ended: Call | None = None

    def event(self, call: Call, event: dict[str, Any]) -> dict[str, Any] | None:
        """See the class."""
        if call is self.ended:
            return None
        if not self.hits(call, event):
            return event
        self.strike()
        self.ended = call
        reason, message = REASONS[410]
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410}
        return {"type": "ERROR", "object": {**status, "metadata": {}, "reason": reason, "message": message}}


@dataclass
class Stale(Fault):
    """The lists with which watches begin are, for some seconds, those of an API server that is behind: what it
    answered while `remembers` was set. Reads of a single service's objects are not: they ask for the newest."""

    seconds: float
    answers: dict[str, bytes] = field(default_factory=dict)
    remembers: bool = True

    @property
    def over(self) -> bool:
        """Whether reads are up to date again."""
        return bool(self.struck) and time.monotonic() - self.struck > self.seconds

    async def before(self, call: Call) -> web.Response | None:
        """See the class."""
        old = self.answers.get(_key(call))
        if self.remembers or old is None or self.over or call.request.verb != "list":
            return None
        self.strike()
        return web.Response(body=old, content_type="application/json")

    async def after(self, call: Call, status: int, body: bytes) -> bytes:
        """See the class."""
        of_all = f"{names.LABEL_SERVICE}=" not in call.raw.query.get("labelSelector", "")
        if self.remembers and status == 200 and call.request.verb == "list" and of_all:
            self.answers[_key(call)] = body
        return body


def _key(call: Call) -> str:
    return json.dumps([call.raw.method, str(call.raw.rel_url), call.raw.headers.get("Accept", "")])
