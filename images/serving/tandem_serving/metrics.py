"""Metric families and their counting. A metric never costs a request: hot paths only add to numbers in
memory, a background thread hands the differences to the server, and a failure there is logged once.

Gauges are sent as differences too, so that several instances of the model add up; but of the draft length the
latest counts, whoever tells it. Families and their labels follow the names of vLLM's and TensorRT-LLM's speculation
metrics; ratios are left to PromQL.

Histograms are sent as their `_bucket`, `_sum` and `_count` series, each a counter of the server's: its own
histograms take one observation a call, a round trip of about 0.1 ms for every token.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Protocol

log = logging.getLogger("tandem.metrics")

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)  # keys of what is counted at every step: looked up by identity
class Family:
    """A metric family: `kind` is "counter", "gauge" or "histogram" (with upper bounds `buckets`). `series`: the
    labels of a counter that are known before it counts."""

    name: str
    kind: str
    help: str
    buckets: tuple[float, ...] = ()
    series: tuple[Labels, ...] = ((),)


def of_engine(role: str, call: str = "request") -> Labels:
    """Labels of a call of the target or the draft engine, a request's or the canary."""
    return ("call", call), ("engine", role)


_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

DRAFTS = Family("tandem_spec_decode_num_drafts_total", "counter", "Draft-and-verify rounds")
DRAFT_TOKENS = Family("tandem_spec_decode_num_draft_tokens_total", "counter", "Tokens proposed by the draft")
ACCEPTED = Family("tandem_spec_decode_num_accepted_tokens_total", "counter", "Draft tokens accepted")
ACCEPTED_PER_POS = Family(
    "tandem_spec_decode_num_accepted_tokens_per_pos_total",
    "counter",
    "Draft tokens accepted, by their position in the draft (0 is the first)",
)
DRAFT_FAILURES = Family(
    "tandem_spec_decode_draft_failures_total",
    "counter",
    "Sequences that went on with the target alone, if only for a round, because the draft engine failed or was late",
)
PROBES = Family(
    "tandem_probe_sequences_total",
    "counter",
    "Sequences that ran without speculation to measure what it is worth, and times that all did for some tokens",
)
PROMPT_TOKENS = Family("tandem_prompt_tokens_total", "counter", "Prompt tokens of finished sequences")
GENERATION_TOKENS = Family("tandem_generation_tokens_total", "counter", "Tokens generated")
QUEUE_FULL: Labels = (("reason", "queue_full"),)
QUEUE_TIMEOUT: Labels = (("reason", "queue_timeout"),)
REFUSED = Family(
    "tandem_requests_refused_total",
    "counter",
    "Sequences that were refused for want of a place",
    series=(QUEUE_FULL, QUEUE_TIMEOUT),
)
ENDED_REQUEST: Labels = (("ended", "request"),)
ENDED_ALL: Labels = (("ended", "all"),)
ENDED_NONE: Labels = (("ended", "none"),)
FAULTS = Family(
    "tandem_faults_total",
    "counter",
    "Faults in the model's own code, by the requests that they ended: one, all that there were, or none",
    series=(ENDED_REQUEST, ENDED_ALL, ENDED_NONE),
)
ENGINE_CALL_FAILURES = Family(
    "tandem_engine_call_failures_total",
    "counter",
    "Engine calls that failed in the engine: of requests, and the canary that shows whether it works",
    series=tuple(of_engine(*which) for which in (("target",), ("draft",), ("target", "canary"))),
)
POISON = Family(
    "tandem_poison_requests_total",
    "counter",
    "Sequences that were refused, since the engine has ended twice while such a request ran",
)
PREEMPTIONS = Family(
    "tandem_engine_preemptions_total",
    "counter",
    "Requests that lost their place in the engine's KV cache to others, and began again",
)
DRAFT_LENGTH = Family("tandem_draft_length", "gauge", "Draft length of the latest round")
RUNNING = Family("tandem_requests_running", "gauge", "Sequences being generated")
WAITING = Family("tandem_requests_waiting", "gauge", "Sequences waiting for a place")
INTER_TOKEN = Family(
    "tandem_inter_token_latency_seconds", "histogram", "Between tokens: a step's time over its tokens", _SECONDS
)
PROBE_INTER_TOKEN = Family(
    "tandem_probe_inter_token_latency_seconds",
    "histogram",
    "The part of tandem_inter_token_latency_seconds that is of probes",
    _SECONDS,
)
FIRST_TOKEN = Family(
    "tandem_time_to_first_token_seconds", "histogram", "From a request's arrival to its first token", _SECONDS
)
LATENCY = Family(
    "tandem_request_latency_seconds", "histogram", "From a request's arrival to a sequence's end", _SECONDS
)
SPECULATION = (DRAFTS, DRAFT_TOKENS, ACCEPTED, DRAFT_FAILURES)
ALWAYS = (PROMPT_TOKENS, GENERATION_TOKENS, REFUSED, FAULTS, ENGINE_CALL_FAILURES, RUNNING, WAITING)
_POSITION = tuple((("position", str(position)),) for position in range(1024))


