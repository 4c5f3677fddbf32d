"""Deployment of the Triton pods."""

from typing import Any

from tandem import names
from tandem.api.types import SpeculativeInferenceService
from tandem.build.metadata import metadata, pod_template
from tandem.render import Revision

PROGRESS_DEADLINE_SECONDS = 3900  # above the startup probe's budget: a slow load is no failure


def deployment(service: SpeculativeInferenceService, revision: Revision) -> dict[str, Any]:
    """`spec.replicas` servers of `revision`; new pods are ready before old ones stop."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(service, names.server(service.name), names.SERVER),
        "spec": {
            "replicas": service.spec.replicas,
            "selector": {"matchLabels": names.selector(service.name)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "progressDeadlineSeconds": PROGRESS_DEADLINE_SECONDS,
            "revisionHistoryLimit": 3,
            "template": pod_template(service, revision, revision.pod, names.SERVER),
        },
    }
