"""Builders of the children: one file a kind. Pure: no I/O, clock or randomness; arguments are not changed."""

from tandem.build.cache import cache_claim, claim_name
from tandem.build.configmap import revision_configmap
from tandem.build.deployment import deployment
from tandem.build.service import endpoint
from tandem.build.serviceaccount import service_account
from tandem.build.task import Task, task_job, task_result

__all__ = [
    "Task",
    "cache_claim",
    "claim_name",
    "deployment",
    "endpoint",
    "revision_configmap",
    "service_account",
    "task_job",
    "task_result",
]
