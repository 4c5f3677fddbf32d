"""Carrying out a plan, and writing a status.

Each write names the resourceVersion that the plan rests on: a process that stood still past its Lease, with a request
on its way, would else overwrite what the next leader wrote. The API server answers 409, and a new reconcile follows.
A child's controller writes to it, too, but seldom in the moment between our read and our write.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tandem import names
from tandem.api.wire import Object
from tandem.children.comparison import matches, owned_fields
from tandem.children.foreign import as_wanted, described, foreign, taken_over
from tandem.children.metadata import identity
from tandem.cluster.client import Api
from tandem.cluster.keys import new_key_pair
from tandem.cluster.kinds import AUTOSCALERS, BY_KIND, DISRUPTION_BUDGET, OPTIONAL, SECRET, SERVICE, SERVICES_KIND
from tandem.cluster.manifests import label, owner_uid
from tandem.errors import KindMissing, NameTaken, Refused
from tandem.rollout.observed import Live
from tandem.rollout.plan import Action, Apply, CreateKeys, Delete

log = logging.getLogger(__name__)

INSTALL = {
    "LeaderWorkerSet": "a replica that needs several nodes is one; install https://lws.sigs.k8s.io, or write parallel"
    " sizes that placement.gpu.perNode holds",
    "HTTPRoute": "serving.openAI.route is one; install https://gateway-api.sigs.k8s.io with a controller, or remove"
    " route",
    "InferencePool": "serving.openAI.inferencePool is one; install its definition"
    " (https://gateway-api-inference-extension.sigs.k8s.io), or remove inferencePool",
    **{kind.kind: install for kind, install in AUTOSCALERS.items() if install},
}
"""What to do where a kind is missing."""
UNKNOWN_KIND = ("page not found", "could not find the requested resource")
"""How the API server says so; it also answers 404 when the namespace is gone."""

NEVER = "1"
"""A resourceVersion that no object has any more: what is applied with it is created, or else answered with 409, so
that what another made since we looked is not taken over (https://github.com/kubernetes/kubernetes/issues/106745)."""

LEAVES = (SERVICE.kind, DISRUPTION_BUDGET.kind)
"""What no other child rests on: without them pods still come up as they should. Not so a NetworkPolicy, say."""


async def execute(api: Api, actions: Sequence[Action], may_write: Callable[[], None]) -> list[Refused]:
    """Carry out a plan, in order; what the API server refused of it, which keeps back only what may rest on it.

    `may_write` is asked before each request, and raises when it may not. Of what is refused `KindMissing` says that
    the cluster does not know a child's kind, and `NameTaken` that somebody else has its name, whose object is left
    alone.

    Raises:
        NotLeader, Transient: as the requests do.
    """
    refused = list[Refused]()
    kept_back = False
    for action in actions:
        kind = action.live.kind if isinstance(action, Delete) else identity(action.manifest)[0]
        if kept_back and kind not in LEAVES:
            continue
        try:
            await _carry_out(api, action, may_write)
        except Refused as error:
            log.warning("%s", error)
            refused.append(error)
            kept_back |= kind not in LEAVES
    return refused


async def _carry_out(api: Api, action: Action, may_write: Callable[[], None]) -> None:
    if isinstance(action, Delete):
        may_write()
        await api.delete(BY_KIND[action.live.kind], action.live.manifest)
    elif isinstance(action, CreateKeys):
        may_write()
        await api.create_once(SECRET, {**action.manifest, "data": new_key_pair()})
    else:
        await _apply(api, action, may_write)


async def _apply(api: Api, action: Apply, may_write: Callable[[], None]) -> None:
    manifest = action.manifest
    kind, meta = BY_KIND[manifest["kind"]], manifest["metadata"]
    live = action.live.manifest if action.live else await api.get(kind, meta["namespace"], meta["name"])
    if "ownerReferences" not in meta:  # shared by the namespace's services: made once, by whoever comes first
        if live is None:
            may_write()
            await api.create(kind, manifest)
            log.info("created %s %s/%s", kind.kind, meta["namespace"], meta["name"])
        return
    if live is not None:
        owner = meta["ownerReferences"][0]["uid"]
        if owner_uid(live) != owner and not _let_go(live, manifest):
            raise NameTaken(kind.kind, meta["name"], owner_uid(live) or "no SpeculativeInferenceService")
        if action.live is None and as_wanted(manifest, live):
            return  # made a moment ago, or of a kind that may be read by name alone
        if owned_fields(live) and foreign(live):
            may_write()
            log.info("%s %s/%s: %s, which goes", kind.kind, meta["namespace"], meta["name"], described(live))
            live = await api.replace_managers(kind, live, taken_over(live))
    bound = _version(live) if live else {"resourceVersion": NEVER}
    manifest = {**manifest, "metadata": {**meta, **bound}}
    may_write()
    try:
        await api.apply(kind, manifest)
    except Refused as error:
        if kind in OPTIONAL and error.status == 404 and any(text in str(error) for text in UNKNOWN_KIND):
            raise KindMissing(kind.kind, INSTALL[kind.kind]) from error
        raise
    log.info("applied %s %s/%s", kind.kind, meta["namespace"], meta["name"])


def _version(live: Object) -> Object:
    """What binds a write to an object as it was read."""
    return {field: live["metadata"][field] for field in ("uid", "resourceVersion")}


def _let_go(live: Object, manifest: Object) -> bool:
    """Whether we made `live` for a service of that name, and its owner was removed since: it has no other owner."""
    service = label(manifest, names.LABEL_SERVICE)
    return not owner_uid(live) and label(live, names.LABEL_SERVICE) == service and bool(owned_fields(live))


async def apply_status(api: Api, service: Live, status: Mapping[str, Any], may_write: Callable[[], None]) -> bool:
    """Write the status of `service` where it differs; whether it did.

    Raises:
        NotLeader, Transient, Refused: as the request does.
    """
    meta = service.manifest["metadata"]
    manifest: Object = {
        "apiVersion": SERVICES_KIND.api_version,
        "kind": SERVICES_KIND.kind,
        "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
        "status": dict(status),
    }
    if matches(manifest, service.manifest, "status"):
        return False
    manifest["metadata"] |= _version(service.manifest)
    may_write()
    await api.apply(SERVICES_KIND, manifest, "status")
    return True
