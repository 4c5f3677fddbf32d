"""Figures in status on the real API server: what a change of them writes, and that without one nothing is written.

The metrics server is a stand-in that tells what the test says: what becomes of pods' pages is in test_metrics_server.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cluster.ports import free_port
from tandem.conditions.writes import SHOW_SECONDS

from .conftest import AuditLog, Namespace, OperatorProcess, wait_for

STATUS = "patch speculativeinferenceservices/status/svc"
QUIET: dict[str, Any] = {"tokensPerSecond": 0.0, "speculation": {}}


def busy(acceptance: float) -> dict[str, Any]:
    """A window with traffic."""
    drafted = {"meanAcceptedLength": 3.9, "draftLength": 4, "drafted": True, "samples": 900}
    return {"tokensPerSecond": 400.0, "speculation": {**drafted, "acceptanceRate": acceptance}}


@dataclass
class Reports:
    """What `/v1/services` tells: nothing before `told`. `polls` counts how often it was asked."""

    namespace: str
    port: int = field(default_factory=free_port)
    window: dict[str, Any] = field(default_factory=lambda: busy(0.75))
    told: bool = False
    polls: int = 0

    def body(self) -> bytes:
        """As `tandem metrics run` writes it, of now."""
        self.polls += 1
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        about = {"namespace": self.namespace, "name": "svc", "observedAt": now, "windowSeconds": 60, "pods": 1}
        return json.dumps({"items": [{**about, **self.window}] if self.told else []}).encode()


@pytest.fixture
def reports(namespace: Namespace) -> Iterator[Reports]:
    told = Reports(namespace.name)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = told.body()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Not in the test's output."""

    server = ThreadingHTTPServer(("127.0.0.1", told.port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield told
    server.shutdown()
    server.server_close()


def test_a_material_change_is_written_once_and_idle_services_never(
    operator_with: Callable[..., OperatorProcess],
    namespace: Namespace,
    reports: Reports,
    audit: Callable[[], AuditLog],
) -> None:
    operator = operator_with(reports={"url": f"http://127.0.0.1:{reports.port}", "pollSeconds": 0.2})
    namespace.apply()
    namespace.wait_settled()
    # Not before: how long a service takes to come up is not the matter.
    reports.told = True
    namespace.wait("SpeculationActive", "True/DraftTokensSeen")
    reported_at = time.monotonic()
    columns = namespace.run("get", "sis", "svc").splitlines()
    starts = {name: columns[0].index(name) for name in columns[0].split()}
    shown = {name: columns[1][start:].split(maxsplit=1)[0] for name, start in starts.items() if name != "SPEED-UP"}
    assert {name: shown[name] for name in ("TYPE", "READY", "ACCEPTANCE", "LENGTH")} == {
        **{"TYPE": "DraftTarget", "READY": "True"},
        **{"ACCEPTANCE": "0.75", "LENGTH": "3.9"},
    }

    def written(window: dict[str, Any], seconds: float) -> list[str]:
        """The operator's writes while this is told."""
        listening, polls = audit(), reports.polls
        reports.window = window
        time.sleep(seconds)
        wait_for("several looks", lambda: reports.polls > polls + seconds, log=operator.log)
        return [write for write in listening.operator_writes(namespace) if "events" not in write]

    def acceptance() -> float:
        return float(namespace.get("sis", "svc")["status"]["speculation"]["acceptanceRate"])

    assert written(busy(0.2), 3) == [], "once a minute at most"
    assert written(QUIET, SHOW_SECONDS + 3 - (time.monotonic() - reported_at)) == [], "no traffic: the figures stay"
    assert written(busy(0.755), 3) == [], "half a percentage point, seen anew all the time"
    assert acceptance() == 0.75
    listening = audit()
    reports.window = busy(0.2)
    wait_for("the collapse in status", lambda: acceptance() == 0.2, log=operator.log)
    assert [write for write in listening.operator_writes(namespace) if "events" not in write] == [STATUS]
