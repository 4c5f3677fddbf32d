"""What should exist, and which requests bring it about. Pure: decisions are values, `cluster` executes them."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from pydantic import ValidationError

from tandem import build, names
from tandem.accept import Accepted, Refusal, accept
from tandem.api.types import SpeculativeInferenceService
from tandem.build import Task
from tandem.gpus import gpu_plan
from tandem.observed import Object, Observed, label, pod_ready
from tandem.render import LATEST, RECORD_FILE, RENDERERS, Record, Revision, render
from tandem.settings import Profile, Settings
from tandem.sources import Role
from tandem.stages import (
    build_tasks,
    condition_types,
    fetch_tasks,
    fetched_folder,
    makes_cache,
    preflight_task,
)
from tandem.tasks import Outcome, Stage, observe_task
from tandem.volumes import claim_name, uses_cache


@dataclass(frozen=True)
class Step:
    """A task of the way to the servers, and where it stands."""

    task: Task
    outcome: Outcome


@dataclass(frozen=True)
class Decision:
    """What the spec asks for and how far it may go now."""

    refusal: Refusal | None = None
    """Why the spec is not accepted; then nothing is touched."""
    warnings: tuple[str, ...] = ()
    """What the user should know of a spec that is accepted."""
    revision: Revision | None = None
    """What the spec asks for; None before its models are there."""
    steps: tuple[Step, ...] = ()
    """The tasks that were looked at, in order; those after the first that has not passed are not among them."""
    conditions: tuple[str, ...] = ()
    """Types of the conditions that the tasks decide."""
    children: tuple[Object, ...] = ()
    """Manifests that should exist, in the order to apply them."""
    keys: Object | None = None
    """Secret that the pods of groups need."""

    @property
    def passed(self) -> bool:
        """Whether every task did what it should: servers may run."""
        return self.revision is not None and all(step.outcome.passed for step in self.steps)


@dataclass(frozen=True)
class Apply:
    """Server-side apply `manifest`; `live` is what is there now, None when nothing of ours is."""

    manifest: Object
    live: Object | None


@dataclass(frozen=True)
class Delete:
    """Delete `live`, if it is still the object that was seen."""

    live: Object


@dataclass(frozen=True)
class CreateKeys:
    """Create the Secret `manifest` with a new key pair, unless it is there: it can be made, but not read."""

    manifest: Object


Action = Apply | Delete | CreateKeys
Matches = Callable[[Object, Object], bool]
"""Whether a manifest and a live object agree in all that we own; see `tandem.cluster.apply`."""


def decide(service: SpeculativeInferenceService, settings: Settings, observed: Observed) -> Decision:
    """Choose the revision, see how far its tasks are, and build the children that should exist."""
    accepted = accept(service.spec, settings)
    if isinstance(accepted, Refusal):
        return Decision(refusal=accepted, children=_serving_workload(service, observed))
    if refusal := _cache_refusal(service, accepted.profile, observed):
        return Decision(refusal=refusal, children=_serving_workload(service, observed))
    record, steps = _record(service, accepted, settings, observed)
    children: list[Object] = [build.service_account(service)]
    nodes = gpu_plan(service.spec, accepted.profile).nodes
    if policy := build.network_policy(service, nodes, settings.metrics_peers):
        children.append(policy)
    revision = render(record) if record else None
    if revision and record:
        children.append(build.revision_configmap(service, revision))
        steps += _revision_steps(service, record, revision, observed)
    children.append(build.endpoint(service))
    if makes_cache(service.spec, accepted.profile) and not observed.cache:
        children.append(build.cache_claim(service))
    for step in steps:
        children.extend(_task_children(service, step))
    decision = Decision(
        warnings=accepted.warnings,
        revision=revision,
        steps=tuple(steps),
        conditions=condition_types(service.spec, accepted.profile),
        keys=build.ssh_secret(service) if nodes > 1 else None,
    )
    servers = (
        (build.disruption_budget(service), build.workload(service, revision))
        if revision and decision.passed
        else None
    )
    return replace(decision, children=(*children, *(servers or _serving_workload(service, observed))))


def _cache_refusal(service: SpeculativeInferenceService, profile: Profile, observed: Observed) -> Refusal | None:
    """A volume that pods of one node alone can mount serves one replica."""
    if service.spec.replicas < 2 or not uses_cache(service.spec, profile):
        return None
    wanted = service.spec.storage.cache.access_modes
    modes = observed.cache["spec"].get("accessModes", []) if observed.cache else wanted
    if {"ReadWriteMany", "ReadOnlyMany"} & set(modes):
        return None
    return Refusal(
        "CacheNotShareable",
        f"replicas is {service.spec.replicas}, and the claim {claim_name(service.spec)} has access mode"
        f" {', '.join(modes)}: write replicas: 1, or a storage.cache.claimName with ReadWriteMany",
    )


def _revision_steps(
    service: SpeculativeInferenceService, record: Record, revision: Revision, observed: Observed
) -> list[Step]:
    builds = _look(observed, service.name, build_tasks(service, revision).values())
    if not all(step.outcome.passed for step in builds):
        return builds
    return [*builds, *_look(observed, service.name, [preflight_task(service, record.profile, revision)])]


def _look(observed: Observed, service: str, tasks: Iterable[Task]) -> list[Step]:
    return [Step(task, observe_task(observed, service, task)) for task in tasks]


def _task_children(service: SpeculativeInferenceService, step: Step) -> list[Object]:
    """The Job of a task that has not begun; the result of one that is done, where it is to be kept."""
    outcome, task = step.outcome, step.task
    if outcome.stage is Stage.ABSENT:
        return [build.task_job(service, task)]
    if outcome.stage is Stage.DONE and (outcome.passed or task.refusal_is_final):
        return [build.task_result(service, task, outcome.verdict)]
    return []


def plan(decision: Decision, observed: Observed, settings: Settings, matches: Matches) -> list[Action]:
    """The requests that make `observed` what `decision` wants; empty when it is."""
    applies = [action for child in decision.children if (action := _apply(child, observed, matches))]
    keys = [CreateKeys(decision.keys)] if decision.keys and not _whole(decision, observed) else []
    return [*keys, *applies, *map(Delete, _obsolete(decision, observed, settings))]


def _apply(child: Object, observed: Observed, matches: Matches) -> Apply | None:
    live = observed.child(child["kind"], child["metadata"]["name"])
    if live is None:
        return Apply(child, None)
    # A Job's template is immutable, and a Job that exists has been started for these inputs.
    if child["kind"] == "Job" or matches(child, live):
        return None
    return Apply(child, live)


def _record(
    service: SpeculativeInferenceService, accepted: Accepted, settings: Settings, observed: Observed
) -> tuple[Record | None, list[Step]]:
    """How to render the spec, None while its models are fetched; and the downloads that were looked at.

    A revision of that spec that serves or has passed is rendered as it was. One that never passed holds nothing
    worth keeping, and today's images may be what heals it.
    """
    fresh = Record(renderer=LATEST, serving_image=settings.serving_image, profile=accepted.profile, spec=service.spec)
    known = {digest: r for digest, r in records(observed).items() if r.inputs_hash == fresh.inputs_hash}
    if (live := observed.live_revision() or "") in known:
        return known[live], []
    for record in known.values():
        if all(step.outcome.passed for step in _revision_steps(service, record, render(record), observed)):
            return record, []
    tasks = fetch_tasks(service, settings)
    steps = dict(zip(tasks, _look(observed, service.name, tasks.values()), strict=True))
    folders: dict[Role, str] = {}
    for role, step in steps.items():
        if step.outcome.passed and (folder := fetched_folder(step.outcome)):
            folders[role] = folder
        elif step.outcome.passed:
            detail = f"{step.task.name(service.name)} names no folder: check that fetcherImage is of this version"
            steps[role] = Step(step.task, Outcome(Stage.BROKEN, detail=detail))
    distinct = list({step.task.digest: step for step in steps.values()}.values())
    return (fresh.model_copy(update={"fetched": folders}) if len(folders) == len(tasks) else None), distinct


def records(observed: Observed) -> Mapping[str, Record]:
    """Records of the revisions in the cluster that this operator can render, newest first, by digest."""
    found: dict[str, Record] = {}
    for configmap in _newest_first(observed, names.REVISION):
        try:
            record = Record.model_validate_json(configmap.get("data", {}).get(RECORD_FILE, ""))
        except ValidationError:
            continue  # made by a newer operator: not ours to render
        if record.renderer in RENDERERS:
            found[label(configmap, names.LABEL_REVISION)] = record
    return found


def _newest_first(observed: Observed, component: str) -> list[Object]:
    return sorted(
        observed.component(observed.configmaps, component),
        key=lambda c: (str(c["metadata"].get("creationTimestamp", "")), str(c["metadata"]["name"])),
        reverse=True,
    )


def _serving_workload(service: SpeculativeInferenceService, observed: Observed) -> tuple[Object, ...]:
    """The workload as it serves now, at today's `replicas`: what a refused or unchecked spec leaves alone."""
    live = observed.live_revision()
    record = records(observed).get(live or "")
    if record is None:
        return ()
    revision = render(record)
    return (build.workload(service, revision),) if revision.digest == live else ()


