"""Builders of the children: one file a kind. Pure: no I/O, clock or randomness; arguments are not changed."""

from typing import Any

from tandem.api.types import SpeculativeInferenceService
from tandem.build.autoscaler import autoscaler
from tandem.build.cache import cache_claim
from tandem.build.configmap import revision_configmap
from tandem.build.deployment import deployment
from tandem.build.disruption import disruption_budget
from tandem.build.leaderworkerset import leader_worker_set
from tandem.build.networkpolicy import network_policy
from tandem.build.secret import ssh_secret
from tandem.build.service import endpoint
from tandem.build.serviceaccount import service_account
from tandem.build.task import Task, task_job, task_result
from tandem.render import Revision

__all__ = [
    "Task",
    "autoscaler",
    "cache_claim",
    "deployment",
    "disruption_budget",
    "endpoint",
    "leader_worker_set",
    "network_policy",
    "revision_configmap",
    "service_account",
    "ssh_secret",
    "task_job",
    "task_result",
    "workload",
]


def workload(service: SpeculativeInferenceService, revision: Revision) -> dict[str, Any]:
    """`spec.replicas` replicas of `revision`: a Deployment, or a LeaderWorkerSet where each is a group of pods."""
    return leader_worker_set(service, revision) or deployment(service, revision)
