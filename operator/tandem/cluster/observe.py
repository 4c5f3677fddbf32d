"""Reading one service and all that is its own."""

import asyncio
from dataclasses import replace
from typing import NamedTuple

from tandem import names
from tandem.accept.storage import several
from tandem.api.profile import Profile
from tandem.api.roles import references
from tandem.api.types import Scheme, SpeculativeInferenceService
from tandem.api.wire import Object
from tandem.autoscaling import KubernetesVersion, source_of
from tandem.cluster import parse
from tandem.cluster.client import Api
from tandem.cluster.kinds import CACHE_CLAIM, CHILDREN, JOB, OPTIONAL, POD, SERVICES_KIND, Kind
from tandem.cluster.manifests import owner_uid
from tandem.cluster.progress import progress
from tandem.cluster.waits import waits
from tandem.engines import engine_of
from tandem.errors import Forbidden, Refused
from tandem.render.latest import claim_name, uses_cache
from tandem.rollout.observed import Live, Observed
from tandem.settings import Settings


async def observe(
    api: Api, settings: Settings, namespace: str, name: str
) -> tuple[SpeculativeInferenceService, Observed] | None:
    """The service and its children as they are now, straight from the API server; None when it is gone.

    Read at each reconcile, not kept: what a cache could miss or delay can then do no harm. Of a spec that is not
    understood, what only a decision on it looks at is not read.
    """
    found = await read(api, namespace, name)
    if found is None:
        return None
    service, unknown, live = found
    profile = None if unknown else settings.profile(service.spec.runtime.profile)
    wanted = _claim_name(service, profile)
    (children, unread), claim, sources, version = await asyncio.gather(
        _children(api, service),
        _claim(api, service, wanted),
        _source_claims(api, service, profile),
        _kubernetes(api, service),
    )
    if isinstance(claim, Forbidden):
        unread[CACHE_CLAIM.kind] = claim
    waiting = await waits(api, namespace, children[POD.kind], children[JOB.kind], api.now())
    observed = replace(
        parse.parse(name, children, waiting.problems),
        service=live,
        claim=parse.claim(claim) if isinstance(claim, dict) else None,
        claim_name=wanted,
        source_claims=sources,
        progress=await progress(children[POD.kind]),
        waits=waiting.any,
        not_understood=unknown,
        kubernetes=version,
        unread=unread,
    )
    return service, observed


class FoundService(NamedTuple):
    """A service, as far as it is understood."""

    service: SpeculativeInferenceService
    unknown: str
    """What of its spec is not understood; empty: all is."""
    live: Live


async def read(api: Api, namespace: str, name: str) -> FoundService | None:
    """The service as it is now; None where it is gone, or being deleted."""
    manifest = await _live(api, namespace, name)
    if manifest is None:
        return None
    return FoundService(
        *SpeculativeInferenceService.read(manifest), Live(SERVICES_KIND.kind, name, manifest=manifest)
    )


async def is_there(api: Api, service: SpeculativeInferenceService) -> bool:
    """Whether it still is, and is not being deleted.

    `observe` reads the service before its children. If it was deleted in between, the garbage collector may have
    taken some of them, which must not be made again. If it is still there after both, what is missing must be made.
    """
    manifest = await _live(api, service.namespace, service.name)
    return manifest is not None and manifest["metadata"]["uid"] == service.uid


async def _live(api: Api, namespace: str, name: str) -> Object | None:
    """The service; None where it is gone, or being deleted."""
    manifest = await api.get(SERVICES_KIND, namespace, name)
    return None if manifest is None or "deletionTimestamp" in manifest["metadata"] else manifest


async def _children(
    api: Api, service: SpeculativeInferenceService
) -> tuple[dict[str, list[Object]], dict[str, Forbidden]]:
    """The children that the service owns, and its pods, by kind; and the kinds that may not be read, with why."""
    selector = f"{names.LABEL_SERVICE}={service.name},{names.LABEL_MANAGED_BY}={names.FIELD_MANAGER}"
    kinds = (*CHILDREN, *OPTIONAL, POD)
    answers = await asyncio.gather(*(_list(api, kind, service.namespace, selector) for kind in kinds))
    children, unread = dict[str, list[Object]](), dict[str, Forbidden]()
    for kind, answer in zip(kinds, answers, strict=True):
        if isinstance(answer, Forbidden):
            children[kind.kind], unread[kind.kind] = [], answer
        else:
            children[kind.kind] = [each for each in answer if kind is POD or owner_uid(each) == service.uid]
    return children, unread


async def _list(api: Api, kind: Kind, namespace: str, selector: str) -> list[Object] | Forbidden:
    """The objects of a kind; none where an optional one is not installed. Why, where it may not be read."""
    try:
        return await api.list_objects(kind, namespace, selector)
    except Forbidden as error:
        return error
    except Refused as error:
        if kind in OPTIONAL and error.status == 404:
            return []
        raise


async def _kubernetes(api: Api, service: SpeculativeInferenceService) -> KubernetesVersion | None:
    """The API server's version, for a service whose autoscaling depends on it: each time, as it may be upgraded."""
    scaling = service.spec.autoscaling
    return await api.version() if scaling and source_of(scaling).least_kubernetes(scaling) else None


def _claim_name(service: SpeculativeInferenceService, profile: Profile | None) -> str:
    """The cache's claim, of a service that uses one: for the others it is not worth a request."""
    return claim_name(service.spec) if profile and uses_cache(service.spec, engine_of(service.spec, profile)) else ""


async def _claim(api: Api, service: SpeculativeInferenceService, name: str) -> Object | Forbidden | None:
    if not name:
        return None
    try:
        return await api.get(CACHE_CLAIM, service.namespace, name)
    except Forbidden as error:
        return error


async def _source_claims(
    api: Api, service: SpeculativeInferenceService, profile: Profile | None
) -> dict[str, tuple[str, ...]]:
    """Access modes of the claims of `pvc://`, where pods may be on several nodes; else they are not asked for."""
    if not profile or not several(service.spec, engine_of(service.spec, profile)):
        return {}
    sources = references(service.spec).values()
    claims = sorted({each.uri.split("://", 1)[1].partition("/")[0] for each in sources if each.scheme is Scheme.PVC})
    found = await asyncio.gather(*(_claim(api, service, name) for name in claims))
    return {
        name: parse.claim(each).access_modes
        for name, each in zip(claims, found, strict=True)
        if isinstance(each, dict)
    }
