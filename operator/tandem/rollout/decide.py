"""What a spec asks for, and how far it may go now. Pure.

Its revision, the tasks on the way to it, and the children that should exist.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tandem import children as build
from tandem import names
from tandem.accept import Accepted, Refusal, accept
from tandem.accept.storage import not_shareable, not_shareable_source
from tandem.api.conditions import ConditionType, SpecReason
from tandem.api.types import Autoscaling, SpeculativeInferenceService
from tandem.api.wire import Object
from tandem.autoscaling import KubernetesVersion, source_of
from tandem.children.desired import Desired
from tandem.children.metadata import identity
from tandem.engines import Engine
from tandem.render import Revision
from tandem.rollout.choose import choose
from tandem.rollout.deadline import gave_way
from tandem.rollout.known import KnownRevisions, known_revisions
from tandem.rollout.observed import Observed
from tandem.rollout.pipeline import condition_types, makes_cache
from tandem.rollout.tasks import Stage, Step
from tandem.settings import Settings

MOST_NAMED = 600
"""Characters about what is not understood: a condition's message has 1024."""
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
    engine: Engine | None = None
    """What runs the spec; of one that is refused, what serves."""
    warnings: tuple[str, ...] = ()
    """What the user should know of a spec that is accepted."""
    verified: bool = True
    """Whether Tandem's tests ran the image on its hardware."""
    known: Mapping[str, Revision] = field(default_factory=dict)
    """The revisions that are there and may still be wanted, by digest; none of a spec that is refused."""
    revision: Revision | None = None
    """What the spec asks for; None before its models are there."""
    steps: tuple[Step, ...] = ()
    """The tasks that were looked at, in order; those after the first that has not passed are not among them."""
    instead: Revision | None = None
    """Revision that serves instead, since the wanted one was given up."""
    conditions: tuple[ConditionType, ...] = ()
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
    known = known_revisions(service, observed)
    serving = _serving(service, observed, known.all)
    of_serving = serving.record.engine if serving else None
    if observed.not_understood:
        refusal = _not_understood(service, observed, serving)
        return Decision(refusal=refusal, engine=of_serving, desired=_kept(service, settings, observed, serving))
    accepted = accept(service.spec, settings)
    refused = accepted if isinstance(accepted, Refusal) else _refusal(service, accepted.engine, observed)
    if isinstance(accepted, Accepted) and not refused:
        decision = _decide(service, accepted, settings, observed, known)
    else:
        decision = Decision(refusal=refused, engine=of_serving, desired=_kept(service, settings, observed, serving))
    if not (decision.passed or observed.workloads):
        return decision
    desired = replace(decision.desired, autoscaler=build.autoscaler(service, settings))
    return replace(decision, desired=desired)


def _decide(
    service: SpeculativeInferenceService,
    accepted: Accepted,
    settings: Settings,
    observed: Observed,
    known: KnownRevisions,
) -> Decision:
    choice = choose(service, accepted.profile, settings, observed, known.of_spec)
    decision = Decision(
        engine=accepted.engine,
        warnings=_warnings(service, accepted, observed),
        verified=accepted.verified,
        known=known.all,
        revision=choice.revision,
        steps=choice.steps,
        conditions=condition_types(service.spec, accepted.engine),
    )
    if choice.revision and choice.passed:
        # What serves after it was given up, if it was.
        gone_back_to = gave_way(service, choice.revision.digest, known.all)
        decision = replace(decision, instead=known.all.get(gone_back_to or ""))
    return replace(decision, desired=_desired(service, decision, accepted.engine, settings, observed))


def _desired(
    service: SpeculativeInferenceService,
    decision: Decision,
    engine: Engine,
    settings: Settings,
    observed: Observed,
) -> Desired:
    """The children of a spec that is accepted, and of what serves instead."""
    revision, nodes = decision.revision, engine.gpu_plan(service.spec).nodes
    makes_claim = makes_cache(service.spec, engine) and not observed.claim
    desired = Desired(
        service_account=build.service_account(service),
        network_policy=build.network_policy(service, nodes, settings.metrics_peers, settings.client_peers),
        revision=build.revision_configmap(service, revision) if revision else None,
        endpoint=build.endpoint(service),
        routing=tuple(each for each in (build.inference_pool(service), build.http_route(service)) if each),
        cache_claim=build.cache_claim(service) if makes_claim else None,
        results=tuple(_result(service, step, observed) for step in decision.steps if step.is_kept),
        jobs=tuple(_job(service, step, observed) for step in decision.steps if step.state.stage is Stage.ABSENT),
        keys=build.ssh_secret(service) if nodes > 1 and engine.worker.by_ssh else None,
    )
    serves = decision.instead or revision
    if not (serves and decision.passed):
        serving = _serving(service, observed, decision.known)
        return replace(desired, workload=build.workload(service, serving) if serving else None)
    budget = build.disruption_budget(service)
    return replace(desired, disruption_budget=budget, workload=build.workload(service, serves))


