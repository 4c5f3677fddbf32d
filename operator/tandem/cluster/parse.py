"""Manifests of a service's children, parsed once into the values that everything else reads."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from pydantic import ValidationError

from tandem import names
from tandem.api.wire import Object
from tandem.children.task import VERDICT_KEY
from tandem.cluster import pods as read_pod
from tandem.cluster.kinds import (
    AUTOSCALERS,
    CONFIGMAP,
    DEPLOYMENT,
    JOB,
    LEADER_WORKER_SET,
    NETWORK_POLICY,
    POD,
    ROUTING,
)
from tandem.cluster.manifests import condition, created, is_true, job_uid, label, uid
from tandem.render import RECORD_FILE, RENDERERS, Record
from tandem.rollout.observed import (
    Autoscaler,
    CacheClaim,
    ChildCondition,
    Job,
    Live,
    Observed,
    Problem,
    Routing,
    StoredRevision,
    TaskPod,
    TaskResult,
    Workload,
)
from tandem.rollout.verdict import parse_verdict

TASK_RESULTS = {names.result(component): component for component in names.TASKS}
SERVERS = (names.SERVER, names.WORKER)
TYPED = (CONFIGMAP, JOB, DEPLOYMENT, LEADER_WORKER_SET, *AUTOSCALERS, *ROUTING, NETWORK_POLICY, POD)
"""Kinds that decisions look into."""


def parse(
    service: str, objects: Mapping[str, Sequence[Object]], waits_for: Mapping[str, Problem] = MappingProxyType({})
) -> Observed:
    """The children of the service of that name; `objects`: manifests by kind. `waits_for`: see `waits`."""
    of = {kind: objects.get(kind.kind, ()) for kind in TYPED}
    typed = {kind.kind for kind in TYPED}
    others = [each for kind, manifests in objects.items() if kind not in typed for each in manifests]
    return Observed(
        revisions=revisions(of[CONFIGMAP]),
        results=results(of[CONFIGMAP]),
        jobs=_jobs(of[JOB], of[POD], waits_for),
        servers=[
            read_pod.server(pod, waits_for.get(uid(pod)))
            for pod in of[POD]
            if label(pod, names.LABEL_COMPONENT) in SERVERS
        ],
        workloads=[_workload(each) for each in sorted([*of[DEPLOYMENT], *of[LEADER_WORKER_SET]], key=created)],
        autoscalers=[_autoscaler(each) for kind in AUTOSCALERS for each in of[kind]],
        routing=[_routing(each) for kind in ROUTING for each in of[kind]],
        network_policies=[live(each) for each in of[NETWORK_POLICY]],
        others=[live(each) for each in others],
        benchmark=_benchmark(of[CONFIGMAP], names.benchmark(service)),
        gone=read_pod.gone(of[POD]),
    )


def live(obj: Object) -> Live:
    """The handle of an object."""
    return Live(str(obj["kind"]), str(obj["metadata"]["name"]), created(obj), obj)


def revisions(configmaps: Iterable[Object]) -> list[StoredRevision]:
    """The revisions among ConfigMaps, the newest first."""
    stored = [each for each in configmaps if label(each, names.LABEL_COMPONENT) == names.REVISION]
    return [
        StoredRevision(live(each), label(each, names.LABEL_REVISION), _record(each)) for each in _newest_first(stored)
    ]


def results(configmaps: Iterable[Object]) -> list[TaskResult]:
    """The results of tasks among ConfigMaps, the newest first."""
    kept = [each for each in configmaps if label(each, names.LABEL_COMPONENT) in TASK_RESULTS]
    return [
        TaskResult(
            live(each),
            component=TASK_RESULTS[label(each, names.LABEL_COMPONENT)],
            verdict=parse_verdict(each.get("data", {}).get(VERDICT_KEY, "")),
            claim=label(each, names.LABEL_CLAIM),
            refill=label(each, names.LABEL_REFILL) == "true",
        )
        for each in _newest_first(kept)
    ]


def claim(obj: Object) -> CacheClaim:
    """The cache volume's claim."""
    return CacheClaim(
        uid=uid(obj),
        created=created(obj),
        access_modes=tuple(obj.get("spec", {}).get("accessModes", ())),
        made_by_us=label(obj, names.LABEL_MANAGED_BY) == names.FIELD_MANAGER,
        deleting="deletionTimestamp" in obj["metadata"],
    )


