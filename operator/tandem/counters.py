"""Prometheus metrics of the operator itself."""

from prometheus_client import Counter, Gauge, Histogram

from tandem.api import KIND

RECONCILE_SECONDS = Histogram(
    "tandem_operator_reconcile_seconds",
    "Time of one reconcile",
    ["result"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
API_REQUESTS = Counter(
    "tandem_operator_api_requests_total",
    "Requests to the Kubernetes API, watches not counted",
    ["method", "code"],
)
FORBIDDEN = Counter(
    "tandem_operator_forbidden_total", "Requests for which the Kubernetes API grants no right", ["verb", "resource"]
)
LOOP_LAG_SECONDS = Histogram(
    "tandem_operator_loop_lag_seconds",
    "How late the event loop is, sampled every 0.1 s: what blocks it keeps every request waiting",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5),
)
QUEUE_DEPTH = Gauge("tandem_operator_queue_depth", "Services that wait for a reconcile")
LEADER = Gauge("tandem_operator_leader", "1 while this process holds the Lease")
WATCH_RESTARTS = Counter("tandem_operator_watch_restarts_total", "Times that the watches were started again")
MISSED_EVENTS = Counter(
    "tandem_operator_missed_events_total", "Changes that the resync noticed and no watch had reported"
)
ENGINE_FAILURES = Counter(
    "tandem_engine_failures_total",
    "Servers that ended because an engine failed, counted by the operator that saw it first",
    ["namespace", KIND.lower(), "reason"],
)
SERVED = Counter("tandem_metrics_requests_total", "Requests that the metrics server answered", ["code"])
ROUND_SECONDS = Histogram(
    "tandem_metrics_round_seconds",
    "Time to read all pods once and to make the reports",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16),
)
PODS = Gauge("tandem_metrics_pods", "Ready server pods, by whether they report metrics", ["reporting"])
CERTIFICATE_EXPIRY = Gauge(
    "tandem_metrics_certificate_expiry_timestamp_seconds", "When the metrics server's certificate ends, Unix seconds"
)
