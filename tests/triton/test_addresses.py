"""A pod whose first address is of IPv6: Triton answers there, over HTTP, gRPC and on the metrics page."""

import http.client
import socket
from pathlib import Path

import pytest
import tritonclient.grpc as triton

from tandem_serving.addresses import POD_IP, server_options
from triton.harness import Options, TritonServer

ENVIRONMENT = {POD_IP: "::1"}
CONFIG = """
name: "echo"
backend: "python"
input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }
"""
MODEL = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"


class Pod(TritonServer):
    """The server with the options of the entry point, asked at ::1 alone."""

    def _command(self, backends: Path) -> list[str]:
        command = [word for word in super()._command(backends) if "-address=" not in word]
        return [*command, *server_options(ENVIRONMENT)]

    def ready(self) -> bool:
        return self.answers("::1", self.ports.http, "/v2/health/ready")

    def _tells_metrics(self) -> bool:
        return self.answers("::1", self.ports.metrics, "/metrics")

    def answers(self, host: str, port: int, path: str) -> bool:
        connection = http.client.HTTPConnection(host, port, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_it_answers_at_an_address_of_ipv6(tmp_path: Path) -> None:
    (tmp_path / "models/echo/1").mkdir(parents=True)
    (tmp_path / "models/echo/config.pbtxt").write_text(CONFIG)
    (tmp_path / "models/echo/1/model.py").write_text(MODEL)
    with Pod(tmp_path / "models", Options(ENVIRONMENT)) as pod:  # starts once HTTP and metrics answer at ::1
        with triton.InferenceServerClient(f"[::1]:{pod.ports.grpc}") as client:
            assert client.is_server_ready()
        assert not pod.answers("127.0.0.1", pod.ports.http, "/v2/health/ready"), "its HTTP servers take one family"
