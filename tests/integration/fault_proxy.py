"""The fault suite's proxy, for tests that have no event loop."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from cluster.core import Cluster
from faults.proxy import Fault, Proxy, client_session, kubeconfig

STARTS_SECONDS = 180
CLOSES_SECONDS = 0.25
"""Until TLS connections are closed: https://docs.aiohttp.org/en/stable/client_advanced.html#graceful-shutdown."""


class FaultProxy:
    """Passes requests on with the tokens that they bring; see `faults.proxy.Proxy`."""

    def __init__(self, proxy: Proxy, loop: asyncio.AbstractEventLoop) -> None:
        self._proxy, self._loop = proxy, loop

    def arm(self, fault: Fault) -> None:
        """From now on this fault; watches that are open are cut."""
        self._loop.call_soon_threadsafe(self._proxy.arm, fault)
        self._loop.call_soon_threadsafe(self._proxy.cut)

    def stop(self, stopped: asyncio.Event) -> None:
        """Set an event of its thread."""
        self._loop.call_soon_threadsafe(stopped.set)

    def kubeconfig(self, path: Path, token: str) -> Path:
        """A kubeconfig at `path` that leads through here."""
        return kubeconfig(path, self._proxy.port, token)


@contextmanager
def running_proxy(cluster: Cluster) -> Iterator[FaultProxy]:
    """In a thread of its own."""
    started, stop = threading.Event(), asyncio.Event()
    made: list[FaultProxy] = []

    async def serve() -> None:
        trust = ssl.create_default_context(cafile=str(cluster.folder / "pki/ca.crt"))
        server = yaml.safe_load(cluster.kubeconfig.read_text(encoding="utf-8"))["clusters"][0]["cluster"]["server"]
        async with client_session(trust) as session:
            proxy = Proxy(session, server)
            await proxy.start()
            made.append(FaultProxy(proxy, asyncio.get_running_loop()))
            started.set()
            await stop.wait()
            await proxy.stop()
        await asyncio.sleep(CLOSES_SECONDS)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(STARTS_SECONDS), "the proxy does not start"
    try:
        yield made[0]
    finally:
        made[0].stop(stop)
        thread.join()
