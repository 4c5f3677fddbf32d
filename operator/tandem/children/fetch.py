"""Pod that downloads a model into the cache volume."""

from collections.abc import Sequence
from typing import Any

from tandem import names
from tandem.api import ports
from tandem.api.types import Source, SpeculativeInferenceService
from tandem.render.latest import CACHE, CONTAINER_SECURITY, claim_name, pod_security
from tandem.settings import Settings


def fetch_pod(
    service: SpeculativeInferenceService, settings: Settings, reference: Source, files: Sequence[str]
) -> dict[str, Any]:
    """PodSpec that downloads `reference` into the cache volume; `files`: patterns, none for those of a model."""
    return {
        "serviceAccountName": names.server(service.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 10,
        "securityContext": pod_security(settings.user_ids),
        "containers": [_container(settings.fetcher_image, reference, files)],
        "volumes": [
            {"name": "cache", "persistentVolumeClaim": {"claimName": claim_name(service.spec)}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
        ],
        **_as_the_servers(service),
    }


def _container(image: str, reference: Source, files: Sequence[str]) -> dict[str, Any]:
    secret = [{"secretRef": {"name": reference.secret_name}}] if reference.secret_name else []
    return {
        "name": names.FETCH,
        "image": image,
        "command": [
            *("python3", "-m", "tandem_fetcher", "fetch", "--uri", reference.uri, "--cache", CACHE),
            *(("--revision", reference.revision) if reference.revision else ()),
            *(word for pattern in files for word in ("--allow", pattern)),
            *("--port", str(ports.FETCH), "--termination-log", "/dev/termination-log"),
        ],
        # Servers may have to stay offline (podTemplate), which a download cannot.
        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "HF_HUB_OFFLINE", "value": "0"}],
        **({"envFrom": secret} if secret else {}),
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [{"name": "cache", "mountPath": CACHE}, {"name": "tmp", "mountPath": "/tmp"}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _as_the_servers(service: SpeculativeInferenceService) -> dict[str, Any]:
    """Where they run, since a volume of one node or zone must be made there; and with their pull secrets: a registry
    that wants one for the servers' images may hold the fetcher's too."""
    placement, template = service.spec.placement, service.spec.pod_template
    nodes = (placement.affinity or {}).get("nodeAffinity")
    tolerations = [each.model_dump(by_alias=True, exclude_none=True) for each in placement.tolerations]
    fields = {
        "nodeSelector": dict(placement.node_selector),
        "affinity": {"nodeAffinity": nodes} if nodes else None,
        "tolerations": tolerations,
        "imagePullSecrets": template.spec.image_pull_secrets if template and template.spec else None,
    }
    return {name: value for name, value in fields.items() if value}
