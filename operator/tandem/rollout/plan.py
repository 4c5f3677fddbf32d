"""Which requests bring about what was decided. Pure: they are values, `cluster` executes them."""

from collections.abc import Collection
from dataclasses import dataclass

from tandem import names
from tandem.api.types import SpeculativeInferenceService
from tandem.api.wire import Object
from tandem.autoscaling import SOURCES
from tandem.children.foreign import as_wanted
from tandem.children.metadata import identity
from tandem.errors import Forbidden
from tandem.rollout.decide import Decision
from tandem.rollout.observed import Live, Observed, TaskResult
from tandem.rollout.tasks import Stage, Step
from tandem.settings import Settings


@dataclass(frozen=True)
class Apply:
    """Server-side apply `manifest`; `live` is what is there now, None when nothing of ours is."""

    manifest: Object
    live: Live | None


@dataclass(frozen=True)
class Delete:
    """Delete `live`, if it is still the object that was observed."""

    live: Live


@dataclass(frozen=True)
class CreateKeys:
    """Create the Secret `manifest` with a new key pair, unless it is there: it can be made, but not read."""

    manifest: Object


Action = Apply | Delete | CreateKeys


DECISIVE = ("ConfigMap", "Deployment", "Job", "PersistentVolumeClaim", "Pod")
"""Kinds by which a service's way is decided: without a look at them it would begin anew."""
AUTOSCALERS = frozenset(source.kind for source in SOURCES.values())


ROUTING = frozenset({"HTTPRoute", "InferencePool"})


def cannot_decide(decision: Decision, observed: Observed) -> bool:
    """Whether something may not be read that has a say in what to do: then nothing is done."""
    return not observed.unread.keys().isdisjoint({*DECISIVE, *(_kinds(decision) & {"LeaderWorkerSet"})})


def missing_rights(decision: Decision, observed: Observed) -> list[Forbidden]:
    """Why kinds may not be read that this service has a use for."""
    desired = decision.desired
    wanted = {*DECISIVE, *_kinds(decision), *(AUTOSCALERS if desired.autoscaler else ())}
    wanted |= ROUTING if desired.routing else set()
    return [why for kind, why in sorted(observed.unread.items()) if kind in wanted]


def plan(
    service: SpeculativeInferenceService, decision: Decision, observed: Observed, settings: Settings
) -> list[Action]:
    """The requests that make `observed` what `decision` wants; empty when it is."""
    desired = decision.desired
    applies = [action for child in desired.in_order if (action := _apply(child, observed))]
    complete = not applies and _whole(service, decision, observed)
    keys = [CreateKeys(desired.keys)] if desired.keys and not complete else []
    return [*keys, *applies, *map(Delete, _obsolete(service, decision, observed, settings))]


def autoscaling(decision: Decision, observed: Observed) -> list[Action]:
    """The requests that leave /scale to the autoscaler that `decision` wants, or to people alone.

    What is not wanted goes before its successor comes: two would fight over the replicas, and a source's webhook
    may refuse to be the second. Replicas stay as they are throughout. Of a spec that is refused nothing is taken, and
    what is there stays. So it is while one of their kinds may not be read.
    """
    if decision.refusal or not observed.unread.keys().isdisjoint(AUTOSCALERS):
        return []
    wanted = decision.desired.autoscaler
    kept = identity(wanted) if wanted else None
    gone = [each.live for each in observed.autoscalers if (each.live.kind, each.live.name) != kept]
    apply = _apply(wanted, observed) if wanted else None
    return [*map(Delete, gone), *([apply] if apply else [])]


def routing(decision: Decision, observed: Observed) -> list[Action]:
    """The requests that bring a route and its pool about, or take them away; none for a spec that is refused, nor
    while one of their kinds may not be read."""
    if decision.refusal or not observed.unread.keys().isdisjoint(ROUTING):
        return []
    wanted = decision.desired.routing
    kept = {identity(each) for each in wanted}
    gone = [each.live for each in observed.routing if (each.live.kind, each.live.name) not in kept]
    return [*(action for each in wanted if (action := _apply(each, observed))), *map(Delete, gone)]


def makes(actions: Collection[Action]) -> bool:
    """Whether something is made that is not there."""
    return any(isinstance(each, CreateKeys) or (isinstance(each, Apply) and not each.live) for each in actions)


