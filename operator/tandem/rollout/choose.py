"""Which revision a spec asks for, and where the tasks on the way to it stand. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tandem.api.profile import Profile
from tandem.api.roles import Role
from tandem.api.types import SpeculativeInferenceService
from tandem.children import Task
from tandem.children.job_pod import init_resources
from tandem.render import LATEST, PodDefaults, Record, Revision, render
from tandem.rollout.lost import missed
from tandem.rollout.observed import Observed
from tandem.rollout.pipeline import build_tasks, fetch_tasks, preflight_task
from tandem.rollout.tasks import Stage, Step, TaskState, observe_task
from tandem.settings import Settings


@dataclass(frozen=True)
class Choice:
    """A revision, and the tasks that were looked at, in order; those after the first that has not passed are not."""

    revision: Revision | None
    """None while its models are fetched."""
    steps: tuple[Step, ...]

    @property
    def passed(self) -> bool:
        """Whether every task did what it should."""
        return self.revision is not None and all(step.passed for step in self.steps)


def choose(
    service: SpeculativeInferenceService,
    profile: Profile,
    settings: Settings,
    observed: Observed,
    known: Mapping[str, Revision],
) -> Choice:
    """The revision of the spec. `known`: those of it that are there, by digest, the newest first.

    One of that spec that serves or has passed stays as it was rendered. One that never passed holds nothing worth
    keeping, and today's images may be what heals it.
    """
    live = observed.live_revision
    # Nothing runs of it: today's settings may be what heals it.
    kept = {} if live in known and observed.never_began else known
    for digest, revision in sorted(kept.items(), key=lambda item: item[0] != live):
        fetches = _fetches_of(service, revision, settings, observed)
        if fetches is not None:
            choice = _on_its_way(service, settings, revision, fetches, observed)
            if digest == live or choice.passed:
                return choice
    downloads = _fetches(service, settings, observed)
    folders = {role: step.folder for role, step in downloads.items() if step.folder}
    if len(folders) < len(downloads):
        return Choice(None, _distinct(downloads))
    fresh = render(_record(service, profile, settings, folders))
    # What a newer operator only says otherwise of a profile makes no other revision: its ConfigMap is immutable.
    return _on_its_way(service, settings, known.get(fresh.digest, fresh), _distinct(downloads), observed)


def _record(
    service: SpeculativeInferenceService, profile: Profile, settings: Settings, folders: dict[Role, str]
) -> Record:
    """How the spec is rendered today; `folders`: of its downloads."""
    pods = PodDefaults(
        user_ids=settings.user_ids,
        init_resources=init_resources([settings.jobs]),
        image_pull_secrets=tuple(secret.name for secret in settings.jobs.image_pull_secrets),
    )
    return Record(
        renderer=LATEST,
        serving_image=settings.serving_image,
        profile=profile,
        spec=service.spec,
        fetched=folders,
        pods=pods,
    )


def _on_its_way(
    service: SpeculativeInferenceService,
    settings: Settings,
    revision: Revision,
    fetches: tuple[Step, ...],
    observed: Observed,
) -> Choice:
    """The revision, and its builds and check once the models are there."""
    steps = fetches
    builds = build_tasks(service, settings, revision).values()
    for tasks in (builds, [preflight_task(service, settings, revision)]):
        if all(step.passed for step in steps):
            steps += _look(observed, tasks)
    return Choice(revision, steps)


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
            steps[role] = Step(step.task, TaskState(Stage.BROKEN, detail=detail))
    return steps


def _fetches_of(
    service: SpeculativeInferenceService, revision: Revision, settings: Settings, observed: Observed
) -> tuple[Step, ...] | None:
    """The downloads of a revision that is there; None where it is lost, and their source gives something else now.

    One without a result of this revision's model, as results are deleted once they are old, is none while the
    preflight says that all is there.
    """
    fetched = revision.record.fetched
    steps = _fetches(service, settings, observed, fetched)
    moved = {role for role, step in steps.items() if step.folder not in ("", fetched[role])}
    absent = {role for role, step in steps.items() if step.state.stage is Stage.ABSENT and not step.state.loss}
    if not moved | absent:
        return _distinct(steps)
    (checked,) = _look(observed, [preflight_task(service, settings, revision)])
    if checked.passed and not any(missed(observed, fetched[role]) for role in moved):
        return _distinct({role: step for role, step in steps.items() if role not in moved | absent})
    return None if moved else _distinct(steps)


def _distinct(steps: Mapping[Role, Step]) -> tuple[Step, ...]:
    return tuple({step.task.digest: step for step in steps.values()}.values())


def _look(observed: Observed, tasks: Iterable[Task]) -> tuple[Step, ...]:
    return tuple(Step(task, observe_task(observed, task)) for task in tasks)