def _whole(decision: Decision, observed: Observed) -> bool:
    """Whether the wanted workload's pods all answer: what it took is there."""
    if not decision.passed or decision.revision is None:
        return False
    workload = decision.children[-1]
    ready = [pod for pod in observed.server_pods() if pod_ready(pod)]
    updated = [pod for pod in ready if label(pod, names.LABEL_REVISION) == decision.revision.digest]
    live = observed.child(workload["kind"], workload["metadata"]["name"])
    return live is not None and len(updated) >= workload["spec"]["replicas"]


def _obsolete(decision: Decision, observed: Observed, settings: Settings) -> list[Object]:
    """Children that nobody needs any more: recorded or lost Jobs, and revisions beyond the history limit."""
    if decision.refusal:
        return []
    working = {_name(step) for step in decision.steps if _keeps_job(step)}
    # Of a spec that waits for its models no later task can be there.
    jobs = [job for job in observed.jobs if _digest(job) not in working]
    jobs += _unwanted(decision, observed)
    if decision.revision is None:
        return jobs
    mounted = {label(pod, names.LABEL_REVISION) for pod in observed.pods}
    needed = {decision.revision.digest, observed.live_revision() or "", *mounted}
    old = [c for c in _newest_first(observed, names.REVISION) if label(c, names.LABEL_REVISION) not in needed]
    limit = settings.revision_history_limit
    return [*jobs, *old[limit:], *_old_results(decision, observed, needed, limit)]


