"""Builders of the children: one file a kind. Pure: no I/O, clock or randomness; arguments are not changed."""

from tandem.build.configmap import preflight_result, revision_configmap
from tandem.build.deployment import deployment
from tandem.build.job import preflight_job
from tandem.build.service import endpoint
from tandem.build.serviceaccount import service_account

__all__ = [
    "deployment",
    "endpoint",
    "preflight_job",
    "preflight_result",
    "revision_configmap",
    "service_account",
]
