"""Reading one service and all that is its own."""

import asyncio

from tandem import names
from tandem.cluster.client import Api
from tandem.cluster.kinds import (
    AUTOSCALERS,
    CHILDREN,
    CONFIGMAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    JOB,
    LEADER_WORKER_SET,
    NETWORK_POLICY,
    OPTIONAL,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    SERVICES_KIND,
    Kind,
)
from tandem.cluster.progress import progress
from tandem.errors import Forbidden, Refused
from tandem.rollout.observed import Object, Observed


async def observe(api: Api, namespace: str, name: str) -> Observed | None:
    """The service and its children as they are now, straight from the API server; None when it is gone.

    Read at each reconcile, not kept: what a cache could miss or delay can then do no harm.
    """
    service = await api.get(SERVICES_KIND, namespace, name)
    if service is None or "deletionTimestamp" in service["metadata"]:
        return None
    selector = f"{names.LABEL_SERVICE}={name},{names.LABEL_MANAGED_BY}={names.FIELD_MANAGER}"
    kinds = (*CHILDREN, *OPTIONAL, POD)
    lists = await asyncio.gather(*(_list(api, kind, namespace, selector) for kind in kinds))
    answers = dict(zip(kinds, lists, strict=True))
    uid = service["metadata"]["uid"]
    found = {
        kind: [] if isinstance(answer, Forbidden) else [o for o in answer if kind is POD or owner_uid(o) == uid]
        for kind, answer in answers.items()
    }
    return Observed(
        service,
        configmaps=found[CONFIGMAP],
        jobs=found[JOB],
        deployments=found[DEPLOYMENT],
        services=found[SERVICE],
        service_accounts=found[SERVICE_ACCOUNT],
        disruption_budgets=found[DISRUPTION_BUDGET],
        network_policies=found[NETWORK_POLICY],
        leader_worker_sets=found[LEADER_WORKER_SET],
        autoscalers=[live for kind in AUTOSCALERS for live in found[kind]],
        pods=found[POD],
        progress=await progress(found[POD]),
        unread={kind.kind: answer for kind, answer in answers.items() if isinstance(answer, Forbidden)},
    )


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


def owner_uid(obj: Object) -> str:
    """UID of the controlling owner; empty when there is none."""
    references = obj["metadata"].get("ownerReferences", [])
    return next((str(r["uid"]) for r in references if r.get("controller")), "")
