"""ConfigMaps: a rendered revision, and the result of its preflight."""

from typing import Any

from tandem import names
from tandem.api.types import SpeculativeInferenceService
from tandem.build.metadata import metadata
from tandem.render import Revision

VERDICT_KEY = "verdict.json"


def revision_configmap(service: SpeculativeInferenceService, revision: Revision) -> dict[str, Any]:
    """The revision's files, immutable: changing the spec makes another one."""
    meta = metadata(service, names.revision(service.name, revision.digest), names.REVISION)
    meta["labels"][names.LABEL_REVISION] = revision.digest
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": meta,
        "immutable": True,
        "data": dict(revision.files),
    }


def preflight_result(service: SpeculativeInferenceService, digest: str, verdict: str) -> dict[str, Any]:
    """The preflight's verdict (its termination message), so that equal inputs are never checked twice."""
    meta = metadata(service, names.preflight(service.name, digest), names.PREFLIGHT_RESULT)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": meta,
        "immutable": True,
        "data": {VERDICT_KEY: verdict},
    }
