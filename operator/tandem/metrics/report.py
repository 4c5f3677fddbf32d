"""What `tandem metrics run` says about a service: read by the operator, by autoscalers and by people.

One JSON document a service, `GET /v1/services/{namespace}/{name}`, and all of them as `{"items": [...]}` at
`GET /v1/services`. Fields are absent where nothing is known.
"""

from typing import Literal

from pydantic import Field

from tandem.api.types import DraftLenStep
from tandem.api.wire import Wire

QUEUE_LENGTH = "queueLength"
"""The one objective that is no time."""
Signal = Literal["Demand", "InterTokenLatency", "TimeToFirstToken", "QueueLength", "KvCache", "Hold"]


class SpeculationReport(Wire):
    """What the drafts came to within the window."""

    acceptance_rate: float | None = None
    """Accepted share of the draft's tokens; None: nothing drafted, or the engine does not report it."""
    mean_accepted_length: float | None = None
    draft_length: float | None = None
    accepted_per_position: tuple[float, ...] = ()
    """Probability that the token at this position is accepted, given that those before it were."""
    asked_length: float | None = None
    """Draft tokens a step that the specification asks of every replica at its load: 0 above a schedule's last step.
    None: mode BLS, where pods and requests choose, or no traffic."""
    drafted: bool | None = None
    """Whether draft tokens were seen; None: no traffic, or the engine does not report it."""
    draft_failures: int = 0
    """Sequences that went on with the target alone because the draft engine failed or was too slow (mode BLS)."""
    samples: int = 0
    """Draft-and-verify rounds within the window."""


class RevisionReport(Wire):
    """What the drafts of one revision's pods came to within the window: during a rollout there are two."""

    revision: str
    """Digest."""
    speculation: SpeculationReport
    mean_prompt_tokens: float | None = None
    """Prompt tokens of a sequence that finished; None: none did."""

    @property
    def tokens(self) -> float:
        """Tokens that its draft-and-verify rounds gave."""
        return self.speculation.samples * (self.speculation.mean_accepted_length or 0.0)


class Latency(Wire):
    """Latencies within the window, seconds."""

    time_to_first_token_p50: float | None = None
    time_to_first_token_p95: float | None = None
    inter_token_latency_mean: float | None = None
    inter_token_latency_p95: float | None = None


class ScalingDecision(Wire):
    """How many replicas the load asks for, and why."""

    load: float | None = None
    """Replicas that would be exactly enough, not rounded, within minReplicas and maxReplicas: the metric
    `tandem_replicas_needed`. Where there are too few, more than an autoscaler's tolerance above those that are there.
    None: hold, nothing is known."""
    desired_replicas: int | None = None
    """`load` rounded up."""
    signal: Signal
    """What decided."""
    value: float | None = None
    """The signal's value ..."""
    target: float | None = None
    """... and what it is held against."""
    capacity_per_replica: float | None = None
    """Tokens a second that a replica can do within the objectives at the acceptance seen."""
    message: str
    """The decision in words, for the status."""
    unreachable: str = ""
    """Objectives that no number of replicas can keep (below the model's floor), in words; empty: none."""


class Worth(Wire):
    """Speculation against none, at the same load."""

    speedup: float | None = None
    """Tokens a second with speculation over those without; None: too little seen."""
    low: float | None = None
    """The speed-up lies between `low` ..."""
    high: float | None = None
    """... and `high` in 95 of 100 cases."""
    source: Literal["Model", "Probe", "Benchmark"] = "Model"
    """Model: from the fitted costs. Probe: measured on requests that ran without speculation. Benchmark: by
    `tandem bench --record`, which the operator reads; no report has it here (`benchmarked_speedup`)."""
    samples: int = 0
    """Rounds (Model), probes (Probe) or requests (Benchmark) behind it."""
    message: str = ""
    """How it is known, with its figures; or why it is not, without a figure that changes all the time."""

    @property
    def beneficial(self) -> bool | None:
        """Whether speculation makes the service faster; None: not known, or too close to decide."""
        if self.low is not None and self.low >= 1:
            return True
        return False if self.high is not None and self.high < 1 else None


class ScheduleAdvice(Wire):
    """A draft length schedule (mode LLMAPI) that would serve better; a person or git applies it."""

    draft_len_schedule: tuple[DraftLenStep, ...] = ()
    gain: float
    """Expected tokens a second, divided by those of today, e.g. 1.12."""
    message: str


class ServiceReport(Wire):
    """All that is known of a service."""

    namespace: str
    name: str
    uid: str = ""
    observed_at: str
    """RFC 3339."""
    window_seconds: float
    serving: tuple[str, ...] = ()
    """Digests of the revisions whose pods are Ready: what speculation and its worth are of. Several while one takes
    the other's place; none: no pod is Ready."""
    pods: int = 0
    """Ready pods that reported figures."""
    unknown: int = 0
    """Ready pods that reported none."""
    running: float | None = None
    waiting: float | None = None
    tokens_per_second: float | None = None
    speculation: SpeculationReport = Field(default_factory=SpeculationReport)
    min_accepted_length: float | None = None
    """`speculation.minAcceptedLength` of the specification."""
    revisions: tuple[RevisionReport, ...] = ()
    """With a minimum accepted length: what it is held against, by revision."""
    latency: Latency = Field(default_factory=Latency)
    decision: ScalingDecision | None = None
    """None where the service asks for no autoscaling."""
    worth: Worth = Field(default_factory=Worth)
    benchmarked_speedup: float | None = None
    """What status shows of a recorded benchmark while the traffic shows no `worth`, for alerts; None: nothing, or too
    close to decide. The operator wrote it there, and does not read it here."""
    advice: ScheduleAdvice | None = None
    objectives: dict[str, float] = Field(default_factory=dict)
    """What autoscaling is to keep, by the objective's name in the resource: times in seconds, queueLength in requests
    for each replica."""
    problems: tuple[str, ...] = ()
    """What was wrong with pods' metrics, one line a pod, bounded."""

    @property
    def blind(self) -> bool:
        """Whether there are Ready pods, and none reports figures."""
        return self.unknown > 0 and not self.pods


class Reports(Wire):
    """All services."""

    items: tuple[ServiceReport, ...] = ()
