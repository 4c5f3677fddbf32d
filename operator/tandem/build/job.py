"""Job that checks a revision's models before any server pod is made from it."""

from typing import Any

from tandem import names
from tandem.api.types import SpeculativeInferenceService
from tandem.build.metadata import metadata, pod_with_revision
from tandem.render import Revision


def preflight_job(service: SpeculativeInferenceService, revision: Revision) -> dict[str, Any]:
    """Runs the entry point's `preflight` in the revision's own image; its termination message is the verdict."""
    pod = pod_with_revision(
        dict(revision.preflight),
        names.revision(service.name, revision.digest),
        names.server(service.name),
    )
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(service, names.preflight(service.name, revision.preflight_digest), names.PREFLIGHT),
        "spec": {
            "backoffLimit": 2,
            "activeDeadlineSeconds": 3600,
            "template": {
                "metadata": {"labels": names.labels(service.name, names.PREFLIGHT)},
                "spec": pod,
            },
        },
    }
