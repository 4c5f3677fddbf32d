"""What a service's status is made from."""

from collections.abc import Sequence
from dataclasses import dataclass

from tandem.api.types import SpeculativeInferenceService
from tandem.conditions.benchmark import Benchmark
from tandem.conditions.writes import Reading
from tandem.errors import Forbidden, Refused
from tandem.rollout.decide import Decision
from tandem.rollout.observed import Observed


@dataclass(frozen=True)
class Contested:
    """A child into which somebody writes again and again what does not belong there; it is left so for a while."""

    kind: str
    name: str
    times: int
    """How often that was reverted."""
    written: str
    """By whom, and what; empty where no other field manager wrote it, as an admission webhook is none."""


@dataclass(frozen=True)
class Situation:
    """All that one reconcile knows of a service when it writes the status."""

    service: SpeculativeInferenceService
    """The spec, and the status as it stands."""
    decision: Decision
    observed: Observed
    now: str
    """RFC 3339."""
    refused: Refused | None = None
    """What the API server refused of the plan."""
    scaling_refused: Refused | None = None
    """What the API server refused of the autoscaler: it does not keep a service from being Ready."""
    routing_refused: Refused | None = None
    """What the API server refused of the route and its pool: likewise."""
    contested: Sequence[Contested] = ()
    """Children that are left as others want them."""
    missing_rights: Sequence[Forbidden] = ()
    """Rights that the operator lacks for this service."""
    reading: Reading | None = None
    """The metrics server's report; None where no metrics server is set up."""
    benchmark: Benchmark | None = None
    """What `tandem bench --record` measured."""