def _unwanted(decision: Decision, observed: Observed) -> list[Object]:
    """A NetworkPolicy that nobody asks for, and a workload of the other kind once its successor answers."""
    wanted = {(child["kind"], child["metadata"]["name"]) for child in decision.children}
    candidates = [*observed.network_policies, *(observed.workloads if _whole(decision, observed) else ())]
    return [child for child in candidates if (child["kind"], child["metadata"]["name"]) not in wanted]


def _keeps_job(step: Step) -> bool:
    if step.outcome.stage is Stage.DONE:
        return not (step.outcome.passed or step.task.refusal_is_final)
    return step.outcome.stage is not Stage.LOST


def _name(step: Step) -> str:
    return f"{step.task.component}-{step.task.digest}"


def _digest(child: Object) -> str:
    """`COMPONENT-DIGEST`, the end of a task's name."""
    return "-".join(str(child["metadata"]["name"]).rsplit("-", 2)[1:])


def _old_results(decision: Decision, observed: Observed, needed: Collection[str], limit: int) -> list[Object]:
    """Results that neither this spec nor a revision that may come back asks for, beyond the history limit.

    With its verdicts, going back to what serves asks nothing, however many edits failed in between.
    """
    known = [render(record) for digest, record in records(observed).items() if digest in needed]
    wanted = {_name(step) for step in decision.steps}
    for revision in known:
        wanted.add(f"{names.PREFLIGHT}-{revision.preflight.digest}")
        wanted.update(f"{names.BUILD}-{job.digest}" for job in revision.builds.values())
    old: list[Object] = []
    for kind in names.TASKS:
        results = _newest_first(observed, names.result(kind))
        old += [result for result in results if _digest(result) not in wanted][limit:]
    return old
