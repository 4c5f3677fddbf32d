"""gRPC connections age, so that clients of before reach the replicas of later: the launch's flag on the server."""

import time
from pathlib import Path

import psutil
import tritonclient.grpc as triton

from triton.harness import Options, TritonServer


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
        deadline = time.monotonic() + 60
        while len(seen) < 3 and time.monotonic() < deadline:
            assert client.is_server_live(), "no call fails"
            seen |= local_ports(server.ports.grpc)
            time.sleep(0.05)
        assert len(seen) >= 3, "one connection after the other"


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
