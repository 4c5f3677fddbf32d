"""Figures of one service over one window, from the metric families that its pods publish on :8002.

The families are those of `tandem_serving.metrics` (docs/reference/bls.md, "Metrics"). What no pod reported is None,
never 0.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Histogram:
    """Observations within a window: `counts[i]` of them at most `bounds[i]` seconds and above the bound before.

    The last bound is infinity. `total` is their sum in seconds.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float

    @property
    def count(self) -> float:
        """Number of observations."""
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        """Seconds; None without observations."""
        return self.total / self.count if self.count > 0 else None

    def quantile(self, q: float) -> float | None:
        """The q-quantile (0 to 1) in seconds, linear within its bucket as PromQL's histogram_quantile; None without
        observations.

        Source: https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile
        """
        if self.count <= 0:
            return None
        rank, below, lower = q * self.count, 0.0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if below + count >= rank and count > 0:
                return lower if bound == float("inf") else lower + (bound - lower) * (rank - below) / count
            below, lower = below + count, bound
        return lower


@dataclass(frozen=True)
class PodFigures:
    """What one pod did within the window; rates are per second, gauges means over the window's scrapes."""

    seconds: float
    """Length of the window as this pod covers it; a pod that is younger covers less."""
    running: float | None = None
    """Sequences being generated."""
    waiting: float | None = None
    """Sequences waiting for a place."""
    refused: float | None = None
    """Sequences that were refused for want of a place in the window: the line was full, or they waited too long."""
    prompt_tokens: float | None = None
    """Prompt tokens of finished sequences, within the window."""
    generation_tokens: float | None = None
    """Tokens generated within the window."""
    rounds: float | None = None
    """Draft-and-verify rounds of single sequences within the window."""
    draft_tokens: float | None = None
    """Tokens that the draft proposed; None where the engine reports none, as TensorRT-LLM 1.2's PyTorch flow."""
    accepted_tokens: float | None = None
    """Of them, those that the target accepted."""
    accepted_per_position: tuple[float, ...] = ()
    """Accepted tokens by their position in the draft; empty where it is not reported."""
    draft_failures: float | None = None
    """Sequences that went on with the target alone because the draft failed."""
    time_to_first_token: Histogram | None = None
    inter_token_latency: Histogram | None = None
    """One observation a token; its total is the time of all steps, its count the tokens."""
    request_latency: Histogram | None = None
    """Of finished sequences."""
    probe_latency: Histogram | None = None
    """The part of `inter_token_latency` that is of probes: sequences that ran without a draft only to show what that
    takes, or times that all did."""
    probe_sequences: float | None = None
    """Probes: such sequences that finished, and such times that began."""
    kv_blocks: float | None = None
    """Blocks of the target engine's KV cache; None where the engine does not report it, as the three."""
    kv_blocks_used: float | None = None
    """Of them, those that its requests hold."""
    engine_requests: float | None = None
    """Requests in the target's engine: in mode BLS a round is one."""
    stuck: bool = False
    """Whether sequences ran at every look of a whole window, and no token was made: its engine hangs, or what counts
    of it does, while Triton is Ready and answers the page as it was."""


@dataclass(frozen=True)
class Figures:
    """What a service's pods did within a window."""

    at: float
    """End of the window, Unix seconds."""
    pods: tuple[PodFigures, ...] = ()
    """Pods that are Ready and whose metrics were read at least twice within the window."""
    unknown: int = 0
    """Pods that are Ready and reported nothing usable: unreachable, too young, stuck, or a page that is none."""
    stuck: frozenset[str] = frozenset()
    """Of these, the stuck ones, by uid: they would else look idle, and take their replicas away."""

    def sum(self, name: str) -> float | None:
        """Sum of a field of the pods that reported it; None where none did."""
        reported = [value for pod in self.pods if (value := getattr(pod, name)) is not None]
        return sum(reported) if reported else None

    def rate(self, name: str) -> float | None:
        """Sum over the pods of a count's rate, per second; None where none reported it."""
        rates = [v / pod.seconds for pod in self.pods if (v := getattr(pod, name)) is not None and pod.seconds > 0]
        return sum(rates) if rates else None

    def histogram(self, name: str) -> Histogram | None:
        """The pods' histogram; None where none reported it. Pods of other bounds than most are left out."""
        reported: list[Histogram] = [value for pod in self.pods if (value := getattr(pod, name)) is not None]
        if not reported:
            return None
        ((bounds, _),) = Counter(histogram.bounds for histogram in reported).most_common(1)
        same = [histogram for histogram in reported if histogram.bounds == bounds]
        counts = tuple(map(sum, zip(*(h.counts for h in same), strict=True)))
        return Histogram(bounds, counts, sum(h.total for h in same))

    @property
    def accepted_per_position(self) -> tuple[float, ...]:
        """Accepted tokens by position, all pods together."""
        longest = max((len(pod.accepted_per_position) for pod in self.pods), default=0)
        return tuple(sum(_at(pod.accepted_per_position, i) for pod in self.pods) for i in range(longest))

    @property
    def acceptance_rate(self) -> float | None:
        """Share of the draft's tokens that were accepted; None where nothing was drafted, or no engine reports it."""
        share = self._ratio("accepted_tokens", "draft_tokens")
        return None if share is None else min(1.0, share)  # a scrape may come between two counters of one round

    @property
    def mean_accepted_length(self) -> float | None:
        """Tokens a draft-and-verify round gave on average, the target's own included; None without rounds."""
        accepted = self._ratio("accepted_tokens", "rounds")
        return None if accepted is None else 1 + accepted

    @property
    def draft_length(self) -> float | None:
        """Tokens drafted a round on average; None without rounds, or where no engine reports them."""
        return self._ratio("draft_tokens", "rounds")

    def _ratio(self, name: str, to: str) -> float | None:
        """One count over another, of the pods that report both: during a rollout not all may."""
        pairs = [(getattr(pod, name), getattr(pod, to)) for pod in self.pods]
        both = [(above, below) for above, below in pairs if above is not None and below is not None]
        below = sum(below for _, below in both)
        return sum(above for above, _ in both) / below if below else None


def _at(values: Sequence[float], index: int) -> float:
    return values[index] if index < len(values) else 0.0


@dataclass(frozen=True)
class Replicas:
    """Replicas of a service as Kubernetes counts them."""

    ready: int
    """Pods (leaders where a replica is a group) that answer Triton's readiness."""
    pending: int = 0
    """Pods that exist and are not Ready yet: capacity that is on its way."""
    wanted: int = field(default=0)
    """spec.replicas."""
    start_seconds: float | None = None
    """What a replica took lately from its creation until it was Ready; None: not known."""

    @property
    def current(self) -> int:
        """Those that serve or are on their way, as the autoscaler counts them: at most those that are wanted. What a
        rollout adds (rollout.strategy Surge) takes the place of another."""
        there = self.ready + self.pending
        return min(there, self.wanted) if self.wanted else there

    @property
    def none(self) -> bool:
        """Whether there are none and shall be none."""
        return not (self.ready or self.pending or self.wanted)
