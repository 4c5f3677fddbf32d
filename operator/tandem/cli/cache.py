"""`tandem cache`: the volume of downloaded models and built engines."""

import asyncio
import contextlib
import json
import secrets
from typing import Any

import typer

from tandem import names
from tandem.api import GROUP, PLURAL
from tandem.api.wire import Object
from tandem.children.prune import prune_command, prune_job, prune_pod
from tandem.cli import live
from tandem.cli.known_settings import known_settings
from tandem.client import kubectl
from tandem.cluster import parse
from tandem.cluster.manifests import is_true
from tandem.cluster.pods import ended_well, termination_message
from tandem.cluster.problems import pod_problem
from tandem.errors import TandemError
from tandem.plural import counted
from tandem.rollout.prune import common_fields, kept

POLL_SECONDS = 1.0
LEFT = {
    "Unmarked": "not marked by Tandem (your own, or made before there were marks): remove it by hand, or leave it",
    "Shared": "another namespace that shares the volume has asked for it, too (files .used-by-NAMESPACE say which):"
    " run this there",
    "NoLocks": "the volume's file system has no locks, so that a download could lose it: remove it by hand while"
    " no service downloads or builds",
}
"""Why a folder stays that no service refers to; the keys are the fetcher's."""


class PruneFailed(TandemError):
    """The Job did not do it; the message says why."""


async def prune(namespace: str | None, claim: str, image: str | None, *, young: int, dry_run: bool) -> dict[str, Any]:
    """Remove what no service of the namespace (None: the context's) refers to; returns the Job's result.

    `image` None: the operator's fetcher.

    Raises:
        PruneFailed, UnknownReferences, ClusterError, SettingsError: each says what to do.
    """
    place = ("--namespace", namespace) if namespace else ()
    if not await _find("persistentvolumeclaim", claim, *place):
        where = f"namespace {namespace}" if namespace else "the context's namespace"
        raise PruneFailed(
            f"there is no PersistentVolumeClaim {claim} in {where}: write -n NAMESPACE"
            " or --claim NAME of one that services use"
        )
    selector = f"--selector={names.LABEL_MANAGED_BY}={names.FIELD_MANAGER}"
    configmaps = (await kubectl.get("configmaps", selector, *place))["items"]
    services = (await kubectl.get(f"{PLURAL}.{GROUP}", *place))["items"]
    revisions, specs = parse.revisions(configmaps), [live.parse(service).spec for service in services]
    command = prune_command(kept(revisions, parse.results(configmaps), specs, claim), young, dry_run)
    name = f"tandem-prune-{secrets.token_hex(4)}"
    image = image or await _fetcher_image()
    pod = prune_pod(claim, image, command, common_fields(revisions, claim))
    job = prune_job(namespace, name, pod)
    await kubectl.kubectl("create", "--filename=-", *place, stdin=json.dumps(job))
    return await _result(name, *place)


async def _fetcher_image() -> str:
    found = await known_settings(None)
    if found is None:
        raise PruneFailed("you may not read the operator's settings, which name the fetcher's image: write --image")
    return found.fetcher_image


async def _find(*arguments: str) -> Object | None:
    """One object; None where there is none."""
    text = await kubectl.kubectl("get", *arguments, "--ignore-not-found", "--output=json", "--request-timeout=15s")
    return kubectl.parsed(text) if text.strip() else None


async def _result(name: str, *place: str) -> dict[str, Any]:
    shown = ""
    while True:
        await asyncio.sleep(POLL_SECONDS)
        job = await _find("job", name, *place)
        if job is None:
            raise PruneFailed(f"Job {name} was deleted before it ended: run the command again")
        pods = (await kubectl.get("pods", f"--selector=batch.kubernetes.io/job-name={name}", *place))["items"]
        message = next((text for pod in pods if (text := termination_message(pod))), "")
        if message and (is_true(job, "Complete") or any(ended_well(pod) for pod in pods)):
            # A container that others add runs on, such as a mesh's proxy, and would until the Job's deadline.
            with contextlib.suppress(kubectl.ClusterError):
                await kubectl.kubectl("delete", "job", name, *place, "--ignore-not-found", "--wait=false")
            return dict(json.loads(message))
        problem = next((found.message for pod in pods if (found := pod_problem(pod))), "")
        if is_true(job, "Failed"):
            raise PruneFailed(f"Job {name} failed: {message or problem}")
        if problem and problem != shown:
            typer.echo(problem, err=True)
            shown = problem


def report(found: dict[str, Any], *, dry_run: bool) -> str:
    """What was removed and what was not, for people."""
    size = f"{found['bytes'] / 1e9:.2f} GB in {counted(found['folders'], 'folder')}"
    left = [f"{name}: not removed: {LEFT[reason]}" for name, reason in found.get("left", {}).items()]
    if (more := found.get("leftFolders", 0) - len(left)) > 0:
        left.append(f"{counted(more, 'more folder')}: not removed, for one of these reasons")
    return "\n".join([*found["removed"], *left, f"{'would remove' if dry_run else 'removed'} {size}"])
