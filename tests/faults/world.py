"""A namespace with one service in it, one or more operators, and a proxy before each."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from support import images
from tandem.cluster.kinds import BY_KIND, ROLE, Kind

from .injected import Meanwhile
from .observer import HPA, Observer, Scene
from .operators import OperatorProcess
from .oracles import end_state, ready
from .proxy import Proxy

RESYNC_SECONDS = 1.0
QUIET_SECONDS = 3.0
"""Without a write: three comparisons with what the API server lists, and what they ask for."""
STILL_SECONDS = 0.7
"""Without a change, before a fault."""
PATIENCE_SECONDS = 180.0
"""For what comes within a few where nothing else runs."""
RESTARTED_SECONDS = 0.3
"""From the end of an operator to the next one's beginning."""
ALONE, TOGETHER = {"durationSeconds": 15, "renewSeconds": 5}, {"durationSeconds": 6, "renewSeconds": 2}
"""Leases of one operator, and of two, of which one waits for the other's to end."""
KINDS: dict[str, Kind] = {
    **{kind.plural: kind for kind in BY_KIND.values()},
    "sis": BY_KIND["SpeculativeInferenceService"],
    HPA.plural: HPA,
    "roles": ROLE,
    "rolebindings": Kind(ROLE.api_version, "RoleBinding", "rolebindings"),
    "namespaces": Kind("v1", "Namespace", "namespaces"),
}
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
ACCOUNT = "operator"


class Refused(Exception):
    """What the API server answered to the test itself."""


class Kubernetes:
    """The API server as its administrator sees it."""

    def __init__(self, session: aiohttp.ClientSession, server: str, audit: Path) -> None:
        self.session, self.server, self._audit = session, server, audit

    def audited(self, namespace: str, start: int) -> list[dict[str, Any]]:
        """Requests that were answered in a namespace, from the audit log's byte `start` on."""
        with self._audit.open("rb") as log:
            log.seek(start)
            lines = [line for line in log if line.endswith(b"\n") and namespace.encode() in line]
        entries = [json.loads(line) for line in lines if line.startswith(b"{")]
        return [entry for entry in entries if entry.get("objectRef", {}).get("namespace") == namespace]

    @property
    def audited_bytes(self) -> int:
        """Length of the audit log."""
        return self._audit.stat().st_size

    async def ask(self, method: str, path: str, body: Any = None, **sent: str) -> dict[str, Any]:
        """An answer. `sent`: `content` is the body's type, the rest is the query. Raises Refused."""
        headers = {"Content-Type": sent.pop("content", "application/json")}
        url = f"{self.server}{path}"
        async with self.session.request(method, url, json=body, headers=headers, params=sent) as answer:
            found: dict[str, Any] = await answer.json()
            if answer.status >= 400:
                raise Refused(f"{method} {path}: {answer.status} {found.get('message', found)}")
            return found


