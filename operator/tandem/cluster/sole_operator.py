"""Whose the served namespaces are: the chart makes an object of a fixed name there, which names the operator's Lease.

Helm installs no second release that has it. Where manifests are applied without Helm's look, the last ones win: the
object then names another Lease, and this operator stands back, as two would write over each other's objects.
"""

import asyncio
import logging
from collections.abc import Sequence

from tandem.cluster.client import Api
from tandem.cluster.kinds import CLUSTER_ROLE, ROLE
from tandem.errors import Refused, Transient

log = logging.getLogger(__name__)

EVERYWHERE, HERE = "tandem:serves-all-namespaces", "tandem:serves-this-namespace"
"""Names of the ClusterRole, and of the Role in each namespace that is served: `claim.yaml` of the chart."""
LEASE_ANNOTATION = "serving.tandem.dev/lease"
RETRY_SECONDS = 2.0


class SoleOperator:
    """Looks at the objects of the namespaces `scopes` (None: of all). `lease`: namespace/name of this operator's."""

    def __init__(self, api: Api, scopes: Sequence[str | None], lease: str) -> None:
        self._api, self._scopes, self._lease = api, scopes, lease
        self.problem = "it is not known yet whether another operator serves these namespaces"
        """Why this operator must not work; empty where it may."""
        self.ours = asyncio.Event()

    async def run(self, seconds: float) -> None:
        """Look, for ever. What was seen holds while the API server is away."""
        while True:
            try:
                self._set(await self._look())
                await asyncio.sleep(seconds)
            except Transient as error:
                log.info("looking again whether another operator serves these namespaces: %s", error)
                await asyncio.sleep(RETRY_SECONDS)

    def _set(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.error("%s", problem)
        self.problem = problem
        (self.ours.clear if problem else self.ours.set)()

    async def _look(self) -> str:
        for scope in self._scopes:
            kind, name = (ROLE, HERE) if scope else (CLUSTER_ROLE, EVERYWHERE)
            try:
                found = await self._api.get(kind, scope, name)
            except Refused:  # no chart made it, nor gave the right
                continue
            named = ((found or {}).get("metadata", {}).get("annotations") or {}).get(LEASE_ANNOTATION, self._lease)
            if named != self._lease:
                where = f" in namespace {scope}" if scope else ""
                return (
                    f"{kind.kind} {name}{where} is of another operator, with the Lease {named}: uninstall one of the"
                    " two, or give each namespaces of its own (Helm value namespaces)"
                )
        return ""
