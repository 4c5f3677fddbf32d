"""What should exist, and which requests bring it about. Pure: decisions are values, `cluster` executes them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from tandem import build, names
from tandem.accept import Refusal, accept
from tandem.api.types import SpeculativeInferenceService
from tandem.observed import Object, Observed, label
from tandem.preflight import Preflight, Stage, observe_preflight
from tandem.render import LATEST, RECORD_FILE, RENDERERS, Record, Revision, render
from tandem.settings import Profile, Settings


@dataclass(frozen=True)
class Decision:
    """What the spec asks for and how far it may go now."""

    refusal: Refusal | None = None
    """Why the spec is not accepted; then nothing is touched."""
    revision: Revision | None = None
    """What the spec asks for."""
    preflight: Preflight | None = None
    """What is known of the revision's models."""
    children: tuple[Object, ...] = ()
    """Manifests that should exist, in the order to apply them."""


@dataclass(frozen=True)
class Apply:
    """Server-side apply `manifest`; `live` is what is there now, None when nothing of ours is."""

    manifest: Object
    live: Object | None


@dataclass(frozen=True)
class Delete:
    """Delete `live`, if it is still the object that was seen."""

    live: Object


Action = Apply | Delete
Matches = Callable[[Object, Object], bool]
"""Whether a manifest and a live object agree in all that we own; see `tandem.cluster.apply`."""


def decide(service: SpeculativeInferenceService, settings: Settings, observed: Observed) -> Decision:
    """Choose the revision, see how far its preflight is, and build the children that should exist."""
    accepted = accept(service.spec, settings)
    if isinstance(accepted, Refusal):
        return Decision(refusal=accepted, children=_serving_deployment(service, observed))
    revision = render(_record(service, accepted.profile, settings, observed))
    preflight = observe_preflight(observed, service.name, revision)
    children = [
        build.service_account(service),
        build.revision_configmap(service, revision),
        build.endpoint(service),
    ]
    if preflight.stage is Stage.ABSENT:
        children.append(build.preflight_job(service, revision))
    if preflight.stage is Stage.DONE:
        children.append(build.preflight_result(service, revision.preflight_digest, preflight.verdict))
    if preflight.passed:
        children.append(build.deployment(service, revision))
    else:
        children.extend(_serving_deployment(service, observed))
    return Decision(revision=revision, preflight=preflight, children=tuple(children))


def plan(decision: Decision, observed: Observed, settings: Settings, matches: Matches) -> list[Action]:
    """The requests that make `observed` what `decision` wants; empty when it is."""
    applies = [action for child in decision.children if (action := _apply(child, observed, matches))]
    return [*applies, *map(Delete, _obsolete(decision, observed, settings))]


def _apply(child: Object, observed: Observed, matches: Matches) -> Apply | None:
    live = observed.child(child["kind"], child["metadata"]["name"])
    if live is None:
        return Apply(child, None)
    # A Job's template is immutable, and a Job that exists has been started for these inputs.
    if child["kind"] == "Job" or matches(child, live):
        return None
    return Apply(child, live)


def _record(service: SpeculativeInferenceService, profile: Profile, settings: Settings, observed: Observed) -> Record:
    """How to render the spec: as the revision of that spec that serves or has passed its preflight, else anew.

    A revision that never passed holds nothing worth keeping, and today's images may be what heals it.
    """
    fresh = Record(renderer=LATEST, serving_image=settings.serving_image, profile=profile, spec=service.spec)
    known = {digest: r for digest, r in records(observed).items() if r.inputs_hash == fresh.inputs_hash}
    if (live := observed.live_revision() or "") in known:
        return known[live]
    passed = (r for r in known.values() if observe_preflight(observed, service.name, render(r)).passed)
    return next(passed, fresh)


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


def _serving_deployment(service: SpeculativeInferenceService, observed: Observed) -> tuple[Object, ...]:
    """The workload as it serves now, at today's `replicas`: what a refused or unchecked spec leaves alone."""
    live = observed.live_revision()
    record = records(observed).get(live or "")
    if record is None:
        return ()
    revision = render(record)
    return (build.deployment(service, revision),) if revision.digest == live else ()


def _obsolete(decision: Decision, observed: Observed, settings: Settings) -> list[Object]:
    """Children that nobody needs any more: recorded or lost Jobs, and revisions beyond the history limit."""
    if decision.revision is None or decision.preflight is None:
        return []
    finished = decision.preflight.stage in (Stage.DONE, Stage.LOST)
    current = decision.revision.preflight_digest
    jobs = [job for job in observed.jobs if finished or not job["metadata"]["name"].endswith(current)]
    mounted = {label(pod, names.LABEL_REVISION) for pod in observed.pods}
    needed = {decision.revision.digest, observed.live_revision() or "", *mounted}
    old = [c for c in _newest_first(observed, names.REVISION) if label(c, names.LABEL_REVISION) not in needed]
    known = records(observed)
    # With its verdict, going back to what serves asks nothing, however many edits failed in between.
    verdicts = (current, *(render(known[digest]).preflight_digest for digest in needed if digest in known))
    results = [
        c for c in _newest_first(observed, names.PREFLIGHT_RESULT) if not c["metadata"]["name"].endswith(verdicts)
    ]
    limit = settings.revision_history_limit
    return [*jobs, *old[limit:], *results[limit:]]
