"""Job that removes from the cache volume what no service refers to."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tandem import names
from tandem.api.folders import CACHE
from tandem.children.job_pod import NAMESPACE
from tandem.render.latest import CONTAINER_SECURITY

LABELS = {"app.kubernetes.io/name": "tandem"}


def prune_command(keep: Iterable[str], young: int, dry_run: bool) -> list[str]:
    """The fetcher's command: remove what is not in `keep` and not `young` (seconds); its termination message says
    what."""
    command = ["python3", "-m", "tandem_fetcher", "prune", "--cache", CACHE, "--young", str(young)]
    command += ["--termination-log", "/dev/termination-log", *(["--dry-run"] if dry_run else [])]
    return command + [word for each in sorted(keep) for word in ("--keep", each)]


def prune_pod(claim: str, image: str, command: Sequence[str], common: Mapping[str, Any]) -> dict[str, Any]:
    """PodSpec that runs `command` on the volume of `claim`. `common`: what every pod of its services has."""
    container = {
        "name": names.PRUNE,
        "image": image,
        "command": list(command),
        "env": [NAMESPACE],
        "securityContext": CONTAINER_SECURITY,
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}},
        "volumeMounts": [{"name": "cache", "mountPath": CACHE}],
    }
    return {
        **common,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "cache", "persistentVolumeClaim": {"claimName": claim}}],
    }


def prune_job(namespace: str | None, name: str, pod: Mapping[str, Any]) -> dict[str, Any]:
    """The Job; `namespace` None: whoever creates it decides."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {}), "labels": dict(LABELS)},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": 3600,
            "ttlSecondsAfterFinished": 600,
            "template": {"metadata": {"labels": dict(LABELS)}, "spec": dict(pod)},
        },
    }
