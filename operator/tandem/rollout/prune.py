"""What a namespace's services keep in its cache volume, and the Job that removes the rest. Pure."""

import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from tandem import names
from tandem.api.types import Scheme, ServiceSpec
from tandem.children.task import VERDICT_KEY
from tandem.errors import TandemError
from tandem.render import RECORD_FILE, Record
from tandem.render.v1.engines import engine_folders
from tandem.render.v1.security import CONTAINER_SECURITY, POD_SECURITY
from tandem.render.v1.sources import CACHE, folders, references
from tandem.rollout.observed import Object, label

KEPT_LEVELS = 2  # models/KEY, engines/KEY


class UnknownReferences(TandemError):
    """A revision cannot be read, so nobody can say what it refers to."""


def kept(configmaps: Iterable[Object], specs: Iterable[ServiceSpec] = (), claim: str = "") -> set[str]:
    """Folders that the services of a namespace refer to: `models/KEY` and `engines/KEY`, by all their ConfigMaps; and
    what is at a `pvc://` of `claim`, which may be of more (`models`; `.`: all).

    Every revision counts that could be gone back to, and every download that was done for one to come.

    Raises:
        UnknownReferences: a revision was made by another version of the operator.
    """
    found: set[str] = {path for spec in specs for path in _of_claim(spec, claim)}
    for configmap in configmaps:
        component, data = label(configmap, names.LABEL_COMPONENT), configmap.get("data", {})
        if component == names.REVISION:
            record = _record(configmap)
            found |= {*_of_revision(record), *_of_claim(record.spec, claim)}
        elif component == names.result(names.FETCH):
            found.add(str(json.loads(data[VERDICT_KEY]).get("path", "")))
    return {_key(path) for path in found if path}


def _of_claim(spec: ServiceSpec, claim: str) -> Iterator[str]:
    """Paths below a claim that is mounted; `.` for all of it."""
    for reference in references(spec).values():
        name, _, path = reference.uri.removeprefix("pvc://").partition("/")
        if reference.scheme is Scheme.PVC and name == claim:
            yield posixpath.normpath(path.strip("/") or ".")


def pull_secrets(configmaps: Iterable[Object]) -> list[dict[str, Any]]:
    """Pull secrets of the services of a namespace, by all their revisions: a registry that wants one for the servers'
    images may hold the fetcher's too.

    Raises:
        UnknownReferences: a revision was made by another version of the operator.
    """
    records = [_record(each) for each in configmaps if label(each, names.LABEL_COMPONENT) == names.REVISION]
    templates = [template.spec for record in records if (template := record.spec.pod_template) and template.spec]
    found = {str(secret["name"]): secret for spec in templates for secret in spec.image_pull_secrets or ()}
    return [found[name] for name in sorted(found)]


def _record(configmap: Object) -> Record:
    try:
        return Record.model_validate_json(configmap.get("data", {}).get(RECORD_FILE, ""))
    except ValidationError as error:
        raise UnknownReferences(
            f"ConfigMap {configmap['metadata']['name']} is of another version of Tandem: use that one's command"
        ) from error


def _of_revision(record: Record) -> set[str]:
    image = record.spec.runtime.image or record.profile.image
    models = folders(record.spec, record.fetched)
    used = [*models.values(), *engine_folders(record.spec, record.profile, image, models).values()]
    return {folder.removeprefix(f"{CACHE}/") for folder in used if folder.startswith(f"{CACHE}/")}


def _key(path: str) -> str:
    return "/".join(path.split("/")[:KEPT_LEVELS])


def _prune(keep: Iterable[str], young: int, dry_run: bool) -> list[str]:
    """The fetcher's command."""
    command = ["python3", "-m", "tandem_fetcher", "prune", "--cache", CACHE, "--young", str(young)]
    command += ["--termination-log", "/dev/termination-log", *(["--dry-run"] if dry_run else [])]
    return command + [word for each in sorted(keep) for word in ("--keep", each)]


def prune_job(
    namespace: str | None,
    name: str,
    claim: str,
    image: str,
    keep: Iterable[str],
    secrets: Sequence[Mapping[str, Any]] = (),
    *,
    young: int,
    dry_run: bool,
) -> Object:
    """The Job that removes what is not in `keep` and not `young` (seconds); its termination message says what.

    `namespace` None: whoever creates it decides. `secrets`: with which the image is pulled.
    """
    place = {"namespace": namespace} if namespace else {}
    container: dict[str, Any] = {
        "name": names.PRUNE,
        "image": image,
        "command": _prune(keep, young, dry_run),
        "securityContext": CONTAINER_SECURITY,
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "volumeMounts": [{"name": "cache", "mountPath": CACHE}],
    }
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "securityContext": POD_SECURITY,
        **({"imagePullSecrets": list(secrets)} if secrets else {}),
        "containers": [container],
        "volumes": [{"name": "cache", "persistentVolumeClaim": {"claimName": claim}}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, **place, "labels": {"app.kubernetes.io/name": "tandem"}},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": 3600,
            "ttlSecondsAfterFinished": 600,
            "template": {"metadata": {"labels": {"app.kubernetes.io/name": "tandem"}}, "spec": pod},
        },
    }
