"""What a spec asks for, and how far it may go now. Pure.

Its revision, the tasks on the way to it, and the children that should exist.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import ValidationError

from tandem import children as build
from tandem import names
from tandem.accept import Accepted, Refusal, accept
from tandem.api.conditions import ConditionType, SpecReason
from tandem.api.types import Rollout, SpeculativeInferenceService
from tandem.children import Task
from tandem.render import LATEST, RECORD_FILE, RENDERERS, Record, Revision, asks_for, render
from tandem.render.v1.gpus import gpu_plan
from tandem.render.v1.sources import Role
from tandem.render.v1.volumes import claim_name, uses_cache
from tandem.rollout.deadline import gave_way
from tandem.rollout.lost import missed, uid
from tandem.rollout.observed import Object, Observed, label
from tandem.rollout.pipeline import build_tasks, condition_types, fetch_tasks, makes_cache, preflight_task
from tandem.rollout.tasks import Outcome, Stage, cached_folder, observe_task
from tandem.settings import Profile, Settings

NOT_OURS = (
    f"the PersistentVolumeClaim {names.CACHE_CLAIM} was not made by Tandem (it has no label"
    f" {names.LABEL_MANAGED_BY}: {names.FIELD_MANAGER}): write storage.cache.claimName: {names.CACHE_CLAIM} if"
    " services may fill it, or another claim, or delete it"
)


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
    profile: Profile | None = None
    """What runs the spec; None for one that is refused."""
    warnings: tuple[str, ...] = ()
    """What the user should know of a spec that is accepted."""
    revision: Revision | None = None
    """What the spec asks for; None before its models are there."""
    steps: tuple[Step, ...] = ()
    """The tasks that were looked at, in order; those after the first that has not passed are not among them."""
    instead: Revision | None = None
    """Revision that serves instead, since the wanted one was given up."""
    rollout: Rollout = field(default_factory=Rollout)
    """How revisions take each other's place."""
    current: str = ""
    """Revision that was last rolled out completely; empty when there is none."""
    conditions: tuple[ConditionType, ...] = ()
    """Types of the conditions that the tasks decide."""
    children: tuple[Object, ...] = ()
    """Manifests that should exist, in the order to apply them."""
    keys: Object | None = None
    """Secret that the pods of groups need."""
    autoscaler: Object | None = None
    """Who decides the replicas, where there are servers and the spec asks for one. Not among the children: what
    is wrong with it does not keep servers from being ready."""

    @property
    def passed(self) -> bool:
        """Whether every task did what it should: servers may run."""
        return self.revision is not None and all(step.outcome.passed for step in self.steps)

    @property
    def serves(self) -> str:
        """Digest of the revision whose servers should run; empty before there is one."""
        revision = self.instead or self.revision
        return revision.digest if revision else ""


def decide(service: SpeculativeInferenceService, settings: Settings, observed: Observed) -> Decision:
    """Choose the revision, see how far its tasks are, and build the children that should exist."""
    decision = _decide(service, settings, observed)
    if not (decision.passed or observed.workloads):
        return decision
    return replace(decision, autoscaler=build.autoscaler(service, settings))


def _decide(service: SpeculativeInferenceService, settings: Settings, observed: Observed) -> Decision:
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
        if all(step.outcome.passed for step in steps):
            steps += _revision_steps(service, record, revision, observed)
    children.append(build.endpoint(service))
    if makes_cache(service.spec, accepted.profile) and not observed.cache:
        children.append(build.cache_claim(service))
    for step in steps:
        children.extend(_task_children(service, step, observed))
    decision = Decision(
        profile=accepted.profile,
        warnings=accepted.warnings,
        revision=revision,
        steps=tuple(steps),
        conditions=condition_types(service.spec, accepted.profile),
        keys=build.ssh_secret(service) if nodes > 1 else None,
        rollout=service.spec.rollout,
        current=service.status.current_revision or "",
    )
    if not (revision and decision.passed):
        return replace(decision, children=(*children, *_serving_workload(service, observed)))
    instead = _instead(service, revision, observed)
    servers = build.disruption_budget(service), build.workload(service, instead or revision)
    return replace(decision, instead=instead, children=(*children, *servers))


