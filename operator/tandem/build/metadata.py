"""Metadata that all children share."""

from typing import Any

from tandem import names
from tandem.api import API_VERSION, KIND
from tandem.api.types import SpeculativeInferenceService


def metadata(service: SpeculativeInferenceService, name: str, component: str) -> dict[str, Any]:
    """Name, labels and owner of a child. The owner is left out for a manifest that was never applied."""
    meta: dict[str, Any] = {
        "name": name,
        "namespace": service.namespace,
        "labels": names.labels(service.name, component),
    }
    if service.uid:
        meta["ownerReferences"] = [
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": service.name,
                "uid": service.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
    return meta


def pod_with_revision(pod: dict[str, Any], configmap: str, account: str) -> dict[str, Any]:
    """`pod` as `account`, with the volume `revision` that holds the files of `configmap`."""
    volume = {"name": "revision", "configMap": {"name": configmap}}
    return {**pod, "serviceAccountName": account, "volumes": [*pod["volumes"], volume]}
