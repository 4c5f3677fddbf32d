"""The condition `PodsHealthy`: what keeps a pod of the servers or of a Job from running. Pure."""

from tandem.api.conditions import ConditionType
from tandem.conditions.engine_health import HEALTHY_SECONDS
from tandem.conditions.finding import Finding
from tandem.conditions.situation import Situation
from tandem.rollout.observed import Observed, Problem
from tandem.rollout.tasks import Stage
from tandem.times import seconds


def pods_healthy(servers: Problem | None, situation: Situation) -> list[Finding]:
    """The condition, of the Job that is next on the way, or else of the servers; none while nothing is wrong."""
    decision, observed = situation.decision, situation.observed
    tasks = [step.task.name for step in decision.steps if step.state.stage is Stage.RUNNING]
    problems = [_of_job(observed, name) for name in tasks]
    problem = next((each for each in (*problems, servers, _recovering(observed, situation.now)) if each), None)
    return [Finding(ConditionType.PODS_HEALTHY, "False", problem.reason, problem.message)] if problem else []


def _recovering(observed: Observed, now: str) -> Problem | None:
    """The failure of a container that has not yet run for as long as before it failed, ten minutes at most: what
    fails again and again is one failure, though it is Ready in between."""
    restarts = [server.restart for server in (*observed.replicas, *observed.workers) if server.restart]
    return next((r.problem for r in restarts if seconds(r.since, now) < min(r.lasted, HEALTHY_SECONDS)), None)


def _of_job(observed: Observed, name: str) -> Problem | None:
    """Why it gets no pod, or what is wrong with the last one; those before it failed and were tried again."""
    job = observed.job(name)
    if job is None:
        return None
    return job.problem or (job.pods[-1].problem if job.pods else None)