def _kept(
    service: SpeculativeInferenceService, settings: Settings, observed: Observed, serves: Revision | None
) -> Desired:
    """The children of a spec that is refused: the workload that serves, and of what it needs that which is lost."""
    if serves is None:
        return Desired()

    def lost(child: Object | None) -> Object | None:
        kind, name = identity(child) if child else ("", "")
        return None if kind in observed.unread or observed.child(kind, name) else child

    policy = build.network_policy(service, serves.nodes, settings.metrics_peers, settings.client_peers)
    return Desired(
        service_account=lost(build.service_account(service)),
        network_policy=lost(policy),
        endpoint=lost(build.endpoint(service)),
        disruption_budget=lost(build.disruption_budget(service)),
        workload=build.workload(service, serves),
    )


def _not_understood(service: SpeculativeInferenceService, observed: Observed, serves: Revision | None) -> Refusal:
    """With what becomes of the servers."""
    digest = observed.live_revision or service.status.current_revision
    kept = f"revision {serves.digest} serves on" if serves else "no server is started"
    if digest and not serves:
        kept = (
            f"revision {digest} has no ConfigMap that this operator can read, so that lost servers are not made again"
        )
    message = (
        f"{observed.not_understood[:MOST_NAMED]}: upgrade the operator, or write what it knows; meanwhile {kept}"
    )
    return Refusal(SpecReason.NOT_UNDERSTOOD, message)


def _refusal(service: SpeculativeInferenceService, engine: Engine, observed: Observed) -> Refusal | None:
    """What the cluster as it is keeps from being done."""
    return _cache_refusal(service, engine, observed) or _too_old(service.spec.autoscaling, observed.kubernetes)


def _too_old(scaling: Autoscaling | None, kubernetes: KubernetesVersion | None) -> Refusal | None:
    """An API server before the release that does what autoscaling asks for."""
    least = source_of(scaling).least_kubernetes(scaling) if scaling else None
    if scaling is None or least is None or kubernetes is None or kubernetes >= least:
        return None
    return Refusal(
        SpecReason.KUBERNETES_TOO_OLD,
        f"autoscaling.minReplicas 0 with source {scaling.source} needs Kubernetes {_dotted(least)} or newer, whose"
        f" HorizontalPodAutoscaler scales to zero, and this is {_dotted(kubernetes)}: write source: KEDA with"
        " keda.triggers, or minReplicas: 1",
    )


def _dotted(version: KubernetesVersion) -> str:
    return ".".join(map(str, version))


def _cache_refusal(service: SpeculativeInferenceService, engine: Engine, observed: Observed) -> Refusal | None:
    """A claim of ours is one that we made; and one that is there has its own access modes."""
    if makes_cache(service.spec, engine) and observed.claim and not observed.claim.made_by_us:
        return Refusal(SpecReason.CACHE_NOT_MANAGED_BY_TANDEM, NOT_OURS)
    modes = observed.claim.access_modes if observed.claim else service.spec.storage.cache.access_modes
    return not_shareable(service.spec, engine, modes)


def _warnings(service: SpeculativeInferenceService, accepted: Accepted, observed: Observed) -> tuple[str, ...]:
    """What the user should know: of the spec, and of the claims that models are in."""
    claims = observed.source_claims.items()
    found = (not_shareable_source(service.spec, accepted.engine, name, modes) for name, modes in claims)
    return (*accepted.warnings, *(text for text in found if text))


def _job(service: SpeculativeInferenceService, step: Step, observed: Observed) -> Object:
    """The Job of a task that has not begun. One that is there is no child: its template is immutable, and it was
    started for these inputs."""
    return build.task_job(service, step.task, _task_labels(step, observed))


def _result(service: SpeculativeInferenceService, step: Step, observed: Observed) -> Object:
    """The result of a task that is done. There is none while one that is not true any more has its name."""
    return build.task_result(service, step.task, step.state.verdict, _task_labels(step, observed))


def _task_labels(step: Step, observed: Observed) -> dict[str, str]:
    claim = observed.claim.uid if step.task.claim and observed.claim else ""
    return {
        **({names.LABEL_CLAIM: claim} if claim else {}),
        **({names.LABEL_REFILL: "true"} if step.state.refill else {}),
    }


def _serving(
    service: SpeculativeInferenceService, observed: Observed, known: Mapping[str, Revision]
) -> Revision | None:
    """The revision that serves now, or did before its workload was deleted: what a refused or unchecked spec leaves
    alone, at today's `replicas`. None where its record is not there, or renders to another."""
    digest = observed.live_revision or (service.status.current_revision or "")
    revision = known.get(digest)
    return revision if revision and revision.digest == digest else None
