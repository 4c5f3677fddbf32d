"""The variables by which a Job names private authorities (`jobs.caConfigMap`) reach the fetcher's clients."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import obstore
import pytest
from obstore.exceptions import BaseError
from obstore.store import S3Store

from tandem.children.job_pod import CA_VARIABLES
from tandem.metrics_server.certificates import renewed, utc_now


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[str]:
    """A server whose certificate is of a private authority, which is in `ca.crt`."""
    certificate = renewed(None, ["localhost"], utc_now())
    assert certificate
    (tmp_path / "ca.crt").write_bytes(certificate.authorities)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.socket = certificate.context("").wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://localhost:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def fetched(scheme: str, url: str) -> bytes:
    if scheme == "hf":
        return httpx2.get(f"{url}/x").content
    store = S3Store("b", endpoint=url, access_key_id="a", secret_access_key="b", region="r")
    return bytes(obstore.get(store, "x").bytes())


@pytest.mark.parametrize("scheme", ["hf", "s3"])
def test_a_mirror_with_a_certificate_of_ones_own(
    scheme: str, mirror: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in CA_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises((httpx2.ConnectError, BaseError)):
        fetched(scheme, mirror)
    for name in CA_VARIABLES:
        monkeypatch.setenv(name, str(tmp_path / "ca.crt"))
    assert fetched(scheme, mirror) == b"ok"