class World:
    """Enter it, and its operators run; leave it, and they do not."""

    def __init__(
        self, kubernetes: Kubernetes, observer: Observer, role: dict[str, Any], folder: Path, name: str
    ) -> None:
        self.kubernetes, self.name, self._role = kubernetes, name, role
        self.scene: Scene = observer.scenes[name]
        self.observer = observer
        self.folder = folder / name
        self.operators: list[OperatorProcess] = []
        self.proxies: list[Proxy] = []
        self._supervisor: asyncio.Task[None] | None = None
        self._audited_from = 0

    @property
    def operator(self) -> OperatorProcess:
        """The first one."""
        return self.operators[0]

    @property
    def proxy(self) -> Proxy:
        """The first one's."""
        return self.proxies[0]

    # --- starting and ending -------------------------------------------------------------------

    async def enter(self, operators: int = 1, defect: str = "") -> None:
        """Make the namespace with the operators' rights."""
        self._audited_from = self.kubernetes.audited_bytes
        await self.kubernetes.ask("POST", "/api/v1/namespaces", {"metadata": {"name": self.name}})
        await self.grant()
        subject = {"kind": "User", "name": "*", "apiGroup": "rbac.authorization.k8s.io"}
        subjects = [{**subject, "name": self.user(number)} for number in range(operators)]
        await self.create(
            "rolebindings",
            {
                "metadata": {"name": ACCOUNT},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT},
                "subjects": subjects,
            },
        )
        for number in range(operators):
            await self._add(number, defect, ALONE if operators == 1 else TOGETHER)
        self._supervisor = asyncio.create_task(self._supervise())

    def user(self, number: int) -> str:
        """Whom the API server takes an operator for; the audit log names it."""
        return f"system:serviceaccount:{self.name}:{ACCOUNT}-{number}"

    async def _add(self, number: int, defect: str, lease: dict[str, int]) -> None:
        proxy = Proxy(self.kubernetes.session, self.kubernetes.server, self.user(number))
        await proxy.start()
        settings = {**images.SETTINGS, "namespaces": [self.name], "resyncSeconds": RESYNC_SECONDS, "workers": 2}
        settings["lease"] = {**lease, "name": self.name}
        made = OperatorProcess(self.folder, f"operator-{number}", settings, proxy.port, defect)
        proxy.on_kill = made.kill
        self.proxies.append(proxy)
        self.operators.append(made)

    async def leave(self) -> None:
        """End the operators."""
        if self._supervisor:
            self._supervisor.cancel()
        for operator in self.operators:
            operator.stay_down()
        for proxy in self.proxies:
            await proxy.stop()

    async def _supervise(self) -> None:
        while True:
            await asyncio.sleep(RESTARTED_SECONDS)
            for operator in self.operators:
                operator.supervise()

    async def started(self) -> None:
        """Start the operators, and wait until each watches services."""
        for operator in self.operators:
            operator.start()
        for proxy in self.proxies:
            await self.until(
                "a watch of services",
                lambda proxy=proxy: any(str(r) == "watch-sis" for r in proxy.open),  # type: ignore[misc]
            )

    # --- what users do -------------------------------------------------------------------------

    def path(self, resource: str, name: str = "", subresource: str = "") -> str:
        """URL of an object here."""
        return KINDS[resource].path(self.name, name, subresource)

    async def apply(self, manifest: dict[str, Any], manager: str = "user") -> None:
        """Server-side apply of a service."""
        path = self.path("sis", manifest["metadata"]["name"])
        sent = {"content": APPLY, "fieldManager": manager, "force": "true"}
        await self._shown(await self.kubernetes.ask("PATCH", path, manifest, **sent))

    async def _shown(self, written: dict[str, Any]) -> None:
        """Wait until the scene has what was written of the service: what is waited for next is of that."""
        version = int(written["metadata"]["resourceVersion"])

        def is_shown() -> bool:
            service = self.scene.service
            return service is None or int(service["metadata"]["resourceVersion"]) >= version

        await self.until("the service to be there", lambda: self.scene.service is not None)
        await self.until("the change to be there", is_shown)

    async def create(self, resource: str, manifest: dict[str, Any]) -> None:
        """Create an object."""
        await self.kubernetes.ask("POST", self.path(resource), manifest)

    async def merge(self, resource: str, name: str, patch: dict[str, Any], subresource: str = "") -> None:
        """Merge-patch an object."""
        written = await self.kubernetes.ask("PATCH", self.path(resource, name, subresource), patch, content=MERGE)
        if resource == "sis":
            await self._shown(written)

    async def delete(self, resource: str, name: str, propagation: str = "Background") -> None:
        """Delete an object; do not wait."""
        await self.kubernetes.ask("DELETE", self.path(resource, name), {"propagationPolicy": propagation})

    async def grant(self, *revoked: tuple[str, str]) -> None:
        """Give the operators the chart's rights, but (verb, resource) of `revoked`."""
        rules = [
            {**rule, "resources": [resource], "verbs": verbs}
            for rule in self._role["rules"]
            for resource in rule["resources"]
            if (verbs := [verb for verb in rule["verbs"] if (verb, resource) not in revoked])
        ]
        role = {"apiVersion": ROLE.api_version, "kind": "Role", "metadata": {"name": ACCOUNT}, "rules": rules}
        path = self.path("roles", ACCOUNT)
        await self.kubernetes.ask("PATCH", path, role, content=APPLY, fieldManager="helm", force="true")

    # --- what it comes to ----------------------------------------------------------------------

    async def until(self, what: str, check: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until it holds. Raises AssertionError."""
        deadline = time.monotonic() + seconds
        while not check():
            ended = [line for operator in self.operators for line in operator.unexpected]
            assert not ended, f"{ended}, waiting for {what}\n{self.operator.text()[-3000:]}"
            assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
            await asyncio.sleep(0.05)

    @property
    def written_at(self) -> float:
        """Monotonic time of the last write of an operator; its Lease does not count."""
        writes = [write.at for proxy in self.proxies for write in proxy.writes if write.request.resource != "leases"]
        return max(writes, default=0.0)

    @property
    def changed_at(self) -> float:
        """Monotonic time of the last change of anything."""
        return self.scene.changes[-1].at if self.scene.changes else 0.0

    async def settled(self, still: float = STILL_SECONDS) -> None:
        """Wait until nothing is written or changed any more."""

        def is_still() -> bool:
            return time.monotonic() - max(self.written_at, self.changed_at) > still

        await self.until("no more changes", is_still)

    async def is_ready(self) -> None:
        """Wait until the service is Ready, and nothing changes."""
        await self.until("the service to be Ready", lambda: ready(self.scene))
        await self.settled()

    def state(self) -> dict[str, Any]:
        """See `oracles.end_state`."""
        return end_state(self.scene, self.name)

    async def audited(self) -> list[dict[str, Any]]:
        """The audit log's entries of this namespace. The API server writes of a request after it has answered it."""
        await asyncio.sleep(1.0)
        return await asyncio.to_thread(self.kubernetes.audited, self.name, self._audited_from)

    async def probe(self, operator: OperatorProcess, path: str) -> tuple[int, str]:
        """Status and text of `/healthz` or `/readyz`; 0 while it does not listen."""
        try:
            async with aiohttp.request("GET", f"http://127.0.0.1:{operator.port}{path}") as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientError as error:
            return 0, str(error)

    async def are_ready(self) -> bool:
        """Whether each operator that is to run says so."""
        running = [operator for operator in self.operators if not operator.down]
        return all([(await self.probe(operator, "/readyz"))[0] == 200 for operator in running])

    async def interrupted(self, fault: Meanwhile) -> None:
        """Wait until a request is held."""
        await asyncio.wait_for(fault.done.wait(), PATIENCE_SECONDS)
