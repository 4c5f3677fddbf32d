"""A TCP proxy that counts what a server sends, and slows it down."""

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_BLOCK = 64 * 1024


class Wire(socketserver.ThreadingTCPServer):
    """`sent`: bytes from the server to clients. `bytes_per_second`: limit of each connection, 0 for none."""

    daemon_threads = True

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.target = target
        self.bytes_per_second = 0.0
        self.sent = 0

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Connection(socketserver.BaseRequestHandler):
    server: Wire
    request: socket.socket

    def handle(self) -> None:
        """Copy both ways until one end is closed."""
        with socket.create_connection(("127.0.0.1", self.server.target)) as server:
            upwards = threading.Thread(target=_copy, args=(self.request, server))
            upwards.start()
            for count in _copied(server, self.request):
                self.server.sent += count
                if self.server.bytes_per_second:
                    time.sleep(count / self.server.bytes_per_second)
            upwards.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    for _ in _copied(source, sink):
        pass


def _copied(source: socket.socket, sink: socket.socket) -> Iterator[int]:
    """Copy until one end is closed, then close both for reading and writing; yields the bytes of each block."""
    with contextlib.suppress(OSError):
        while block := source.recv(_BLOCK):
            sink.sendall(block)
            yield len(block)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def before(target: int) -> Iterator[Wire]:
    """Run a proxy before a local port."""
    with Wire(target) as wire:
        threading.Thread(target=wire.serve_forever, daemon=True).start()
        yield wire
        wire.shutdown()