class SinkError(Exception):
    """The server refused a metric."""


class Sink(Protocol):
    """Where metrics go."""

    def add(self, family: Family, labels: Labels, value: float) -> None:
        """Add to a counter or gauge. Raises SinkError."""
        ...

    def set(self, family: Family, value: float) -> None:
        """Set a gauge, whatever others reported. Raises SinkError."""
        ...


class _Histogram:
    def __init__(self, family: Family) -> None:
        self._bounds = [f"{bound:g}" for bound in family.buckets] + ["+Inf"]
        self._series = [
            replace(family, name=f"{family.name}_{part}", kind="counter", buckets=())
            for part in ("bucket", "sum", "count")
        ]
        self.counts = [0] * len(self._bounds)
        self.sum = 0.0

    def series(self) -> dict[tuple[Family, Labels], float]:
        """Values of the family's `_bucket` (cumulative), `_sum` and `_count` series."""
        bucket, total, count = self._series
        counts = zip(self._bounds, accumulate(self.counts), strict=True)
        values: dict[tuple[Family, Labels], float] = {(bucket, (("le", bound),)): number for bound, number in counts}
        return values | {(total, ()): self.sum, (count, ()): sum(self.counts)}


@dataclass
class Metrics:
    """Counts in memory until `flush` sends the differences to the sink. Thread-safe.

    The counters of `started` are 0 from the start on, others absent until something is counted.
    """

    started: tuple[Family, ...] = ALWAYS + SPECULATION
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _values: dict[tuple[Family, Labels], float] = field(default_factory=lambda: defaultdict(float))
    _histograms: dict[Family, _Histogram] = field(default_factory=dict)
    _sent: dict[tuple[Family, Labels], float] = field(default_factory=dict)
    _latest: dict[Family, float] = field(default_factory=dict)
    _failed: bool = False

    def __post_init__(self) -> None:
        """Start the counters."""
        for family in self.started:
            for labels in family.series:
                self._values[family, labels] = 0

    def add(self, family: Family, value: float, labels: Labels = ()) -> None:
        """Add to a counter."""
        with self._lock:
            self._values[family, labels] += value

    def fault(self, ended: Labels = ENDED_NONE) -> None:
        """Count a fault in the model's own code."""
        self.add(FAULTS, 1, ended)

    def set(self, family: Family, value: float, labels: Labels = ()) -> None:
        """Set a gauge."""
        with self._lock:
            self._values[family, labels] = value

    def observe(self, family: Family, value: float, times: int = 1) -> None:
        """Add `times` equal observations to a histogram."""
        with self._lock:
            histogram = self._histograms.get(family)
            if histogram is None:
                histogram = self._histograms[family] = _Histogram(family)
            histogram.counts[bisect_left(family.buckets, value)] += times
            histogram.sum += value * times

    def step(self, tokens: int, drafted: int, accepted: int) -> None:
        """Count what a call of the target gave, and its draft-and-verify round if it was one."""
        with self._lock:
            self._values[GENERATION_TOKENS, ()] += tokens
            if not drafted:
                return
            self._values[DRAFTS, ()] += 1
            self._values[DRAFT_TOKENS, ()] += drafted
            self._values[ACCEPTED, ()] += accepted
            self._latest[DRAFT_LENGTH] = drafted
            for position in range(accepted):
                self._values[ACCEPTED_PER_POS, _POSITION[position]] += 1

    def rounds(self, rounds: int, drafted: int, accepted: Sequence[int]) -> None:
        """Count draft-and-verify rounds of an engine; `accepted`: tokens by their position in the draft."""
        with self._lock:
            self._values[DRAFTS, ()] += rounds
            self._values[DRAFT_TOKENS, ()] += drafted
            self._values[ACCEPTED, ()] += sum(accepted)
            for position, count in enumerate(accepted):
                self._values[ACCEPTED_PER_POS, _POSITION[position]] += count

    def flush(self, sink: Sink) -> None:
        """Send what changed. A sink that fails is logged once and tried again at the next flush."""
        with self._lock:
            values = dict(self._values)
            for histogram in self._histograms.values():
                values |= histogram.series()
            latest, self._latest = self._latest, {}
        try:
            for family, value in latest.items():
                sink.set(family, value)
            for (family, labels), value in values.items():
                if value != self._sent.get((family, labels)):
                    sink.add(family, labels, value - self._sent.get((family, labels), 0))
                    self._sent[family, labels] = value
        except SinkError as error:
            if not self._failed:
                log.warning("metrics cannot be reported: %s; requests are not affected", error)
            self._failed = True