def _kinds(decision: Decision) -> set[str]:
    return {identity(child)[0] for child in decision.desired.in_order}


def _apply(child: Object, observed: Observed) -> Apply | None:
    live = observed.child(*identity(child))
    return None if live and as_wanted(child, live.manifest) else Apply(child, live)


def _whole(service: SpeculativeInferenceService, decision: Decision, observed: Observed) -> bool:
    """Whether the wanted workload's pods all answer: what it took is there."""
    workload = decision.desired.workload
    if not (decision.passed and workload and observed.child(*identity(workload))):
        return False
    updated = [server for server in observed.replicas if server.ready and server.revision == decision.serves]
    return len(updated) >= service.spec.replicas


def _obsolete(
    service: SpeculativeInferenceService, decision: Decision, observed: Observed, settings: Settings
) -> list[Live]:
    """Children that are not needed any more: recorded or lost Jobs, and revisions beyond the history limit."""
    if decision.refusal:
        return []
    jobs = [*_old_jobs(decision, observed), *_stale_results(decision), *_unwanted(service, decision, observed)]
    if decision.revision is None:
        return jobs
    mounted = {server.revision for server in observed.servers}
    # The current one is what a rollout that fails may go back to.
    status = service.status
    serving = {decision.revision.digest, status.current_revision, observed.live_revision}
    needed = {*serving, status.fallback_revision, *mounted}
    old = [revision.live for revision in observed.revisions if revision.digest not in needed]
    limit = service.spec.rollout.revision_history_limit
    if limit is None:
        limit = settings.revision_history_limit
    return [*jobs, *old[limit:], *_old_results(service, decision, observed, needed, limit)]


def _old_jobs(decision: Decision, observed: Observed) -> list[Live]:
    # The verdict of a Job that misses a folder stands in its pod alone: it goes when the folder is brought back.
    if any(step.state.loss and step.state.loss.again for step in decision.steps):
        return []
    working = {step.task.name for step in decision.steps if _keeps_job(step)}
    # Of a spec that waits for its models no later task can be there.
    return [job.live for job in observed.jobs if job.live.name not in working]


def _stale_results(decision: Decision) -> list[Live]:
    """Results that are not true any more and in the way of the new ones: they cannot be changed."""
    return [step.state.stale.live for step in decision.steps if step.is_final and step.state.stale]


def _unwanted(service: SpeculativeInferenceService, decision: Decision, observed: Observed) -> list[Live]:
    """A NetworkPolicy that is not asked for, and a workload of the other kind once its successor answers; before,
    where that needs its GPUs (rollout.strategy Replace)."""
    wanted = {identity(child) for child in decision.desired.in_order}
    replaces = service.spec.rollout.strategy == "Replace"
    replaced = decision.passed and (replaces or _whole(service, decision, observed))
    workloads = [workload.live for workload in observed.workloads] if replaced else []
    return [live for live in (*observed.network_policies, *workloads) if (live.kind, live.name) not in wanted]


def _keeps_job(step: Step) -> bool:
    if step.state.stage is Stage.DONE:
        return not step.is_kept
    return step.state.stage is not Stage.LOST


def _old_results(
    service: SpeculativeInferenceService,
    decision: Decision,
    observed: Observed,
    needed: Collection[str | None],
    limit: int,
) -> list[Live]:
    """Results that neither this spec nor the revisions that may come back (`needed`) ask for, beyond the limit.

    With its verdicts, going back to what serves asks nothing, however many edits failed in between.
    """
    wanted = {step.task.name for step in decision.steps}
    revisions = [revision for digest, revision in decision.known.items() if digest in needed]
    for revision in revisions:
        wanted.add(names.task(service.name, names.PREFLIGHT, revision.preflight.digest))
        wanted.update(names.task(service.name, names.BUILD, job.digest) for job in revision.builds.values())
    # What is lost of a revision's models is fetched again as it was: its results have the commits.
    folders = {folder for revision in revisions for folder in revision.record.fetched.values()}
    old = list[TaskResult]()
    for component in names.TASKS:
        results = [result for result in observed.results if result.component == component]
        old += [result for result in results if result.live.name not in wanted][limit:]
    return [result.live for result in old if result.verdict.folder not in folders]