def _newest_first(configmaps: Iterable[Object]) -> list[Object]:
    return sorted(configmaps, key=lambda each: (created(each), str(each["metadata"]["name"])), reverse=True)


def _record(configmap: Object) -> Record | None:
    try:
        record = Record.model_validate_json(configmap.get("data", {}).get(RECORD_FILE, ""))
    except ValidationError:
        return None
    return record if record.renderer in RENDERERS and record.engine.runs else None


def _jobs(jobs: Iterable[Object], pods: Iterable[Object], waits_for: Mapping[str, Problem]) -> list[Job]:
    # By uid: a Job that was deleted, to try again, leaves its pods for a while.
    by_job: dict[str, list[TaskPod]] = {}
    for pod in sorted(pods, key=created):
        if owner := job_uid(pod):
            by_job.setdefault(owner, []).append(read_pod.task_pod(pod, waits_for.get(uid(pod))))
    return [_job(job, by_job.get(uid(job), []), waits_for.get(uid(job))) for job in jobs]


def _job(job: Object, pods: Sequence[TaskPod], problem: Problem | None) -> Job:
    return Job(
        live(job),
        pod_digest=label(job, names.LABEL_POD),
        claim=label(job, names.LABEL_CLAIM),
        refill=label(job, names.LABEL_REFILL) == "true",
        complete=is_true(job, "Complete"),
        failed=is_true(job, "Failed"),
        failure=str((condition(job, "Failed") or {}).get("message", "")),
        pods=pods,
        problem=problem,
    )


def _workload(obj: Object) -> Workload:
    spec, failure = obj["spec"], condition(obj, "ReplicaFailure")
    template = spec.get("template") or spec["leaderWorkerTemplate"]["leaderTemplate"]
    return Workload(
        live(obj),
        revision=str(template["metadata"].get("labels", {}).get(names.LABEL_REVISION, "")),
        applied=_applied(obj),
        current=_current(obj),
        failure=str(failure.get("message", "")) if failure and failure["status"] == "True" else None,
    )


def _applied(obj: Object) -> str:
    for entry in obj["metadata"].get("managedFields", []):
        ours = entry.get("manager") == names.FIELD_MANAGER and entry.get("operation") == "Apply"
        if ours and not entry.get("subresource"):
            return str(entry["time"])
    return ""


def _current(obj: Object) -> bool:
    acted_on = obj.get("status", {}).get("observedGeneration")
    # Before 0.9 a LeaderWorkerSet's status does not say which generation it is of.
    unsaid = acted_on is None and obj["kind"] == LEADER_WORKER_SET.kind
    return unsaid or bool(acted_on == obj["metadata"].get("generation", 0))


def _autoscaler(obj: Object) -> Autoscaler:
    conditions = obj.get("status", {}).get("conditions", [])
    return Autoscaler(
        live(obj),
        [ChildCondition(c["type"], c["status"], c.get("reason", ""), c.get("message", "")) for c in conditions],
    )


def _routing(obj: Object) -> Routing:
    """With the conditions that are of the object as it is, each with its parent's name."""
    generation = obj["metadata"].get("generation", 0)
    parents = obj.get("status", {}).get("parents", [])
    return Routing(
        live(obj),
        [
            ChildCondition(
                c["type"],
                c["status"],
                c.get("reason", ""),
                f"{obj['kind']} {obj['metadata']['name']}: {_parent(parent)}: {c.get('message', '')}",
            )
            for parent in parents
            for c in parent.get("conditions", ())
            if c.get("observedGeneration", generation) >= generation
        ],
    )


def _parent(status: Object) -> str:
    reference = status.get("parentRef", {})
    return f"{reference.get('kind', 'Gateway')} {reference.get('name', '')}"


def _benchmark(configmaps: Iterable[Object], name: str) -> Mapping[str, str] | None:
    return next((each.get("data") or {} for each in configmaps if each["metadata"]["name"] == name), None)
