"""Object stores for the tests: moto's S3 and fsouza's fake-gcs-server, both written by others."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster import binaries
from cluster.ports import free_port
from support import environments

_MOTO_LOCK = Path(__file__).with_name("moto-requirements.txt")
"""It needs another python-dateutil than the operator."""


@contextmanager
def s3() -> Iterator[int]:
    """Run moto's server; gives its port."""
    port = free_port()
    with _running([str(environments.python(_MOTO_LOCK)), "-m", "moto.server", "-p", str(port)], port):
        yield port


@contextmanager
def cloud_storage() -> Iterator[int]:
    """Run fake-gcs-server with its objects in memory; gives its port."""
    port = free_port()
    # Its XML API is that of the public host, whichever port a request came by.
    place = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-public-host", "127.0.0.1"]
    server = binaries.ensure(["fake-gcs-server"], print)["fake-gcs-server"]
    with _running([str(server), "-backend", "memory", *place], port):
        yield port


@contextmanager
def _running(command: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 180
        while not _listens(port):
            assert process.poll() is None, f"{command[0]} ended by itself"
            assert time.monotonic() < deadline, f"{command[0]} does not listen"
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
