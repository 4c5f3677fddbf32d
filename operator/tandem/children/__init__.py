"""Builders of the children: one file a kind. Pure: no I/O, clock or randomness; arguments are not changed.

`rollout` decides which of them should exist.
"""

from typing import Any

from tandem.api.types import SpeculativeInferenceService
from tandem.children.autoscaler import autoscaler
from tandem.children.cache import cache_claim
from tandem.children.configmap import revision_configmap
from tandem.children.deployment import deployment
from tandem.children.disruption import disruption_budget
from tandem.children.gateway import http_route, inference_pool
from tandem.children.leaderworkerset import leader_worker_set
from tandem.children.networkpolicy import network_policy
from tandem.children.secret import ssh_secret
from tandem.children.service import endpoint
from tandem.children.serviceaccount import service_account
from tandem.children.task import Task, task_job, task_result
from tandem.render import Revision

__all__ = [
    "Task",
    "autoscaler",
    "cache_claim",
    "deployment",
    "disruption_budget",
    "endpoint",
    "http_route",
    "inference_pool",
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