def _instead(service: SpeculativeInferenceService, revision: Revision, observed: Observed) -> Revision | None:
    """What serves after `revision` was given up; None where nothing was."""
    known = records(observed)
    digest = gave_way(service, revision.digest, known)
    return render(known[digest]) if digest else None


def _cache_refusal(service: SpeculativeInferenceService, profile: Profile, observed: Observed) -> Refusal | None:
    """A claim of ours is one that we made; and a volume that pods of one node alone can mount serves one replica."""
    if makes_cache(service.spec, profile) and observed.cache and not _made_by_us(observed.cache):
        return Refusal(SpecReason.CACHE_NOT_MANAGED_BY_TANDEM, NOT_OURS)
    scaled = service.spec.autoscaling
    most = max(service.spec.replicas, scaled.max_replicas if scaled else 0)
    if most < 2 or not uses_cache(service.spec, profile):
        return None
    wanted = service.spec.storage.cache.access_modes
    modes = observed.cache["spec"].get("accessModes", []) if observed.cache else wanted
    if {"ReadWriteMany", "ReadOnlyMany"} & set(modes):
        return None
    return Refusal(
        SpecReason.CACHE_NOT_SHAREABLE,
        f"there may be {most} replicas, and the claim {claim_name(service.spec)} has access mode"
        f" {', '.join(modes)}: write replicas: 1 (and autoscaling.maxReplicas: 1), or a storage.cache.claimName with"
        " ReadWriteMany",
    )


def _made_by_us(claim: Object) -> bool:
    return label(claim, names.LABEL_MANAGED_BY) == names.FIELD_MANAGER


def _record(
    service: SpeculativeInferenceService, accepted: Accepted, settings: Settings, observed: Observed
) -> tuple[Record | None, list[Step]]:
    """How to render the spec, None while its models are fetched; and the downloads that were looked at.

    A revision of that spec that serves or has passed is rendered as it was. One that never passed holds nothing
    worth keeping, and today's images may be what heals it.
    """
    fresh = Record(renderer=LATEST, serving_image=settings.serving_image, profile=accepted.profile, spec=service.spec)
    wanted = asks_for(service.spec)
    known = {digest: record for digest, record in records(observed).items() if asks_for(record.spec) == wanted}
    live = observed.live_revision() or ""
    for digest, record in sorted(known.items(), key=lambda item: item[0] != live):
        fetches = _fetches_of(service, record, settings, observed)
        if fetches is not None and (digest == live or _passed(service, record, fetches, observed)):
            return record, fetches
    downloads = _fetches(service, settings, observed)
    folders = {role: folder for role, step in downloads.items() if (folder := _folder(step))}
    if len(folders) < len(downloads):
        return None, _distinct(downloads)
    fresh = fresh.model_copy(update={"fetched": folders})
    # What a newer operator only says otherwise of a profile makes no other revision: its ConfigMap is immutable.
    return known.get(render(fresh).digest, fresh), _distinct(downloads)


def _passed(
    service: SpeculativeInferenceService, record: Record, fetches: Sequence[Step], observed: Observed
) -> bool:
    steps = [*fetches, *_revision_steps(service, record, render(record), observed)]
    return all(step.outcome.passed for step in steps)


def _fetches(
    service: SpeculativeInferenceService,
    settings: Settings,
    observed: Observed,
    known: Mapping[Role, str] | None = None,
) -> dict[Role, Step]:
    """The downloads and where they stand. `known`: folders that are wanted."""
    tasks = fetch_tasks(service, settings, observed)
    tasks = {role: replace(task, folder=(known or {}).get(role, "")) for role, task in tasks.items()}
    steps = dict(zip(tasks, _look(observed, service.name, tasks.values()), strict=True))
    for role, step in steps.items():
        if step.outcome.passed and not _folder(step):
            detail = f"{step.task.name(service.name)} names no folder: check that fetcherImage is of this version"
            steps[role] = Step(step.task, Outcome(Stage.BROKEN, detail=detail))
    return steps


