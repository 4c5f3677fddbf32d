"""Reading one service and all that is its own."""

import asyncio

from tandem import names
from tandem.cluster.client import Api
from tandem.cluster.kinds import (
    CONFIGMAP,
    DEPLOYMENT,
    JOB,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    SERVICES_KIND,
)
from tandem.cluster.progress import progress
from tandem.observed import Object, Observed


async def observe(api: Api, namespace: str, name: str) -> Observed | None:
    """The service and its children as they are now, straight from the API server; None when it is gone.

    Read at each reconcile, not kept: what a cache could miss or delay can then do no harm.
    """
    service = await api.get(SERVICES_KIND, namespace, name)
    if service is None or "deletionTimestamp" in service["metadata"]:
        return None
    selector = f"{names.LABEL_SERVICE}={name},{names.LABEL_MANAGED_BY}={names.FIELD_MANAGER}"
    kinds = (CONFIGMAP, JOB, DEPLOYMENT, SERVICE, SERVICE_ACCOUNT, POD)
    lists = await asyncio.gather(*(api.list_objects(kind, namespace, selector) for kind in kinds))
    uid = service["metadata"]["uid"]
    configmaps, jobs, deployments, services, accounts, pods = (
        [obj for obj in objects if kind is POD or owner_uid(obj) == uid]
        for kind, objects in zip(kinds, lists, strict=True)
    )
    told = await progress(pods)
    return Observed(service, configmaps, jobs, deployments, services, accounts, pods, progress=told)


def owner_uid(obj: Object) -> str:
    """UID of the controlling owner; empty when there is none."""
    references = obj["metadata"].get("ownerReferences", [])
    return next((str(r["uid"]) for r in references if r.get("controller")), "")
