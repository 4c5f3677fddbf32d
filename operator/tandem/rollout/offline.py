"""What is applied of a new service from nothing to its servers, without a cluster. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from tandem import names
from tandem.accept import Refusal
from tandem.api.folders import CACHE
from tandem.api.types import SpeculativeInferenceService
from tandem.children.desired import Desired
from tandem.rollout.decide import decide
from tandem.rollout.observed import CacheClaim, Live, Observed, TaskResult
from tandem.rollout.tasks import Step
from tandem.rollout.verdict import Verdict
from tandem.settings import Settings


def desired_of(
    service: SpeculativeInferenceService, settings: Settings, observed: Observed | None = None
) -> Desired | Refusal:
    """All children, with the Jobs of all tasks and without their results: `decide`, as though each task passed.

    The folder of a model that is downloaded is named after the content; here after its URI and revision. `observed`:
    children that are there, such as the results of tasks that did pass.
    """
    observed = observed or Observed()
    decision = decide(service, settings, observed)
    claim, jobs = decision.desired.cache_claim, [*decision.desired.jobs]
    made = CacheClaim(access_modes=tuple(service.spec.storage.cache.access_modes), made_by_us=True)
    observed = replace(observed, claim=observed.claim or made)
    for _ in names.TASKS:  # each kind waits for the one before
        if decision.refusal or decision.passed:
            break
        observed = replace(observed, results=[*observed.results, *_passed(decision.steps)])
        decision = decide(service, settings, observed)
        jobs += decision.desired.jobs
    return decision.refusal or replace(decision.desired, cache_claim=claim, jobs=tuple(jobs), results=())


def _passed(steps: Iterable[Step]) -> list[TaskResult]:
    """Results of the tasks that have none."""
    tasks = [step.task for step in steps if not step.passed]
    return [
        TaskResult(
            Live("ConfigMap", task.name),
            task.component,
            Verdict(folder=f"{CACHE}/models/{task.digest}" if task.component == names.FETCH else ""),
        )
        for task in tasks
    ]
