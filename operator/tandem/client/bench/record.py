"""`tandem bench --record`: a result kept with the service; `tandem.conditions.benchmark` reads it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tandem import names
from tandem.api import GROUP, PLURAL
from tandem.api.wire import Object
from tandem.children.benchmark import benchmark_configmap
from tandem.client import kubectl
from tandem.client.bench.figures import Level, problem
from tandem.client.generate.cluster import read_service
from tandem.client.kubectl import ClusterError
from tandem.conditions.benchmark import BenchmarkRecord, RecordedLevel

FIELD_MANAGER = "tandem-bench"


@dataclass(frozen=True)
class ServedRevision:
    """A service whose pods are all of one revision."""

    service: Object
    revision: str

    @property
    def uid(self) -> str:
        """The service's."""
        return str(self.service["metadata"]["uid"])


async def serving(name: str, namespace: str | None) -> ServedRevision:
    """The service as it serves now. Raises ClusterError where not all that answer are of the wanted revision."""
    place = ["--namespace", namespace] if namespace else []
    found = await kubectl.get(f"{PLURAL}.{GROUP}", name, *place)
    read = read_service(found)
    if problem := read.problem or read.rollout:
        raise ClusterError(f"{name}: {problem}; a benchmark is recorded of a revision that is rolled out")
    return ServedRevision(found, str(found["status"]["currentRevision"]))


async def keep(measured: ServedRevision, levels: Sequence[Level], against: str) -> str:
    """Write the ConfigMap; returns what was done, in a line.

    Raises:
        ClusterError: the service changed meanwhile, or the ConfigMap cannot be written.
    """
    meta = measured.service["metadata"]
    now = await serving(meta["name"], meta["namespace"])
    if (now.uid, now.revision) != (measured.uid, measured.revision):
        raise ClusterError(
            f"not recorded: meanwhile it went from revision {measured.revision} to {now.revision}: measure again"
        )
    if reason := problem(levels):
        raise ClusterError(f"not recorded: {reason}")
    at = datetime.now(UTC).replace(microsecond=0)
    record = BenchmarkRecord(revision=now.revision, at=at, against=against, levels=recorded(levels))
    name = names.benchmark(meta["name"])
    await _refuse_others(name, meta["namespace"], measured.uid)
    text = record.model_dump_json(by_alias=True, indent=2)
    manifest = json.dumps(benchmark_configmap(measured.service, text))
    arguments = ("--server-side", f"--field-manager={FIELD_MANAGER}", "--force-conflicts", "--filename=-")
    await kubectl.kubectl("apply", *arguments, stdin=manifest)
    return f"recorded of revision {now.revision}: ConfigMap {meta['namespace']}/{name}"


def recorded(levels: Sequence[Level]) -> tuple[RecordedLevel, ...]:
    """The levels that have a verdict. Pure."""
    return tuple(
        RecordedLevel(
            streams=level.streams,
            speedup=round(level.speedup, 4),
            low=round(min(level.speedups), 4),
            high=round(max(level.speedups), 4),
            pairs=len(level.speedups),
            requests=level.speculative.requests + level.alone.requests,
        )
        for level in levels
        if level.speedup is not None and level.outcome is not None
    )


async def _refuse_others(name: str, namespace: str, uid: str) -> None:
    """Raises ClusterError where a ConfigMap of that name is not the service's own."""
    text = await kubectl.kubectl(
        "get", "configmap", name, "--namespace", namespace, "--ignore-not-found", "--output=json"
    )
    owners = kubectl.parsed(text)["metadata"].get("ownerReferences", []) if text.strip() else [{"uid": uid}]
    if not any(owner["uid"] == uid for owner in owners):
        raise ClusterError(f"not recorded: ConfigMap {namespace}/{name} belongs to another owner: remove it")
