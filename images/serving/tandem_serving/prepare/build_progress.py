"""How far the build of an engine is: read from what the tools write, answered over HTTP.

    GET /progress → {"phase": "Building", "rank": 3, "ranks": 8, "layer": 0, "layers": 80, "seconds": 840, "line": ""}

The pod has no rights at the API server, so whoever wants to know asks the pod, as one that downloads. `rank` is the
one that is being written, from 1 on, by the files that are there; `layer` is the one that the tool's output named
last, 0 where it names none.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PORT = 8080
"""`tandem.api.ports.FETCH`."""
WAITING, CONVERTING, BUILDING = "Waiting", "Converting", "Building"
PHASES = {"convert_checkpoint.py": (CONVERTING, "checkpoint/rank*.safetensors")}
"""By the tool: the phase, and the files of which it writes one a rank."""
BUILD = (BUILDING, "engine/rank*.engine")
LINE = 200
"""Characters that are shown of the last line."""
# `model.layers.12.`, `layer 12`; and tqdm's `12/80 [`.
_LAYER = re.compile(r"\blayers?[ ._]?(\d{1,4})\b")
_COUNT = re.compile(r"\b(\d{1,4})/(\d{1,4}) \[")


@dataclass
class BuildProgress:
    """Of one engine. Thread-safe: each field is written by one thread, and read as it is."""

    partial: Path
    """Where the tools write."""
    ranks: int = 1
    layers: int = 0
    """0: not known."""
    clock: Callable[[], float] = time.monotonic
    phase: str = WAITING
    layer: int = 0
    line: str = ""
    _files: str = ""
    _began: float = field(default=-1.0)

    def start(self, tool: str) -> None:
        """A tool begins."""
        self.phase, self._files = PHASES.get(tool, BUILD)
        self.layer, self.line = 0, ""
        if self._began < 0:
            self._began = self.clock()

    def read(self, line: str) -> None:
        """A line of its output. One layer less than all is counted where the output counts from 0."""
        if text := line.strip():
            self.line = text[:LINE]
        if found := _LAYER.search(line):
            self.layer = min(int(found[1]) + 1, self.layers or int(found[1]) + 1)
        elif (count := _COUNT.search(line)) and int(count[2]) == self.layers:
            self.layer = int(count[1])

    def as_json(self) -> dict[str, str | int]:
        """What GET /progress answers."""
        done = len(list(self.partial.glob(self._files))) if self._files else 0
        return {
            "phase": self.phase,
            "rank": min(done + 1, self.ranks),
            "ranks": self.ranks,
            "layer": self.layer,
            "layers": self.layers,
            "seconds": round(self.clock() - self._began) if self._began >= 0 else 0,
            "line": self.line,
        }


def serve(progress: BuildProgress, port: int = PORT) -> int:
    """Answer from a thread that ends with the process; the port (0: a free one), or 0 where none can be had: a build
    does not end for that."""

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

    try:
        server = Server(("", port), Handler)
    except OSError as error:
        print(f"port {port} cannot be listened on ({error.strerror}): no progress is shown", flush=True)
        return 0
    threading.Thread(target=server.serve_forever, daemon=True, name="progress").start()
    return int(server.server_address[1])
