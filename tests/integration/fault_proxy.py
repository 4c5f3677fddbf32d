"""A proxy between the operator and its API server that can answer in the API server's place."""

import asyncio
import base64
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web

from cluster.core import Cluster

PAGE = "<!doctype html>\n<html><head><title>Sign in</title></head><body>Your session has ended.</body></html>\n"
DROPPED = ("host", "content-length", "transfer-encoding", "content-encoding")


class FaultProxy:
    """Passes requests on; with `page` set, it answers them with a login page and cuts what is open."""

    def __init__(self, cluster: Cluster) -> None:
        config = yaml.safe_load(cluster.kubeconfig.read_text(encoding="utf-8"))
        own = config["clusters"][0]["cluster"]
        self._upstream = own["server"]
        self._trust = ssl.create_default_context(cadata=base64.b64decode(own["certificate-authority-data"]).decode())
        self._loop = asyncio.new_event_loop()
        self._open: list[web.Request] = []
        self.page = False
        self.port = 0

    def set_page(self, page: bool) -> None:
        """From now on; watches that are open are cut."""
        self.page = page
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for request in self._open:
            if request.transport:
                request.transport.abort()

    def kubeconfig(self, path: Path, token: str) -> Path:
        """A kubeconfig at `path` that leads through here."""
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        parts = {"clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {"token": token}}]}
        path.write_text(
            yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "c", **parts}), encoding="utf-8"
        )
        return path

    @contextmanager
    def running(self) -> Iterator["FaultProxy"]:
        """In a thread of its own."""
        started = threading.Event()
        stop = asyncio.Event()
        thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(started, stop),))
        thread.start()
        started.wait(10)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(stop.set)
            thread.join(20)
            self._loop.close()

    async def _serve(self, started: threading.Event, stop: asyncio.Event) -> None:
        connector = aiohttp.TCPConnector(ssl=self._trust, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False
        ) as self._session:
            app = web.Application(client_max_size=16 << 20)
            app.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.port = runner.addresses[0][1]
            started.set()
            await stop.wait()
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if self.page:
            return web.Response(text=PAGE, content_type="text/html")
        headers = {name: value for name, value in request.headers.items() if name.lower() not in DROPPED}
        self._open.append(request)
        try:
            body = await request.read() or None  # of none aiohttp would name a type of content
            url = f"{self._upstream}{request.rel_url}"
            async with self._session.request(request.method, url, headers=headers, data=body) as answer:
                passed = {n: v for n, v in answer.headers.items() if n.lower() not in DROPPED[:3]}
                response = web.StreamResponse(status=answer.status, headers=passed)
                await response.prepare(request)
                async for part in answer.content.iter_any():
                    await response.write(part)
                return response
        finally:
            self._open.remove(request)
