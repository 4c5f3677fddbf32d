"""Engines that failed lately, from the pods' status alone. Pure: the clock is an argument.

A server whose engine fails ends itself and writes why into its termination message; the kubelet starts it again and
keeps that message as the last state of the container, whether the operator runs or not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tandem.api.conditions import ConditionType, ExternalReason
from tandem.api.types import SpeculativeInferenceService
from tandem.conditions.finding import Finding
from tandem.rollout.observed import Observed
from tandem.rollout.termination import EngineFailure
from tandem.times import seconds

HEALTHY_SECONDS = 600.0
"""A container that runs for so long after the failure, and has generated, is well again. The kubelet, too, forgets by
then that it had to start it again."""


@dataclass(frozen=True)
class Failure:
    """One end of a server's container, by a failure of its engine."""

    run: str
    """Digest of the container that ended, as in `EngineEnd`."""
    pod: str
    at: str
    """When it ended, RFC 3339."""
    engine: EngineFailure
    well_since: str | None = None
    """When the container that runs in its place was started; None before a generation went through all models."""

    @property
    def description(self) -> str:
        """For people: what failed, where and when."""
        return f"pod {self.pod}, {self.at}: {self.engine.description}"

    def over(self, now: str) -> bool:
        """Whether the pod has been well for long enough."""
        return self.well_since is not None and seconds(self.well_since, now) >= HEALTHY_SECONDS


def failures(observed: Observed) -> list[Failure]:
    """The failures that the server pods still show, the newest first. Those of pods on their way out, too: a group of
    pods whose container restarts is deleted."""
    servers = [server for server in observed.servers if not (server.worker or server.ended)]
    found = [
        Failure(end.run, server.name, end.at, end.engine, server.well_since)
        for server in servers
        for end in server.engine_ends
    ]
    return sorted(found, key=lambda failure: failure.at, reverse=True)


def engine_health(service: SpeculativeInferenceService, shown: list[Failure], now: str) -> list[Finding]:
    """EngineHealthy, which is there only while it is False: from a failure on until its pod has been well for
    `HEALTHY_SECONDS`. `shown`: the failures of `failures`. After a pod that is gone the condition stays for as long.
    """
    kind = ConditionType.ENGINE_HEALTHY
    if recent := [failure for failure in shown if not failure.over(now)]:
        pods = {failure.pod for failure in recent}
        others = f"; and {len(pods) - 1} more of its pods" if len(pods) > 1 else ""
        return [Finding(kind, "False", recent[0].engine.reason, f"{recent[0].description}{others}")]
    before = next((c for c in service.status.conditions if c.type == kind), None)
    if before and not shown and seconds(before.last_transition_time, now) < HEALTHY_SECONDS:
        return [Finding(kind, before.status, ExternalReason(before.reason), before.message)]
    return []


def shows_failure(status: Mapping[str, Any]) -> bool:
    """Whether time may end a condition: this one, or that on pods whose containers failed."""
    ends = ConditionType.ENGINE_HEALTHY, ConditionType.PODS_HEALTHY
    return any(c["type"] in ends for c in status["conditions"])
