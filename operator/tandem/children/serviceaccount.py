"""ServiceAccount of the pods."""

from typing import Any

from tandem import names
from tandem.api.types import SpeculativeInferenceService
from tandem.children.metadata import metadata


def service_account(service: SpeculativeInferenceService) -> dict[str, Any]:
    """An identity without rights, and no token in the pods."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(service, names.server(service.name), names.SERVER),
        "automountServiceAccountToken": False,
    }
