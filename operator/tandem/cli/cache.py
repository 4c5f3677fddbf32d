"""`tandem cache`: the volume of downloaded models and built engines."""

import asyncio
import json
import secrets
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem import names
from tandem.cache import kept, prune_job, pull_secrets
from tandem.cluster.kinds import CACHE_CLAIM, CONFIGMAP, JOB, POD
from tandem.errors import TandemError
from tandem.observed import Object, is_true, pod_problem, termination_message
from tandem.settings import Settings

if TYPE_CHECKING:
    from tandem.cluster.client import Api

POLL_SECONDS = 1.0
DEFAULT_IMAGE = Settings().fetcher_image

app = typer.Typer(help="The volume of downloaded models and built engines.", no_args_is_help=True)

Namespace = Annotated[
    str | None,
    typer.Option("-n", "--namespace", help="Namespace of the services and the claim; the context's by default."),
]
Claim = Annotated[str, typer.Option(help="PersistentVolumeClaim to clear up.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what would be removed.")]
Young = Annotated[int, typer.Option(min=0, help="Keep what was written or asked for within so many seconds.")]
Image = Annotated[str, typer.Option(help="Image of the fetcher: what the chart has as fetcherImage.")]


class PruneFailed(TandemError):
    """The Job did not do it; the message says why."""


async def prune(namespace: str | None, claim: str, image: str, *, young: int, dry_run: bool) -> dict[str, Any]:
    """Remove what no service of the namespace (None: the context's) refers to; returns what the Job tells.

    Raises:
        PruneFailed, UnknownReferences, Refused, Transient, SettingsError: each says what to do.
    """
    from tandem.cluster.client import Api, current_namespace  # slow to import, and the other commands do without

    async with await Api.connect() as api:
        namespace = namespace or current_namespace()
        if await api.get(CACHE_CLAIM, namespace, claim) is None:
            raise PruneFailed(
                f"there is no PersistentVolumeClaim {claim} in namespace {namespace}: nothing was cached there;"
                " -n and --claim name others"
            )
        selector = f"{names.LABEL_MANAGED_BY}={names.FIELD_MANAGER}"
        configmaps = await api.list_objects(CONFIGMAP, namespace, selector)
        keep, pulls = kept(configmaps), pull_secrets(configmaps)
        name = f"tandem-prune-{secrets.token_hex(4)}"
        job = prune_job(namespace, name, claim, image, keep, pulls, young=young, dry_run=dry_run)
        made = await api.create(JOB, job)
        return await _result(api, {**job, **made})


async def _result(api: "Api", job: Object) -> dict[str, Any]:
    namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
    said = ""
    while True:
        await asyncio.sleep(POLL_SECONDS)
        live = await api.get(JOB, namespace, name)
        if live is None:
            raise PruneFailed(f"Job {name} is gone: somebody deleted it")
        pods = await api.list_objects(POD, namespace, f"batch.kubernetes.io/job-name={name}")
        told = next((text for pod in pods if (text := termination_message(pod))), "")
        if is_true(live, "Complete") and told:
            return dict(json.loads(told))
        problem = next((text for pod in pods if (text := pod_problem(pod))), "")
        if is_true(live, "Failed"):
            raise PruneFailed(f"Job {name} failed: {told or problem}")
        if problem and problem != said:
            typer.echo(problem, err=True)
            said = problem


def report(found: dict[str, Any], *, dry_run: bool) -> str:
    """What was removed, for people."""
    size = f"{found['bytes'] / 1e9:.2f} GB in {found['folders']} folders"
    return "\n".join([*found["removed"], f"{'would remove' if dry_run else 'removed'} {size}"])
