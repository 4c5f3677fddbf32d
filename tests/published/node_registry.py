"""An OCI registry that the real node of a cluster and this machine reach by the same name, on loopback.

Both take a registry on loopback for one without TLS. It runs in the node's network; this machine's port leads there.
"""

import asyncio
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from cluster import binaries
from cluster.core import Cluster
from cluster.ports import free_port
from e2e.conftest import wait_for
from release import tools


@contextmanager
def node_registry(cluster: Cluster, folder: Path) -> Iterator[str]:
    """Its host and port; what is pushed is in `folder`."""
    port, pid = free_port(), _in_node(cluster)
    (node,) = cluster.kubectl.get("nodes")["items"]
    host = next(a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP")
    crane = binaries.ensure(["crane"], print)["crane"]
    serve = [str(crane), "registry", "serve", "--address", f":{port}", "--disk", str(folder)]
    folder.mkdir()
    with (folder.parent / "registry.log").open("wb") as log:
        process = subprocess.Popen(["nsenter", "-t", str(pid), "-n", *serve], stdout=log, stderr=log)
    try:
        with _forwarded(port, host):
            wait_for("the registry", lambda: _answers(port))
            yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _in_node(cluster: Cluster) -> int:
    """PID of a process in the node's network."""
    outer = cluster.status()["node-0"]
    assert outer is not None
    (first,) = psutil.Process(outer).children()
    return first.pid


def _answers(port: int) -> bool:
    with suppress(Exception):
        return tools.crane("catalog", f"127.0.0.1:{port}") == ""
    return False


@contextmanager
def _forwarded(port: int, host: str) -> Iterator[None]:
    """Lead connections to a port of this machine's loopback to the same one of `host`."""
    ready, loops = threading.Event(), []
    ended = asyncio.Event()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # the other side went: so does this one
        finally:
            writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, back), pump(there, writer))

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        server = await asyncio.start_server(relay, "127.0.0.1", port)
        ready.set()
        await ended.wait()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(30)
    yield
    loops[0].call_soon_threadsafe(ended.set)
    thread.join(30)
