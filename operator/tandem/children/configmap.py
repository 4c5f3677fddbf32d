"""ConfigMap of a rendered revision."""

from typing import Any

from tandem import names
from tandem.api.types import SpeculativeInferenceService
from tandem.children.metadata import metadata
from tandem.render import Revision


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
