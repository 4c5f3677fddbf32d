"""Deployment of the Triton pods."""

from typing import Any

from tandem import names
from tandem.api.types import SpeculativeInferenceService
from tandem.children.metadata import metadata, pod_template
from tandem.render import Revision

_STRATEGIES = {
    "Surge": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
    "Replace": {"type": "Recreate"},
}


def deployment(service: SpeculativeInferenceService, revision: Revision) -> dict[str, Any]:
    """`spec.replicas` servers of `revision`, which take the place of others as `spec.rollout` says."""
    rollout = service.spec.rollout
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(service, names.server(service.name), names.SERVER),
        "spec": {
            "replicas": service.spec.replicas,
            "selector": {"matchLabels": names.selector(service.name)},
            "strategy": _STRATEGIES[rollout.strategy],
            "progressDeadlineSeconds": rollout.progress_deadline_seconds,
            "revisionHistoryLimit": 3,
            "template": pod_template(service, revision, revision.pod, names.SERVER),
        },
    }
