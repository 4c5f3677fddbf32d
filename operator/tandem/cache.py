"""What a namespace's services keep in its cache volume, and the Job that removes the rest. Pure."""

import json
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from tandem import names
from tandem.build.task import VERDICT_KEY
from tandem.engines import engine_folders
from tandem.errors import TandemError
from tandem.observed import Object, label
from tandem.render import RECORD_FILE, Record
from tandem.security import CONTAINER_SECURITY, POD_SECURITY
from tandem.sources import CACHE, folders

KEPT_LEVELS = 2  # models/KEY, engines/KEY


class UnknownReferences(TandemError):
    """A revision cannot be read, so nobody can say what it refers to."""


def kept(configmaps: Iterable[Object]) -> set[str]:
    """`models/KEY` and `engines/KEY` that the services of a namespace refer to, by all their ConfigMaps.

    Every revision counts that could be gone back to, and every download that was done for one to come.

    Raises:
        UnknownReferences: a revision was made by another version of the operator.
    """
    found: set[str] = set()
    for configmap in configmaps:
        component, data = label(configmap, names.LABEL_COMPONENT), configmap.get("data", {})
        if component == names.REVISION:
            found |= _of_revision(configmap["metadata"]["name"], data.get(RECORD_FILE, ""))
        elif component == names.result(names.FETCH):
            found.add(str(json.loads(data[VERDICT_KEY]).get("path", "")))
    return {_key(path) for path in found if path}


def _of_revision(name: str, text: str) -> set[str]:
    try:
        record = Record.model_validate_json(text)
    except ValidationError as error:
        raise UnknownReferences(
            f"ConfigMap {name} is of another version of Tandem: use that one's command"
        ) from error
    image = record.spec.runtime.image or record.profile.image
    models = folders(record.spec, record.fetched)
    used = [*models.values(), *engine_folders(record.spec, record.profile, image, models).values()]
    return {folder.removeprefix(f"{CACHE}/") for folder in used if folder.startswith(f"{CACHE}/")}


def _key(path: str) -> str:
    return "/".join(path.split("/")[:KEPT_LEVELS])


def prune_job(
    namespace: str, name: str, claim: str, image: str, keep: Iterable[str], *, young: int, dry_run: bool
) -> Object:
    """The Job that removes what is not in `keep` and not `young` (seconds); its termination message says what."""
    command = ["python3", "-m", "tandem_fetcher", "prune", "--cache", CACHE]
    command += [
        "--young",
        str(young),
        "--termination-log",
        "/dev/termination-log",
        *(["--dry-run"] if dry_run else []),
    ]
    command += [word for each in sorted(keep) for word in ("--keep", each)]
    container: dict[str, Any] = {
        "name": "prune",
        "image": image,
        "command": command,
        "securityContext": CONTAINER_SECURITY,
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "volumeMounts": [{"name": "cache", "mountPath": CACHE}],
    }
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "securityContext": POD_SECURITY,
        "containers": [container],
        "volumes": [{"name": "cache", "persistentVolumeClaim": {"claimName": claim}}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/name": "tandem"}},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": 3600,
            "ttlSecondsAfterFinished": 600,
            "template": {"metadata": {"labels": {"app.kubernetes.io/name": "tandem"}}, "spec": pod},
        },
    }
