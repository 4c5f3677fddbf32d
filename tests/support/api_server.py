"""The operator's own client and reconciler against the fake API server of tests/bench/scale."""

from typing import Any

from bench.scale.__main__ import NAME, NAMESPACE, SERVICE
from bench.scale.apiserver import FakeApiServer
from bench.scale.store import Stored
from tandem.api import PLURAL
from tandem.cluster.client import Api
from tandem.cluster.lease import Leadership
from tandem.process.reconcile import Key, Next, Reconciler
from tandem.process.reports import ReportReader
from tandem.settings import LeaseSettings, ReportsSettings, Settings

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "%s"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
"""
"""With the server's address to fill in."""
PAGE = b"<!doctype html>\n<html><title>Sign in</title></html>\n"
"""What a proxy answers in an API server's place."""
KEY = Key(NAMESPACE, NAME)


class Cluster:
    """The fake API server, and what stands in it."""

    def __init__(self, server: FakeApiServer, api: Api, settings: Settings) -> None:
        self.server, self.api = server, api
        self.settings = settings.model_copy(update={"lease": LeaseSettings(enabled=False), "resync_seconds": 1})
        leadership = Leadership(api, self.settings.lease, "default", "me")
        reports = ReportReader(ReportsSettings(), lambda *_: None)
        self.reconciler = Reconciler(api, self.settings, leadership, reports)

    async def reconcile(self) -> Next:
        """One reconcile of the service."""
        return await self.reconciler.reconcile(KEY)

    async def bring_up(self) -> None:
        """From nothing to Ready."""
        self.server.store.put(PLURAL, {**SERVICE, "metadata": dict(SERVICE["metadata"])})
        for _ in range(5):
            await self.reconcile()
        assert self.conditions()["Ready"] == "True/ServersAnswer"
        self.server.requests.clear()

    def edit(self, **spec: Any) -> None:
        """Fields of the spec, as a user changes them."""
        service = self.server.store.get(PLURAL, *KEY)
        assert service
        service["spec"] |= spec
        service["metadata"]["generation"] += 1
        self.server.store.put(PLURAL, service)

    def has(self, plural: str, name: str) -> bool:
        """Whether such an object exists."""
        return self.server.store.get(plural, NAMESPACE, name) is not None

    def conditions(self) -> dict[str, str]:
        """`Status/Reason` by type."""
        return {c["type"]: f"{c['status']}/{c['reason']}" for c in self._conditions()}

    def message(self, condition: str) -> str:
        """The condition's message."""
        return next(str(c["message"]) for c in self._conditions() if c["type"] == condition)

    def _conditions(self) -> list[dict[str, Any]]:
        service = self.server.store.get(PLURAL, *KEY) or {}
        return list(service.get("status", {}).get("conditions", []))

    def others(self) -> set[tuple[str, Stored]]:
        """All but the service and its Events."""
        return {(plural, one) for plural, one in self.server.store.all() if plural not in (PLURAL, "events")}

    def writes(self) -> set[str]:
        """Resources that were written since they were asked for last, but Events."""
        made = {what for verb, what in self.server.requests if verb in ("patch", "create", "delete", "update")}
        self.server.requests.clear()
        return made - {"events"}
