"""Probes and metrics of a process, over HTTP.

`/readyz` says whether it can do its work now. `/healthz` fails only where a restart would help: an API server that
is away does not get better by killing who needs it.
"""

import time
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tandem.cluster.client import Api
from tandem.cluster.lease import Leadership
from tandem.handlers import EventSource
from tandem.listening import Limits, Listener
from tandem.resync import Resync

API_SILENT_SECONDS = 20
LIMITS = Limits(connections=64)


class Probes(Protocol):
    """What the probes ask."""

    def not_ready(self) -> str:
        """Why it cannot do its work now; empty when it can."""

    def broken(self) -> str:
        """Why it should be restarted; empty when that would not help."""

    def ready(self) -> str:
        """What a ready one says of itself."""


@dataclass
class Health:
    """The operator's: the API server answers, the watches live."""

    api: Api
    leadership: Leadership
    source: EventSource
    resync: Resync
    resync_seconds: float
    started_at: float

    def not_ready(self) -> str:
        """Why the operator cannot do its work now; empty when it can."""
        silent = time.monotonic() - (self.api.answered_at or self.started_at)
        if silent > API_SILENT_SECONDS:
            return f"the API server has not answered for {silent:.0f} s"
        if self.resync.problem:
            return self.resync.problem
        if not self.resync.compared_at:
            return "starting: the watches have not been compared with the API server yet"
        return "" if self.source.watching else "the watches are being started"

    def broken(self) -> str:
        """Why the operator should be restarted; empty when that would not help."""
        now = time.monotonic()
        if now - (self.api.answered_at or self.started_at) > API_SILENT_SECONDS:
            return ""
        stuck = now - (self.resync.moved_at or self.started_at)
        if stuck > 3 * self.resync_seconds + 60 and not self.resync.problem:
            return f"no comparison of the watches for {stuck:.0f} s"
        return ""

    def ready(self) -> str:
        """Whether it is the one that writes, and what it may not do."""
        role = f"ok: {'leader' if self.leadership.acquired.is_set() else 'standby'}"
        return f"{role}, but {self.resync.forbidden}" if self.resync.forbidden else role


async def serve(health: Probes, host: str, port: int) -> Listener:
    """Start serving `/healthz`, `/readyz` and `/metrics`; `close()` it to stop."""

    def answer(problem: str, fine: str) -> web.Response:
        return web.Response(text=f"{problem or fine}\n", status=503 if problem else 200)

    async def readyz(_: web.Request) -> web.Response:
        return answer(health.not_ready(), health.ready())

    async def healthz(_: web.Request) -> web.Response:
        return answer(health.broken(), "ok")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/readyz", readyz), web.get("/healthz", healthz), web.get("/metrics", metrics)])
    listener = Listener(app, host, port, LIMITS)
    await listener.listen()
    return listener
