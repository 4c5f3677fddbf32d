"""How the tests' reader of the cluster's objects takes answers of an API server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.reader import Reader

pytestmark = pytest.mark.nightly

ROLES = {
    "items": [
        {
            "metadata": {"name": "example.com"},
            "versions": [
                {
                    "version": "v1",
                    "resources": [
                        {"resource": "roles", "responseKind": {"kind": "Role"}, "scope": "Namespaced"},
                    ],
                }
            ],
        }
    ]
}


@pytest.fixture
def refusals() -> list[int]:
    """Statuses with which the next requests for objects are answered, first of all the last."""
    return []


@pytest.fixture
def reader(refusals: list[int], tmp_path: Path) -> Iterator[Reader]:
    class Server(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            discovery = self.path in ("/api", "/apis")
            status = 200 if discovery or not refusals else refusals.pop()
            body = json.dumps(ROLES if self.path == "/apis" else {"items": []}).encode()
            self.send_response(status)
            if status == 429:
                self.send_header("Retry-After", "0")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Reader(f"http://127.0.0.1:{server.server_address[1]}", tmp_path)
    server.shutdown()
    server.server_close()


PASSING = [
    ([429, 429, 429], "the storage of a new definition is not there yet"),
    ([504, 500], "the API server waits for its storage"),
]


@pytest.mark.parametrize(("statuses", "reason"), PASSING, ids=[row[1] for row in PASSING])
def test_asks_again_where_that_passes(reader: Reader, refusals: list[int], statuses: list[int], reason: str) -> None:
    refusals += statuses
    assert reader.items("roles") == []
    assert not refusals, reason


def test_an_error_is_told_at_once(reader: Reader, refusals: list[int]) -> None:
    refusals += [403, 403]
    with pytest.raises(ClusterError, match="403"):
        reader.items("roles")
    assert refusals == [403]