def _fetches_of(
    service: SpeculativeInferenceService, record: Record, settings: Settings, observed: Observed
) -> list[Step] | None:
    """The downloads of a revision that is there; None where it is lost, and their source gives something else now.

    One without a result of this revision's model, as results are deleted once they are old, is none while the
    preflight says that all is there.
    """
    steps = _fetches(service, settings, observed, record.fetched)
    moved = {role for role, step in steps.items() if _folder(step) not in (None, record.fetched[role])}
    absent = {role for role, step in steps.items() if step.outcome.stage is Stage.ABSENT and not step.outcome.loss}
    if not moved | absent:
        return _distinct(steps)
    (checked,) = _look(observed, service.name, [preflight_task(service, record.profile, render(record))])
    if checked.outcome.passed and not any(missed(observed, record.fetched[role]) for role in moved):
        return _distinct({role: step for role, step in steps.items() if role not in moved | absent})
    return None if moved else _distinct(steps)


def _folder(step: Step) -> str | None:
    return cached_folder(step.outcome) if step.outcome.passed else None


def _distinct(steps: Mapping[Role, Step]) -> list[Step]:
    return list({step.task.digest: step for step in steps.values()}.values())


def _revision_steps(
    service: SpeculativeInferenceService, record: Record, revision: Revision, observed: Observed
) -> list[Step]:
    builds = _look(observed, service.name, build_tasks(service, revision).values())
    if not all(step.outcome.passed for step in builds):
        return builds
    return [*builds, *_look(observed, service.name, [preflight_task(service, record.profile, revision)])]


def _look(observed: Observed, service: str, tasks: Iterable[Task]) -> list[Step]:
    return [Step(task, observe_task(observed, service, task)) for task in tasks]


def _task_children(service: SpeculativeInferenceService, step: Step, observed: Observed) -> list[Object]:
    """The Job of a task that has not begun; the result of one that is done, where it is to be kept.

    A Job that is there is no child: its template is immutable, and it was started for these inputs. Nor is a result
    while one that is not true any more has its name.
    """
    outcome, task = step.outcome, step.task
    labels = {names.LABEL_CLAIM: claim} if task.claim and (claim := uid(observed.cache)) else {}
    labels |= {names.LABEL_REFILL: "true"} if outcome.refill else {}
    if outcome.stage is Stage.ABSENT:
        return [build.task_job(service, task, labels)]
    if outcome.is_final(task) and not outcome.stale:
        return [build.task_result(service, task, outcome.verdict, labels)]
    return []


def _serving_workload(service: SpeculativeInferenceService, observed: Observed) -> tuple[Object, ...]:
    """The workload as it serves now, at today's `replicas`: what a refused or unchecked spec leaves alone."""
    live = observed.live_revision()
    record = records(observed).get(live or "")
    if record is None:
        return ()
    revision = render(record)
    return (build.workload(service, revision),) if revision.digest == live else ()


def records(observed: Observed) -> Mapping[str, Record]:
    """Records of the revisions in the cluster that this operator can render, newest first, by digest."""
    found: dict[str, Record] = {}
    for configmap in newest_first(observed, names.REVISION):
        try:
            record = Record.model_validate_json(configmap.get("data", {}).get(RECORD_FILE, ""))
        except ValidationError:
            continue  # made by a newer operator: not ours to render
        if record.renderer in RENDERERS:
            found[label(configmap, names.LABEL_REVISION)] = record
    return found


def newest_first(observed: Observed, component: str) -> list[Object]:
    """ConfigMaps of a component, the newest first."""
    return sorted(
        observed.component(observed.configmaps, component),
        key=lambda c: (str(c["metadata"].get("creationTimestamp", "")), str(c["metadata"]["name"])),
        reverse=True,
    )
