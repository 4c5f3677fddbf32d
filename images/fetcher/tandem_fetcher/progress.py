"""How far a fetch is: counted here, answered over HTTP, logged now and then.

    GET /progress → {"phase": "Fetching", "bytes": 1048576, "total": 7340032, "files": 3, "totalFiles": 9}

The pod has no rights at the API server, so whoever wants to know asks the pod.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_LOG = logging.getLogger(__name__)
LOG_EVERY = 10.0
"""Seconds between progress lines in the log."""


@dataclass
class Progress:
    """Thread-safe counters. Phases: Resolving, Waiting (another pod fetches the same), Fetching, Complete."""

    phase: str = "Resolving"
    done: int = 0
    total: int = 0
    files: int = 0
    total_files: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def start(self, total: int, files: int) -> None:
        """Begin to count the bytes of so many files."""
        with self._lock:
            self.phase, self.done, self.total, self.files, self.total_files = "Fetching", 0, total, 0, files

    def add(self, count: int) -> None:
        """Count bytes that are in the cache now; negative: thrown away."""
        with self._lock:
            self.done += count

    def file_done(self) -> None:
        """Count a whole file."""
        with self._lock:
            self.files += 1

    def as_json(self) -> dict[str, Any]:
        """Return what GET /progress answers."""
        with self._lock:
            return {
                "phase": self.phase,
                "bytes": self.done,
                "total": self.total,
                "files": self.files,
                "totalFiles": self.total_files,
            }


def serve(progress: Progress, port: int) -> int:
    """Answer GET /progress from a thread that ends with the process; return the port (0: a free one)."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/progress":
                self.send_error(HTTPStatus.NOT_FOUND, "ask for /progress")
                return
            body = json.dumps(progress.as_json()).encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Nobody reads who asked."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    server = Server(("", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True, name="progress").start()
    return int(server.server_address[1])


def log(progress: Progress) -> None:
    """Log a line every LOG_EVERY seconds from a thread that ends with the process, when there is something new."""

    def repeat() -> None:
        last, before = "", progress.done
        while True:
            time.sleep(LOG_EVERY)
            now = progress.done
            line = describe(progress)
            if line != last:
                _LOG.info("%s, %.1f MB/s", line, max(0, now - before) / LOG_EVERY / 1e6)
            last, before = line, now

    threading.Thread(target=repeat, daemon=True, name="progress-log").start()


def describe(progress: Progress) -> str:
    """Return the progress for people, in powers of 1000."""
    seen = progress.as_json()
    if not seen["total"]:
        return str(seen["phase"])
    share = 100 * seen["bytes"] // seen["total"]
    sizes = f"{seen['bytes'] / 1e6:.1f} of {seen['total'] / 1e6:.1f} MB ({share}%)"
    return f"{seen['phase']}: {sizes}, {seen['files']} of {seen['totalFiles']} files"
