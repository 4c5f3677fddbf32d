"""What a spec asks for, and how far it may go now. Pure.

Its revision, the tasks on the way to it, and the children that should exist.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tandem import children as build
from tandem import names
from tandem.accept import Accepted, Refusal, accept
from tandem.api.types import SpeculativeInferenceService
from tandem.api.wire import Object
from tandem.children import Task
from tandem.children.desired import Desired
from tandem.render import LATEST, Record, Revision, asks_for, render
from tandem.render.v1.gpus import gpu_plan
from tandem.render.v1.sources import Role
from tandem.render.v1.volumes import claim_name, uses_cache
from tandem.rollout.deadline import gave_way
from tandem.rollout.lost import missed
from tandem.rollout.observed import Observed
from tandem.rollout.pipeline import build_tasks, condition_types, fetch_tasks, makes_cache, preflight_task
from tandem.rollout.tasks import Outcome, Stage, Step, observe_task
from tandem.settings import Profile, Settings

NOT_OURS = (
    f"the PersistentVolumeClaim {names.CACHE_CLAIM} was not made by Tandem (it has no label"
    f" {names.LABEL_MANAGED_BY}: {names.FIELD_MANAGER}): write storage.cache.claimName: {names.CACHE_CLAIM} if"
    " services may fill it, or another claim, or delete it"
)


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
    conditions: tuple[str, ...] = ()
    """Types of the conditions that the tasks decide."""
    desired: Desired = field(default_factory=Desired)
    """The children that should exist."""

    @property
    def passed(self) -> bool:
        """Whether every task did what it should: servers may run."""
        return self.revision is not None and all(step.passed for step in self.steps)

    @property
    def serves(self) -> str:
        """Digest of the revision whose servers should run; empty before there is one."""
        revision = self.instead or self.revision
        return revision.digest if revision else ""


def decide(service: SpeculativeInferenceService, settings: Settings, observed: Observed) -> Decision:
    """Choose the revision, see how far its tasks are, and build the children that should exist."""
    accepted = accept(service.spec, settings)
    refusal = accepted if isinstance(accepted, Refusal) else _cache_refusal(service, accepted.profile, observed)
    if isinstance(accepted, Accepted) and not refusal:
        decision = _decide(service, accepted, settings, observed)
    else:
        decision = Decision(refusal=refusal, desired=Desired(workload=_serving_workload(service, observed)))
    if not (decision.passed or observed.workloads):
        return decision
    desired = replace(decision.desired, autoscaler=build.autoscaler(service, settings))
    return replace(decision, desired=desired)


def _decide(
    service: SpeculativeInferenceService, accepted: Accepted, settings: Settings, observed: Observed
) -> Decision:
    record, steps = _record(service, accepted, settings, observed)
    revision = render(record) if record else None
    if record and revision and all(step.passed for step in steps):
        steps += _revision_steps(service, record, revision, observed)
    decision = Decision(
        profile=accepted.profile,
        warnings=accepted.warnings,
        revision=revision,
        steps=tuple(steps),
        conditions=condition_types(service.spec, accepted.profile),
    )
    if revision and decision.passed:
        decision = replace(decision, instead=_instead(service, revision, observed))
    return replace(decision, desired=_desired(service, decision, accepted.profile, settings, observed))


def _desired(
    service: SpeculativeInferenceService,
    decision: Decision,
    profile: Profile,
    settings: Settings,
    observed: Observed,
) -> Desired:
    """The children of a spec that is accepted, and of what serves instead."""
    revision, nodes = decision.revision, gpu_plan(service.spec, profile).nodes
    makes_claim = makes_cache(service.spec, profile) and not observed.claim
    desired = Desired(
        service_account=build.service_account(service),
        network_policy=build.network_policy(service, nodes, settings.metrics_peers),
        revision=build.revision_configmap(service, revision) if revision else None,
        endpoint=build.endpoint(service),
        cache_claim=build.cache_claim(service) if makes_claim else None,
        results=tuple(_result(service, step, observed) for step in decision.steps if step.is_kept),
        jobs=tuple(_job(service, step, observed) for step in decision.steps if step.outcome.stage is Stage.ABSENT),
        keys=build.ssh_secret(service) if nodes > 1 else None,
    )
    serves = decision.instead or revision
    if not (serves and decision.passed):
        return replace(desired, workload=_serving_workload(service, observed))
    budget = build.disruption_budget(service)
    return replace(desired, disruption_budget=budget, workload=build.workload(service, serves))


def _instead(service: SpeculativeInferenceService, revision: Revision, observed: Observed) -> Revision | None:
    """What serves after `revision` was given up; None where nothing was."""
    digest = gave_way(service, revision.digest, observed.records)
    return render(observed.records[digest]) if digest else None


def _cache_refusal(service: SpeculativeInferenceService, profile: Profile, observed: Observed) -> Refusal | None:
    """A claim of ours is one that we made; and a volume that pods of one node alone can mount serves one replica."""
    if makes_cache(service.spec, profile) and observed.claim and not observed.claim.made_by_us:
        return Refusal("CacheNotOurs", NOT_OURS)
    scaled = service.spec.autoscaling
    most = max(service.spec.replicas, scaled.max_replicas if scaled else 0)
    if most < 2 or not uses_cache(service.spec, profile):
        return None
    wanted = service.spec.storage.cache.access_modes
    modes = observed.claim.access_modes if observed.claim else wanted
    if {"ReadWriteMany", "ReadOnlyMany"} & set(modes):
        return None
    return Refusal(
        "CacheNotShareable",
        f"there may be {most} replicas, and the claim {claim_name(service.spec)} has access mode"
        f" {', '.join(modes)}: write replicas: 1 (and autoscaling.maxReplicas: 1), or a storage.cache.claimName with"
        " ReadWriteMany",
    )


def _record(
    service: SpeculativeInferenceService, accepted: Accepted, settings: Settings, observed: Observed
) -> tuple[Record | None, list[Step]]:
    """How to render the spec, None while its models are fetched; and the downloads that were looked at.

    A revision of that spec that serves or has passed is rendered as it was. One that never passed holds nothing
    worth keeping, and today's images may be what heals it.
    """
    fresh = Record(renderer=LATEST, serving_image=settings.serving_image, profile=accepted.profile, spec=service.spec)
    wanted = asks_for(service.spec)
    known = {digest: record for digest, record in observed.records.items() if asks_for(record.spec) == wanted}
    live = observed.live_revision
    for digest, record in sorted(known.items(), key=lambda item: item[0] != live):
        fetches = _fetches_of(service, record, settings, observed)
        if fetches is not None and (digest == live or _passed(service, record, fetches, observed)):
            return record, fetches
    downloads = _fetches(service, settings, observed)
    folders = {role: step.folder for role, step in downloads.items() if step.folder}
    if len(folders) < len(downloads):
        return None, _distinct(downloads)
    fresh = fresh.model_copy(update={"fetched": folders})
    # What a newer operator only says otherwise of a profile makes no other revision: its ConfigMap is immutable.
    return known.get(render(fresh).digest, fresh), _distinct(downloads)


def _passed(
    service: SpeculativeInferenceService, record: Record, fetches: Sequence[Step], observed: Observed
) -> bool:
    steps = [*fetches, *_revision_steps(service, record, render(record), observed)]
    return all(step.passed for step in steps)


def _fetches(
    service: SpeculativeInferenceService,
    settings: Settings,
    observed: Observed,
    known: Mapping[Role, str] | None = None,
) -> dict[Role, Step]:
    """The downloads and where they stand. `known`: folders that are wanted."""
    tasks = fetch_tasks(service, settings, observed)
    tasks = {role: replace(task, folder=(known or {}).get(role, "")) for role, task in tasks.items()}
    steps = dict(zip(tasks, _look(observed, tasks.values()), strict=True))
    for role, step in steps.items():
        if step.passed and not step.folder:
            detail = f"{step.task.name} names no folder: check that fetcherImage is of this version"
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
    moved = {role for role, step in steps.items() if step.folder not in ("", record.fetched[role])}
    absent = {role for role, step in steps.items() if step.outcome.stage is Stage.ABSENT and not step.outcome.loss}
    if not moved | absent:
        return _distinct(steps)
    (checked,) = _look(observed, [preflight_task(service, record.profile, render(record))])
    if checked.passed and not any(missed(observed, record.fetched[role]) for role in moved):
        return _distinct({role: step for role, step in steps.items() if role not in moved | absent})
    return None if moved else _distinct(steps)


def _distinct(steps: Mapping[Role, Step]) -> list[Step]:
    return list({step.task.digest: step for step in steps.values()}.values())


def _revision_steps(
    service: SpeculativeInferenceService, record: Record, revision: Revision, observed: Observed
) -> list[Step]:
    builds = _look(observed, build_tasks(service, revision).values())
    if not all(step.passed for step in builds):
        return builds
    return [*builds, *_look(observed, [preflight_task(service, record.profile, revision)])]


def _look(observed: Observed, tasks: Iterable[Task]) -> list[Step]:
    return [Step(task, observe_task(observed, task)) for task in tasks]


def _job(service: SpeculativeInferenceService, step: Step, observed: Observed) -> Object:
    """The Job of a task that has not begun. One that is there is no child: its template is immutable, and it was
    started for these inputs."""
    return build.task_job(service, step.task, _task_labels(step, observed))


def _result(service: SpeculativeInferenceService, step: Step, observed: Observed) -> Object:
    """The result of a task that is done. There is none while one that is not true any more has its name."""
    return build.task_result(service, step.task, step.outcome.verdict, _task_labels(step, observed))


def _task_labels(step: Step, observed: Observed) -> dict[str, str]:
    claim = observed.claim.uid if step.task.claim and observed.claim else ""
    return {
        **({names.LABEL_CLAIM: claim} if claim else {}),
        **({names.LABEL_REFILL: "true"} if step.outcome.refill else {}),
    }


def _serving_workload(service: SpeculativeInferenceService, observed: Observed) -> Object | None:
    """The workload as it serves now, at today's `replicas`: what a refused or unchecked spec leaves alone."""
    record = observed.records.get(observed.live_revision)
    revision = render(record) if record else None
    serves = revision and revision.digest == observed.live_revision
    return build.workload(service, revision) if revision and serves else None
