"""PersistentVolumeClaim of downloaded models and built engines."""

from typing import Any

from tandem import names
from tandem.api.types import SpeculativeInferenceService


def cache_claim(service: SpeculativeInferenceService) -> dict[str, Any]:
    """The namespace's claim. No service owns it: deleting one loses no download of another, or of the next."""
    cache = service.spec.storage.cache
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": names.CACHE_CLAIM,
            "namespace": service.namespace,
            "labels": {"app.kubernetes.io/name": "tandem", names.LABEL_MANAGED_BY: names.FIELD_MANAGER},
        },
        "spec": {
            "accessModes": list(cache.access_modes),
            "resources": {"requests": {"storage": cache.size}},
            **({"storageClassName": cache.storage_class_name} if cache.storage_class_name else {}),
        },
    }
