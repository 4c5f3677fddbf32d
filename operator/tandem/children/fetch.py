"""Pod that downloads a model into the cache volume."""

from collections.abc import Sequence
from typing import Any

from tandem import names
from tandem.api import ports
from tandem.api.folders import CACHE
from tandem.api.types import Source, SpeculativeInferenceService
from tandem.engines import engine_of
from tandem.render.latest import CONTAINER_SECURITY, claim_name, every_pod, volume_scheduling
from tandem.settings import Settings


def fetch_pod(
    service: SpeculativeInferenceService, settings: Settings, reference: Source, files: Sequence[str]
) -> dict[str, Any]:
    """PodSpec that downloads `reference` into the cache volume; `files`: patterns, none for those of a model."""
    spec, profile = service.spec, settings.profile(service.spec.runtime.profile)
    template = spec.pod_template.spec if spec.pod_template else None
    # A registry that wants secrets for the servers' images may hold the fetcher's too.
    secrets = (template.image_pull_secrets if template else None) or []
    nodes = volume_scheduling(spec.placement, engine_of(spec, profile).oldest_gpu if profile else None)
    return {
        **every_pod(settings.user_ids, nodes, secrets),
        "serviceAccountName": names.server(service.name),
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 10,
        "containers": [_container(settings.fetcher_image, reference, files)],
        "volumes": [
            {"name": "cache", "persistentVolumeClaim": {"claimName": claim_name(spec)}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
        ],
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
