"""Metrics pages of simulated server pods: a closed loop of requests, shared by the pods that are read.

The cluster of these tests gives simulated pods addresses of 127.0.0.0/8, all of which this host answers: a page is a
pod's by the address that it was asked at.
"""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PORT = 8002
SEEN_SECONDS = 3.0
STEP_SECONDS = 0.05
"""Of a draft-and-verify round, whatever the batch: rounds of 2 draft tokens."""
TTFT = (0.05, 0.2, 1.0)


@dataclass
class Pod:
    """Counters of a pod."""

    seen: float
    tokens: float = 0.0
    rounds: float = 0.0
    accepted: float = 0.0


@dataclass
class Load:
    """What clients do, and what the draft is worth; a test changes it."""

    sequences: float = 0.0
    """Requests in flight over all pods."""
    acceptance: float = 0.8
    batch: int = 8
    """Sequences that a pod runs at once; the others wait."""
    cut: bool = False
    """Whether every pod answers with an error."""
    pods: dict[str, Pod] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def page(self, address: str) -> bytes:
        """The page of the pod at `address`, now."""
        with self.lock:
            now = time.time()
            pod = self.pods.setdefault(address, Pod(now))
            here = self.sequences / max(1, sum(now - other.seen < SEEN_SECONDS for other in self.pods.values()))
            running = min(here, self.batch)
            rounds = running * (now - pod.seen) / STEP_SECONDS
            pod.rounds += rounds
            pod.accepted += rounds * 2 * self.acceptance
            pod.tokens += rounds * (1 + 2 * self.acceptance)
            pod.seen = now
            return _page(pod, running, here - running).encode()


def _page(pod: Pod, running: float, waiting: float) -> str:
    label = 'model="speculative_bls",version="1"'
    counters = {
        "tandem_generation_tokens_total": pod.tokens,
        "tandem_spec_decode_num_drafts_total": pod.rounds,
        "tandem_spec_decode_num_draft_tokens_total": 2 * pod.rounds,
        "tandem_spec_decode_num_accepted_tokens_total": pod.accepted,
    }
    lines = [f"tandem_requests_running{{{label}}} {running}", f"tandem_requests_waiting{{{label}}} {waiting}"]
    for name, value in counters.items():
        lines += [f"# TYPE {name} counter", f"{name}{{{label}}} {value}"]
    lines.append("# TYPE tandem_inter_token_latency_seconds histogram")
    for bound in ("0.01", "0.05", "0.1", "+Inf"):
        count = pod.tokens if bound != "0.01" else 0
        lines.append(f'tandem_inter_token_latency_seconds_bucket{{{label},le="{bound}"}} {count}')
    lines.append(f"tandem_inter_token_latency_seconds_sum{{{label}}} {pod.rounds * STEP_SECONDS}")
    lines.append(f"tandem_inter_token_latency_seconds_count{{{label}}} {pod.tokens}")
    gauges = ["# TYPE tandem_requests_running gauge", "# TYPE tandem_requests_waiting gauge"]
    return "\n".join([*gauges, *lines]) + "\n"


@contextmanager
def serving(load: Load) -> Iterator[None]:
    """Answer at every address of this host while the context lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = self.connection.getsockname()[0]
            if load.cut:
                self.send_error(500)
                return
            body = load.page(address)
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: a test reads its own failures."""

    server = ThreadingHTTPServer(("0.0.0.0", PORT), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def loopback_stage(shipped: Path) -> str:
    """kwok's stage of starting pods, with addresses of 127.0.0.0/8 in place of 10.0.0.0/8."""
    text = (shipped / "pod-ready.yaml").read_text(encoding="utf-8")
    changed = text.replace("{{ index . 0 | Quote }}", '{{ index . 0 | replace "10." "127." | Quote }}')
    changed = changed.replace("- ip: {{ . | Quote }}", '- ip: {{ . | replace "10." "127." | Quote }}')
    assert changed != text
    return changed


def host_address() -> str:
    """An address of this host that is not loopback, at which the API server may call: it calls no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: it only chooses a route
        return str(probe.getsockname()[0])
