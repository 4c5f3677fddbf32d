"""Where the server listens, by the pod's first address."""

import http.server
import socket
import threading
from collections.abc import Iterator

import pytest

from tandem_serving.addresses import POD_IP, loopback, server_options
from tandem_serving.boot.probe import ProbeError, generate
from tandem_serving.engine.metrics_page import page

IPV6 = ["--http-address=ipv6:::", "--grpc-address=[::]", "--metrics-address=ipv6:::"]


@pytest.mark.parametrize(
    ("address", "options", "inside", "reason"),
    [
        (None, [], "127.0.0.1", "a pod of an earlier version"),
        ("10.0.0.7", [], "127.0.0.1", "Triton's default is all of IPv4"),
        ("fd00::7", IPV6, "::1", "IPv6-only, or IPv6 first: its HTTP servers take one family"),
    ],
)
def test_where_it_listens(address: str | None, options: list[str], inside: str, reason: str) -> None:
    environment = {} if address is None else {POD_IP: address}
    assert server_options(environment) == options, reason
    assert loopback(environment) == inside, reason


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"page\n")

    def do_POST(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"text_output": "ab"}')

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(params=[socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv6"])
def port(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server that answers one family alone."""
    ipv6 = request.param == socket.AF_INET6
    if ipv6 and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")

    class Server(http.server.ThreadingHTTPServer):
        address_family = request.param

    server = Server(("::1" if ipv6 else "127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv(POD_IP, "fd00::7" if ipv6 else "10.0.0.7")
    yield int(server.server_address[1])
    server.shutdown()
    server.server_close()


def test_the_probe_and_the_drain_ask_there(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert generate(port, "tensorrt_llm_bls", 5.0) == "ab"
    assert page(port, 5.0) == "page\n"
    monkeypatch.setenv(POD_IP, "10.0.0.7" if loopback() == "::1" else "fd00::7")
    with pytest.raises(ProbeError):
        generate(port, "tensorrt_llm_bls", 5.0)
