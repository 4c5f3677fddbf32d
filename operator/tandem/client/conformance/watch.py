"""What the server pods show while cases run: sequences, memory, restarts, counters of faults."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tandem.api.wire import Object
from tandem.client.conformance import facts
from tandem.client.conformance.cluster import Cluster
from tandem.client.conformance.results import CaseResult, of_problems
from tandem.errors import TandemError

RUNNING = ("tandem_requests_running", "tandem_requests_waiting")
FAULTS = ("tandem_faults_total", "tandem_engine_call_failures_total")
"""Counters that stay where they are on a healthy service."""
MEMORY = {"nodeMemory": "nv_cpu_memory_used_bytes", "gpuMemory": "nv_gpu_memory_used_bytes"}
"""Triton's own gauges, bytes: of the whole node, and of the GPUs that the pod sees."""
DRAFT_FAILURES = "tandem_spec_decode_draft_failures_total"
READ = (*RUNNING, *FAULTS, *MEMORY.values(), DRAFT_FAILURES)

Values = Mapping[str, float]


def sums(page: str) -> dict[str, float]:
    """The series of a metrics page that are read here, summed up over their labels. Pure."""
    found: dict[str, float] = {}
    with contextlib.suppress(ValueError):  # what is no page has no series
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                if sample.name in READ:
                    found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


@dataclass(frozen=True)
class Moment:
    """Restarts of each pod by its UID, sums over all pods' pages (None: not read, because of `error`), and how
    containers ended that started again: exit code and reason."""

    restarts: Mapping[str, int]
    values: Values | None
    ended: Sequence[str] = ()
    error: TandemError | None = None


async def moment(cluster: Cluster, service: Object) -> Moment:
    """Look at the pods now. Raises TandemError: they cannot be listed."""
    pods = await cluster.pods(service)
    restarts = {
        pod["metadata"]["uid"]: sum(each.get("restartCount", 0) for each in facts.containers(pod)) for pod in pods
    }
    try:
        pages = await asyncio.gather(*(cluster.page(pod) for pod in pods))
    except TandemError as error:
        return Moment(restarts, None, _ended(pods), error)
    values: dict[str, float] = {}
    for page in map(sums, pages):
        for name, value in page.items():
            values[name] = values.get(name, 0.0) + value
    return Moment(restarts, values, _ended(pods))


def _ended(pods: Sequence[Object]) -> list[str]:
    found = [each.get("lastState", {}).get("terminated") for pod in pods for each in facts.containers(pod)]
    return [f"exit code {each['exitCode']} ({each.get('reason', '')})" for each in found if each]


@dataclass
class Watch:
    """The moments of a run, the first before its first case."""

    cluster: Cluster
    service: Object
    moments: list[Moment] = field(default_factory=list)

    async def look(self) -> None:
        """Add this moment."""
        self.moments.append(await moment(self.cluster, self.service))

    async def running(self) -> float | None:
        """Sequences that run or wait now; see `subject.Running`."""
        now = await moment(self.cluster, self.service)
        return None if now.values is None else sum(now.values.get(name, 0.0) for name in RUNNING)


def health(moments: Sequence[Moment]) -> CaseResult:
    """Whether pods, containers and counters of faults are as they were; memory as it came. Pure."""
    first, last = moments[0], moments[-1]
    problems: list[dict[str, Any]] = []
    if first.restarts.keys() - last.restarts.keys():
        problems.append({"problem": "server pods are gone"})
    elif any(last.restarts[pod] > count for pod, count in first.restarts.items()):
        how = ", ".join(last.ended) or "no reason is known"
        problems.append({"problem": f"containers started again: {how}"})
    if first.values is None or last.values is None:
        return of_problems("health", problems, "of restarts alone: metrics were not read")
    for name in FAULTS:
        grown = last.values.get(name, 0.0) - first.values.get(name, 0.0)
        if grown > 0:
            problems.append({"problem": f"{name} grew by {grown:.0f}"})
    return of_problems("health", problems, "of restarts and counters of faults", **_figures(moments))


def _figures(moments: Sequence[Moment]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    pages = [each.values for each in moments if each.values is not None]
    for fact, name in MEMORY.items():
        series = [page[name] for page in pages if name in page]
        if series:
            found |= {f"{fact}First": series[0], f"{fact}Most": max(series), f"{fact}Last": series[-1]}
    failures = [page.get(DRAFT_FAILURES, 0.0) for page in pages]
    return {**found, "draftFailures": failures[-1] - failures[0]}
