"""gRPC connections age, so that clients of before reach the replicas of later: the launch's flag on the server."""

import contextlib
import itertools
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import tritonclient.grpc as triton

from triton.harness import Options, TritonServer

AGE_SECONDS = 1
SECONDS = 120
"""What only a connection takes that never ages."""
IN_TURN = ["first", "later", "first", "later"]


class Service(socketserver.ThreadingTCPServer):
    """Leads each new connection to the next of `ports`, as a Service leads it to a pod."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.ports: list[int] = []
        self.turns = itertools.count()


class Connection(socketserver.BaseRequestHandler):
    """One connection, and the pod's that it is led to."""

    server: Service

    def handle(self) -> None:
        ports = self.server.ports
        with socket.create_connection(("127.0.0.1", ports[next(self.server.turns) % len(ports)])) as pod:
            back = threading.Thread(target=passed_on, args=(pod, self.request))
            back.start()
            passed_on(self.request, pod)
            back.join()


def passed_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def service() -> Iterator[Service]:
    with Service() as made:
        threading.Thread(target=made.serve_forever).start()
        try:
            yield made
        finally:
            made.shutdown()


def local_ports(server_port: int) -> set[int]:
    """Ports from which this process is connected to the server now."""
    found = psutil.Process().net_connections(kind="tcp")
    return {c.laddr.port for c in found if c.raddr and c.raddr.port == server_port and c.status == "ESTABLISHED"}


def test_a_client_that_stays_connects_anew_and_notices_nothing(tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    options = Options(env={}, arguments=["--grpc-max-connection-age=1000"])
    with (
        TritonServer(tmp_path / "repository", options) as server,
        triton.InferenceServerClient(server.grpc_url) as client,
    ):
        seen: set[int] = set()
        deadline = time.monotonic() + SECONDS
        while len(seen) < 3 and time.monotonic() < deadline:
            assert client.is_server_live(), "no call fails"
            seen |= local_ports(server.ports.grpc)
            time.sleep(0.05)
        assert len(seen) >= 3, "one connection after the other"


def test_a_replica_of_later_gets_its_share_of_a_client_that_stays(tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    age = f"--grpc-max-connection-age={AGE_SECONDS * 1000}"
    first, later = (
        TritonServer(tmp_path / "repository", Options(env={}, arguments=[age, f"--id={name}"]))
        for name in ("first", "later")
    )
    with first, later, service() as address:
        address.ports = [first.ports.grpc]
        with triton.InferenceServerClient(f"127.0.0.1:{address.server_address[1]}") as client:
            assert client.get_server_metadata().name == "first"
            address.ports = [first.ports.grpc, later.ports.grpc]
            served, until = ["first"], time.monotonic() + SECONDS
            while served != IN_TURN and time.monotonic() < until:
                if (name := client.get_server_metadata().name) != served[-1]:
                    served.append(name)
                time.sleep(0.01)
    assert served == IN_TURN


def test_without_the_flag_one_connection_stays(tmp_path: Path) -> None:
    """What the test above would see if the server took no notice of the flag."""
    (tmp_path / "repository").mkdir()
    with TritonServer(tmp_path / "repository") as server, triton.InferenceServerClient(server.grpc_url) as client:
        seen: set[int] = set()
        for _ in range(60):
            assert client.is_server_live()
            seen |= local_ports(server.ports.grpc)
            time.sleep(0.05)
        assert len(seen) == 1
