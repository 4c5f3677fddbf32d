"""Probes and metrics of a process, over HTTP.

`/readyz` says whether it can do its work now. `/healthz` fails only where a restart would help: an API server that
is away does not get better by killing who needs it.
"""

from typing import Protocol

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tandem.http.listener import ConnectionLimits, Listener

LIMITS = ConnectionLimits(connections=64)


class Probes(Protocol):
    """What the probes ask."""

    def not_ready(self) -> str:
        """Why it cannot do its work now; empty when it can."""

    def broken(self) -> str:
        """Why it should be restarted; empty when that would not help."""

    def ready(self) -> str:
        """What a ready one says of itself."""


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
