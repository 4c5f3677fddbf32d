"""Which requests bring about what was decided. Pure: they are values, `cluster` executes them."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from tandem import names
from tandem.autoscaling import SOURCES
from tandem.errors import Forbidden
from tandem.render import render
from tandem.rollout.decide import Decision, Step, newest_first, records
from tandem.rollout.observed import Object, Observed, label, pod_ready
from tandem.rollout.tasks import Stage, fetched_folder
from tandem.settings import Settings


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


DECISIVE = ("ConfigMap", "Deployment", "Job", "PersistentVolumeClaim", "Pod")
"""Kinds by which a service's way is decided: without a look at them it would begin anew."""
AUTOSCALERS = frozenset(source.kind for source in SOURCES.values())


def cannot_decide(decision: Decision, observed: Observed) -> bool:
    """Whether something may not be read that has a say in what to do: then nothing is done."""
    groups = {child["kind"] for child in decision.children} & {"LeaderWorkerSet"}
    return not observed.unread.keys().isdisjoint({*DECISIVE, *groups})


def missing_rights(decision: Decision, observed: Observed) -> list[Forbidden]:
    """Why kinds may not be read that this service has a use for."""
    wanted = {*DECISIVE, *(child["kind"] for child in decision.children)}
    wanted |= {*AUTOSCALERS} if decision.autoscaler else set()
    return [why for kind, why in sorted(observed.unread.items()) if kind in wanted]


def plan(decision: Decision, observed: Observed, settings: Settings, matches: Matches) -> list[Action]:
    """The requests that make `observed` what `decision` wants; empty when it is."""
    applies = [action for child in decision.children if (action := _apply(child, observed, matches))]
    complete = not applies and _whole(decision, observed)
    keys = [CreateKeys(decision.keys)] if decision.keys and not complete else []
    return [*keys, *applies, *map(Delete, _obsolete(decision, observed, settings))]


def autoscaling(decision: Decision, observed: Observed, matches: Matches) -> list[Action]:
    """The requests that leave /scale to the autoscaler that `decision` wants, or to nobody but people.

    What is not wanted goes before its successor comes: two would fight over the replicas, and a source's webhook
    may refuse to be the second. Replicas stay as they are throughout. Of a spec that is refused nothing is taken, and
    what is there stays. So it is while one of their kinds may not be read.
    """
    if decision.refusal or not observed.unread.keys().isdisjoint(AUTOSCALERS):
        return []
    wanted = decision.autoscaler
    kept = (wanted["kind"], wanted["metadata"]["name"]) if wanted else None
    gone = [live for live in observed.autoscalers if (live["kind"], live["metadata"]["name"]) != kept]
    apply = _apply(wanted, observed, matches) if wanted else None
    return [*map(Delete, gone), *([apply] if apply else [])]


def _apply(child: Object, observed: Observed, matches: Matches) -> Apply | None:
    live = observed.child(child["kind"], child["metadata"]["name"])
    if live is None:
        return Apply(child, None)
    if matches(child, live):
        return None
    return Apply(child, live)


def _whole(decision: Decision, observed: Observed) -> bool:
    """Whether the wanted workload's pods all answer: what it took is there."""
    if not decision.passed:
        return False
    workload = decision.children[-1]
    ready = [pod for pod in observed.server_pods() if pod_ready(pod)]
    updated = [pod for pod in ready if label(pod, names.LABEL_REVISION) == decision.serves]
    live = observed.child(workload["kind"], workload["metadata"]["name"])
    return live is not None and len(updated) >= workload["spec"]["replicas"]


def _obsolete(decision: Decision, observed: Observed, settings: Settings) -> list[Object]:
    """Children that nobody needs any more: recorded or lost Jobs, and revisions beyond the history limit."""
    if decision.refusal:
        return []
    jobs = [*_old_jobs(decision, observed), *_stale_results(decision), *_unwanted(decision, observed)]
    if decision.revision is None:
        return jobs
    mounted = {label(pod, names.LABEL_REVISION) for pod in observed.pods}
    # The current one is what a rollout that fails may go back to.
    needed = {decision.revision.digest, decision.current, observed.live_revision() or "", *mounted}
    old = [c for c in newest_first(observed, names.REVISION) if label(c, names.LABEL_REVISION) not in needed]
    limit = decision.rollout.revision_history_limit
    if limit is None:
        limit = settings.revision_history_limit
    return [*jobs, *old[limit:], *_old_results(decision, observed, needed, limit)]


def _old_jobs(decision: Decision, observed: Observed) -> list[Object]:
    # What a Job said that misses a folder stands in its pod alone: it goes when the folder is brought back.
    if any(step.outcome.loss and step.outcome.loss.again for step in decision.steps):
        return []
    working = {_name(step) for step in decision.steps if _keeps_job(step)}
    # Of a spec that waits for its models no later task can be there.
    return [job for job in observed.jobs if _digest(job) not in working]


def _stale_results(decision: Decision) -> list[Object]:
    """Results that are not true any more and in the way of the new ones: they cannot be changed."""
    done = [step.outcome for step in decision.steps if step.outcome.is_final(step.task)]
    return [outcome.stale for outcome in done if outcome.stale]


def _unwanted(decision: Decision, observed: Observed) -> list[Object]:
    """A NetworkPolicy that nobody asks for, and a workload of the other kind once its successor answers; before,
    where that needs its GPUs (rollout.strategy Replace)."""
    wanted = {(child["kind"], child["metadata"]["name"]) for child in decision.children}
    replaced = decision.passed and (decision.rollout.strategy == "Replace" or _whole(decision, observed))
    candidates = [*observed.network_policies, *(observed.workloads if replaced else ())]
    return [child for child in candidates if (child["kind"], child["metadata"]["name"]) not in wanted]


def _keeps_job(step: Step) -> bool:
    if step.outcome.stage is Stage.DONE:
        return not step.outcome.is_final(step.task) or step.outcome.stale is not None
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
    known = [record for digest, record in records(observed).items() if digest in needed]
    wanted = {_name(step) for step in decision.steps}
    for revision in map(render, known):
        wanted.add(f"{names.PREFLIGHT}-{revision.preflight.digest}")
        wanted.update(f"{names.BUILD}-{job.digest}" for job in revision.builds.values())
    old: list[Object] = []
    for kind in names.TASKS:
        results = newest_first(observed, names.result(kind))
        old += [result for result in results if _digest(result) not in wanted][limit:]
    # What is lost of a revision's models is fetched again as it was: its results tell the commits.
    folders = {folder for record in known for folder in record.fetched.values()}
    return [result for result in old if fetched_folder(result) not in folders]
