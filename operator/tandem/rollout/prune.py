"""What a namespace's services keep in its cache volume. Pure."""

import posixpath
from collections.abc import Iterable, Iterator, Sequence

from tandem import names
from tandem.api.folders import CACHE, folders
from tandem.api.roles import references
from tandem.api.types import Scheme, ServiceSpec, UserIds
from tandem.api.wire import Object
from tandem.errors import TandemError
from tandem.render import Record, render
from tandem.render.latest import claim_name, every_pod, uses_cache, volume_scheduling
from tandem.rollout.observed import Live, StoredRevision, TaskResult

KEPT_LEVELS = 2  # models/KEY, engines/KEY


class UnknownReferences(TandemError):
    """A revision cannot be read, so what it refers to is not known."""


def kept(
    revisions: Iterable[StoredRevision],
    results: Iterable[TaskResult],
    specs: Iterable[ServiceSpec] = (),
    claim: str = "",
) -> set[str]:
    """Folders that the services of a namespace refer to: `models/KEY` and `engines/KEY`, by all their revisions and
    results; and what is at a `pvc://` of `claim`, which may be of more (`models`; `.`: all).

    Every revision counts that could be gone back to, and every download that was done for one to come.

    Raises:
        UnknownReferences: a revision or a result was made by another version of the operator.
    """
    paths: set[str] = {path for spec in specs for path in _of_claim(spec, claim)}
    for record in map(_record, revisions):
        paths |= {*_of_revision(record), *_of_claim(record.spec, claim)}
    paths |= {_downloaded(result) for result in results if result.component == names.FETCH}
    return {_key(path) for path in paths if path}


def _of_claim(spec: ServiceSpec, claim: str) -> Iterator[str]:
    """Paths below a claim that is mounted; `.` for all of it."""
    for reference in references(spec).values():
        name, _, path = reference.uri.removeprefix("pvc://").partition("/")
        if reference.scheme is Scheme.PVC and name == claim:
            yield posixpath.normpath(path.strip("/") or ".")


def common_fields(revisions: Sequence[StoredRevision], claim: str) -> Object:
    """What the pod that clears `claim` has, as the services of the namespace do: their users, their pull secrets, and
    where pods run that mount the claim. Of several services the newest revision counts.

    Raises:
        UnknownReferences: a revision was made by another version of the operator.
    """
    records = [_record(revision) for revision in revisions]
    newest = next((record for record in records if _mounts(record, claim)), None)
    nodes = volume_scheduling(newest.spec.placement, newest.engine.oldest_gpu) if newest else {}
    return every_pod(_user_ids(records), nodes, _pull_secrets(records))


def _mounts(record: Record, claim: str) -> bool:
    in_cache = claim_name(record.spec) == claim and uses_cache(record.spec, record.engine)
    return in_cache or any(_of_claim(record.spec, claim))


def _pull_secrets(records: Sequence[Record]) -> list[Object]:
    """Pull secrets of all revisions: a registry that wants one for the servers' images may hold the fetcher's too."""
    shared = {name: {"name": name} for record in records if record.pods for name in record.pods.image_pull_secrets}
    templates = [template.spec for record in records if (template := record.spec.pod_template) and template.spec]
    own = {str(secret["name"]): secret for spec in templates for secret in spec.image_pull_secrets or ()}
    secrets = {**shared, **own}
    return [secrets[name] for name in sorted(secrets)]


def _user_ids(records: Sequence[Record]) -> UserIds:
    """Who chooses the users that pods run as, by the newest revision."""
    newest = next((record.pods for record in records), None)
    return newest.user_ids if newest else "Fixed"


def _record(revision: StoredRevision) -> Record:
    if revision.record is None:
        raise _unknown(revision.live)
    return revision.record


def _downloaded(result: TaskResult) -> str:
    if result.verdict.error:
        raise _unknown(result.live)
    return result.verdict.folder.removeprefix(f"{CACHE}/")


def _unknown(configmap: Live) -> UnknownReferences:
    return UnknownReferences(f"ConfigMap {configmap.name} is of another version of Tandem: use that one's command")


def _of_revision(record: Record) -> set[str]:
    builds = render(record).builds.values()
    used = [*folders(record.spec, record.fetched).values(), *(build.folder for build in builds)]
    return {folder.removeprefix(f"{CACHE}/") for folder in used if folder.startswith(f"{CACHE}/")}


def _key(path: str) -> str:
    return "/".join(path.split("/")[:KEPT_LEVELS])
