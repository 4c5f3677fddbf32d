"""The least that bringing services up can take: a bare HTTP client that makes the same children in the same order.

It learns what to make from a service that the operator brought up, and that Jobs end from one watch. It reads,
compares and reports nothing. What Kubernetes itself takes is in both.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from tandem import names
from tandem.cluster.kinds import BY_KIND, CHILDREN, JOB, Kind

Object = dict[str, Any]
WORKERS = 16
"""Services that are worked at at once: as many as by the operator."""
OURS = f"{names.LABEL_MANAGED_BY}={names.FIELD_MANAGER}"
BEFORE_THE_JOB = ("ServiceAccount", "NetworkPolicy", "Service", "Job")
OF_KUBERNETES = ("batch.kubernetes.io/", "controller-uid", "job-name", "deployment.kubernetes.io/")
"""Labels and annotations that controllers add."""


class Client:
    """JSON over HTTP, as the administrator; one session."""

    def __init__(self, server: str, pki: Path) -> None:
        self._server = server
        self._tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self._tls.load_cert_chain(pki / "client-kubernetes-admin.crt", pki / "client-kubernetes-admin.key")

    async def __aenter__(self) -> "Client":
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        self._session = aiohttp.ClientSession(connector=connector, headers={"User-Agent": "floor/1"})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(self, method: str, path: str, body: Object | None = None, **query: str) -> Object:
        """An answer. Raises SystemExit where it is an error."""
        async with self._session.request(method, self._server + path, json=body, params=query) as answer:
            found: Object = json.loads(await answer.read())
            if answer.status >= 400:
                raise SystemExit(f"{method} {path}: {answer.status} {found.get('message')}")
            return found

    async def there(self, kind: Kind, namespace: str, name: str) -> bool:
        """Whether an object exists."""
        async with self._session.get(self._server + kind.path(namespace, name)) as answer:
            await answer.read()
            return answer.status == 200

    async def count(self, kind: Kind) -> int:
        """How many objects of a kind there are, in all namespaces."""
        found = await self.ask("GET", kind.path(None), limit="1")
        return len(found["items"]) + int(found["metadata"].get("remainingItemCount") or 0)

    async def create(self, obj: Object) -> Object:
        """Create an object of one of Tandem's kinds."""
        return await self.ask("POST", BY_KIND[obj["kind"]].path(obj["metadata"]["namespace"]), obj)

    async def events(self, kind: Kind, version: str) -> AsyncIterator[Object]:
        """Of objects that are Tandem's, until it is closed."""
        query = {"watch": "true", "labelSelector": OURS, "resourceVersion": version, "timeoutSeconds": "3600"}
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(self._server + kind.path(None), params=query, timeout=timeout) as answer:
            rest = b""
            async for data in answer.content.iter_any():
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    yield json.loads(line)


async def children(client: Client, namespace: str, service: str, job: Object) -> list[Object]:
    """What a service that is Ready has, and the Job that it had, as they are to be made for others."""
    selector = f"{OURS},{names.LABEL_SERVICE}={service}"
    found = [bare(job)]
    for kind in CHILDREN:
        if kind is not JOB:
            items = (await client.ask("GET", kind.path(namespace), labelSelector=selector))["items"]
            found += [bare({"apiVersion": kind.api_version, "kind": kind.kind, **item}) for item in items]
    return sorted(found, key=lambda child: (child["kind"] not in BEFORE_THE_JOB, child["kind"] == "Deployment"))


def bare(obj: Object) -> Object:
    """An object without what Kubernetes added, but for defaults."""
    kept = {key: value for key, value in obj.items() if key != "status"}
    kept["metadata"] = {
        key: obj["metadata"][key]
        for key in ("name", "namespace", "labels", "annotations", "ownerReferences")
        if key in obj["metadata"]
    }
    spec = kept["spec"] = dict(obj.get("spec", {}))
    for field in ("clusterIP", "clusterIPs", *(("selector",) if obj["kind"] == "Job" else ())):
        spec.pop(field, None)
    if not spec:
        del kept["spec"]
    template = spec.get("template", {}).get("metadata", {})
    for texts in (kept["metadata"].get("labels"), kept["metadata"].get("annotations"), template.get("labels")):
        for key in [key for key in texts or {} if key.startswith(OF_KUBERNETES)]:
            del texts[key]
    return kept


class Floor:
    """Makes services with `template`'s children, in the place of the operator."""

    def __init__(self, client: Client, template: Sequence[Object]) -> None:
        self._client = client
        owner = template[0]["metadata"]["ownerReferences"][0]
        meta = template[0]["metadata"]
        self._old = (f'"{meta["namespace"]}"', owner["name"], owner["uid"])
        self._texts = [(child["kind"], json.dumps(child)) for child in template]
        self._ended: dict[str, asyncio.Event] = {}
        self._busy = asyncio.Semaphore(WORKERS)

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """While it learns which Jobs ended."""
        version = (await self._client.ask("GET", JOB.path(None), limit="1"))["metadata"]["resourceVersion"]
        task = asyncio.create_task(self._watch(version))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def serve(self, service: Object) -> None:
        """Make the children of a service that was created."""
        meta = service["metadata"]
        ended = self._ended[f"{meta['namespace']}/{meta['name']}"] = asyncio.Event()
        async with self._busy:
            for kind, text in self._texts:
                if kind in BEFORE_THE_JOB:
                    await self._client.create(self._child(text, meta))
        await ended.wait()
        async with self._busy:
            for kind, text in self._texts:
                if kind not in BEFORE_THE_JOB:
                    await self._client.create(self._child(text, meta))
            job = next(self._child(text, meta) for kind, text in self._texts if kind == "Job")
            path = JOB.path(meta["namespace"], job["metadata"]["name"])
            await self._client.ask("DELETE", path, {"propagationPolicy": "Background"})

    def _child(self, text: str, meta: Object) -> Object:
        new = (f'"{meta["namespace"]}"', meta["name"], meta["uid"])
        for before, after in zip(self._old, new, strict=True):
            text = text.replace(before, after)
        child: Object = json.loads(text)
        return child

    async def _watch(self, version: str) -> None:
        async for event in self._client.events(JOB, version):
            job = event["object"]
            conditions = job.get("status", {}).get("conditions", [])
            if any(c["type"] == "Complete" and c["status"] == "True" for c in conditions):
                meta = job["metadata"]
                if ended := self._ended.get(f"{meta['namespace']}/{meta['labels'][names.LABEL_SERVICE]}"):
                    ended.set()


async def first_job(client: Client) -> Object:
    """The first of Tandem's that is made from now on."""
    version = (await client.ask("GET", JOB.path(None), limit="1"))["metadata"]["resourceVersion"]
    async for event in client.events(JOB, version):
        return {"apiVersion": JOB.api_version, "kind": JOB.kind, **event["object"]}
    raise SystemExit("the watch of Jobs ended")
