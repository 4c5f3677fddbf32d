"""Metadata that all children share, and the names that a rendered pod lacks.

A revision is rendered from its record, which has neither the name nor the UID of a service, and its digest is taken
of what was rendered, which cannot hold the digest. What depends on these three is added here, after the digest was
taken, and nothing else: the ServiceAccount, the volumes of the ConfigMap and the Secret, labels and their selector.

Frozen as the renderers are: what changes here changes the pods of every service, which restarts them all.
"""

from collections.abc import Mapping
from typing import Any

from tandem import names
from tandem.api import API_VERSION, KIND
from tandem.api.types import SpeculativeInferenceService
from tandem.api.wire import Object
from tandem.render import Revision


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


def pod_template(
    service: SpeculativeInferenceService, revision: Revision, pod: Mapping[str, Any], component: str
) -> dict[str, Any]:
    """Pod template of a workload: `pod` with all that depends on names, our labels over the user's."""
    configmap = names.revision(service.name, revision.digest)
    spec = pod_with_revision(dict(pod), configmap, names.server(service.name))
    if any(mount["name"] == "ssh" for each in spec["containers"] for mount in each.get("volumeMounts", ())):
        secret = {"secretName": names.ssh(service.name, service.uid), "defaultMode": 0o440}
        spec["volumes"] = [*spec["volumes"], {"name": "ssh", "secret": secret}]
    if constraints := spec.get("topologySpreadConstraints"):
        # Labels of the user never enter a selector, nor does the revision: old and new pods spread together.
        own = {"labelSelector": {"matchLabels": names.selector(service.name, component)}}
        spec["topologySpreadConstraints"] = [{**own, **constraint} for constraint in constraints]
    ours = {**names.labels(service.name, component), names.LABEL_REVISION: revision.digest}
    labels, annotations = ({**revision.metadata[kind]} for kind in ("labels", "annotations"))
    return {
        "metadata": {"labels": {**labels, **ours}, **({"annotations": annotations} if annotations else {})},
        "spec": spec,
    }


def identity(manifest: Object) -> tuple[str, str]:
    """Kind and name."""
    return str(manifest["kind"]), str(manifest["metadata"]["name"])
