"""A gateway that counts requests for which there is no pod: what sees demand at zero replicas."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Gateway:
    """A test changes what waits."""

    url: str = ""
    waiting: int = 0

    def trigger(self) -> dict[str, Any]:
        """KEDA's trigger on it: one replica for each 10 that wait."""
        metadata = {"url": self.url, "valueLocation": "waiting", "targetValue": "10"}
        return {"type": "metrics-api", "metadata": metadata}


@contextmanager
def serving() -> Iterator[Gateway]:
    """A gateway that answers while the context lasts."""
    gateway = Gateway()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"waiting": gateway.waiting}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: a test reads its own failures."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        gateway.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield gateway
        finally:
            server.shutdown()
