"""The object that decides the replicas: of the kind that the service's autoscaling source makes."""

from typing import Any

from tandem import names
from tandem.api.types import SpeculativeInferenceService
from tandem.autoscaling import source_of
from tandem.children.metadata import metadata
from tandem.settings import Settings


def autoscaler(service: SpeculativeInferenceService, settings: Settings) -> dict[str, Any] | None:
    """None where the service asks for none, or where its source has no metrics to read."""
    scaling = service.spec.autoscaling
    if scaling is None:
        return None
    source = source_of(scaling)
    spec = source.spec(service, scaling, settings)
    if spec is None:
        return None
    return {
        "apiVersion": source.api_version,
        "kind": source.kind,
        "metadata": metadata(service, names.server(service.name), names.SERVER),
        "spec": spec,
    }
