"""What the endpoint counts, and what of Triton's page the endpoint picker of an InferencePool reads.

The picker's names are vLLM's, which it takes by default:
https://github.com/kubernetes-sigs/gateway-api-inference-extension/tree/main/docs/proposals/003-model-server-protocol
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPException

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tandem_serving.engine.metrics_page import page
from tandem_serving.metrics import RUNNING, WAITING

PAGE_SECONDS = 1.0
EVENTS = "text/event-stream"
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
COUNTED = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models")
"""Others, which anybody may make up, are `other`."""
PROBED = ("/live", "/health", "/metrics")
"""By machines, all the time: not counted."""
QUEUED, ACTIVE = "vllm:num_requests_waiting", "vllm:num_requests_running"
KV_CACHE = "vllm:kv_cache_usage_perc"
PICKED: Mapping[str, str] = {
    QUEUED: "Sequences waiting for a place, of tandem_requests_waiting",
    ACTIVE: "Sequences being generated, of tandem_requests_running",
    KV_CACHE: "Share of the target engine's KV cache that sequences hold, 0 to 1",
}
_SAMPLE = re.compile(
    rf"^(?:({RUNNING.name}|{WAITING.name})(?:\{{[^\n]*\}})?"
    r'|(?:nv_trt_llm|tandem_engine)_kv_cache_block_metrics\{kv_cache_block_type="(max|used)"'
    r',model="tensorrt_llm(?:_engine)?",[^\n]*\})'
    r" (\S+)$",
    re.MULTILINE,
)


def picked(text: str) -> dict[str, float]:
    """Values of `PICKED` on a page of Triton's; what the engine does not report is absent."""
    found = dict[str, float]()
    for family, blocks, value in _SAMPLE.findall(text):
        found[family or blocks] = found.get(family or blocks, 0.0) + float(value)
    names = {QUEUED: WAITING.name, ACTIVE: RUNNING.name}
    values = {name: found[family] for name, family in names.items() if family in found}
    return values | ({KV_CACHE: found["used"] / found["max"]} if found.get("max") and "used" in found else {})


class _TritonPage(Collector):
    def __init__(self, port: int) -> None:
        self._port = port

    def collect(self) -> Iterator[GaugeMetricFamily]:
        try:
            text = page(self._port, PAGE_SECONDS)
        except (OSError, HTTPException):
            return  # Triton is not there yet
        for name, value in picked(text).items():
            yield GaugeMetricFamily(name, PICKED[name], value)


class Metrics:
    """Counts requests. `port`: of Triton's page."""

    def __init__(self, port: int) -> None:
        self._registry = registry = CollectorRegistry()
        registry.register(_TritonPage(port))
        self._requests = Counter(
            "tandem_openai_requests", "Requests that ended, by status", ["route", "status"], registry=registry
        )
        self._running = Gauge("tandem_openai_requests_running", "Requests that have not ended", registry=registry)
        self._first = Histogram(
            *("tandem_openai_time_to_first_token_seconds", "From a stream's request to its first event", ["route"]),
            buckets=SECONDS,
            registry=registry,
        )
        self._latency = Histogram(
            *("tandem_openai_request_latency_seconds", "From a request to the end of its answer", ["route"]),
            buckets=SECONDS,
            registry=registry,
        )

    def text(self) -> bytes:
        """The page, in Prometheus' text format; asks Triton, so it takes a while."""
        return generate_latest(self._registry)

    def counting(self, application: ASGIApp) -> ASGIApp:
        """`application`, with its requests counted."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["path"] in PROBED:
                return await application(scope, receive, send)
            seen = _Answer(send)
            with self._running.track_inprogress():
                try:
                    await application(scope, receive, seen.send)
                finally:
                    self._ended(_route(scope["path"]), seen)
            return None

        return counted

    def _ended(self, route: str, seen: _Answer) -> None:
        self._requests.labels(route, seen.status).inc()
        if seen.status != 200:
            return
        self._latency.labels(route).observe(time.monotonic() - seen.begun)
        if seen.first:
            self._first.labels(route).observe(seen.first - seen.begun)


def _route(path: str) -> str:
    return next((route for route in COUNTED if path == route or path.startswith(f"{route}/")), "other")


class _Answer:
    """What is sent. `first`: when a stream's first event was, 0: it is none, or has not come."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._streamed = False
        self.begun, self.first, self.status = time.monotonic(), 0.0, 500

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._streamed = any(
                name == b"content-type" and EVENTS.encode() in value for name, value in message["headers"]
            )
        elif self._streamed and not self.first and message.get("body"):
            self.first = time.monotonic()
        await self._send(message)
