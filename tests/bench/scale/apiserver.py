"""A fake API server: enough of Kubernetes' HTTP API for the operator and kopf, at a fraction of its cost.

It has no admission, no defaults and no garbage collection; it keeps its objects in memory, and finds those of a
service by an index, where the real one looks at all of a namespace. Lists come in pages, watches with bookmarks, as
metadata alone where that is asked for. Rights can be revoked, and any answer be replaced.
"""

import asyncio
import contextlib
import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from aiohttp import web

from tandem import names
from tandem.cluster.kinds import Kind

from . import controllers
from .store import BY_PLURAL, KINDS, Event, Store, Stored

BOOKMARK_SECONDS = 30.0
USER = "system:serviceaccount:tandem-system:tandem-operator"
PATH = re.compile(
    r"^/apis?/(?:(?P<group>[^/]+)/)??(?P<version>v[0-9a-z]+)(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[a-z]+))?$"
)
VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
NAMESPACE = Kind("v1", "Namespace", "namespaces")
"""kopf waits until it is among the kinds; no request asks for one."""
TANDEM = f"{names.LABEL_SERVICE}="


class FakeApiServer:
    """Serves a store; `port` once it runs."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store or Store()
        self.requests: Counter[tuple[str, str]] = Counter()
        """By verb and resource."""
        self.revoked: set[tuple[str, str]] = set()
        """Verbs on resources that are answered with 403."""
        self.instead: Callable[[web.Request], web.Response | None] = lambda _: None
        """What is answered in place of the API server; None: nothing is."""
        self.expired_tokens = 0
        """So many continue tokens are answered with 410."""
        self.list_seconds: dict[str, float] = {}
        """What a page of a list takes, by who asks (`kopf`, `tandem`)."""
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen on loopback."""
        app = web.Application(client_max_size=16 << 20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """End all connections."""
        if self._runner:
            await self._runner.cleanup()

    def writes(self) -> int:
        """Requests that changed something, the Lease's renewals not counted."""
        return sum(n for (verb, plural), n in self.requests.items() if verb in VERBS.values() and plural != "leases")

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if (answer := self.instead(request)) is not None:
            return answer
        found = PATH.match(request.path)
        if found is None or found["plural"] not in BY_PLURAL:
            return _discovery(request.path)
        verb = VERBS.get(request.method) or _read_verb(request, found["name"])
        resource = "/".join(filter(None, (found["plural"], found["subresource"])))
        self.requests[verb, resource] += 1
        if (verb, resource) in self.revoked:
            return _forbidden(verb, resource, found)
        if verb == "watch":
            with contextlib.suppress(ConnectionResetError):  # its client has left
                return await self._watch(request, found)
            return web.Response()
        if verb == "list":
            await asyncio.sleep(self.list_seconds.get(request.headers.get("User-Agent", "").partition("/")[0], 0))
            return self._list(request, found)
        if verb == "get":
            obj = self.store.get(found["plural"], found["namespace"], found["name"])
            return (
                web.json_response(obj) if obj else _status(404, "NotFound", f'{resource} "{found["name"]}" not found')
            )
        return self._write(verb, found, json.loads(await request.read()))

    def _write(self, verb: str, found: re.Match[str], body: Any) -> web.Response:
        plural, namespace, name = found["plural"], found["namespace"], found["name"]
        if verb == "patch" and isinstance(body, list):
            return web.json_response(controllers.replace_managers(self.store, plural, (namespace, name), body))
        if verb == "patch":
            return web.json_response(controllers.apply(self.store, plural, body, found["subresource"] or ""))
        if verb == "delete":
            self.store.remove(plural, namespace, name)
            return web.json_response({"kind": "Status", "status": "Success"})
        name = name or body["metadata"]["name"]
        live = self.store.get(plural, namespace, name)
        if verb == "create" and live:
            return _status(409, "AlreadyExists", f"{plural} {name} exists")
        if verb == "update" and live and live["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            return _status(409, "Conflict", "the object has been modified")
        body["metadata"].setdefault("uid", f"uid-{self.store.version}")
        return web.json_response(self.store.put(plural, body), status=201)

    def _list(self, request: web.Request, found: re.Match[str]) -> web.Response:
        query, token = request.query, request.query.get("continue", "")
        if token and self.expired_tokens:
            self.expired_tokens -= 1
            return _status(410, "Expired", "The provided continue parameter is too old")
        version, start = (int(part) for part in (token or f"{self.store.version}:0").split(":"))
        items = self.store.listed(found["plural"], found["namespace"] or "", _service(query.get("labelSelector", "")))
        end = min(start + int(query.get("limit") or len(items)), len(items))
        partial = "PartialObjectMetadata" in request.headers.get("Accept", "")
        texts = [one.partial if partial else one.whole for one in items[start:end]]
        meta = {"resourceVersion": str(version), "continue": f"{version}:{end}" if end < len(items) else ""}
        kind = BY_PLURAL[found["plural"]]
        head = json.dumps({"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": meta})
        return web.Response(
            body=head[:-1].encode() + b',"items":[' + b",".join(texts) + b"]}", content_type="application/json"
        )

    async def _watch(self, request: web.Request, found: re.Match[str]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        loop, partial = asyncio.get_running_loop(), "PartialObjectMetadata" in request.headers.get("Accept", "")
        ends = loop.time() + float(request.query.get("timeoutSeconds") or 300)
        with self.store.watching(found["plural"]) as queue:
            for event in self.store.since(found["plural"], int(request.query.get("resourceVersion") or 0)):
                await response.write(_line(event.type, event, partial))
            while (left := ends - loop.time()) > 0:
                try:
                    event = await asyncio.wait_for(queue.get(), min(left, BOOKMARK_SECONDS))
                    await response.write(_line(event.type, event, partial))
                except TimeoutError:
                    await response.write(_bookmark(self.store.version))
        return response


def _line(kind: str, event: Event, partial: bool) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), _body(event.stored, partial))


def _body(stored: Stored, partial: bool) -> bytes:
    return stored.partial if partial else stored.whole


def _bookmark(version: int) -> bytes:
    return (
        json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}).encode() + b"\n"
    )


def _service(selector: str) -> str:
    """The service that a selector names; empty where it wants any."""
    return next((part.removeprefix(TANDEM) for part in selector.split(",") if part.startswith(TANDEM)), "")


def _read_verb(request: web.Request, name: str | None) -> str:
    if request.query.get("watch") == "true":
        return "watch"
    return "get" if name else "list"


def _status(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message}
    return web.json_response({**body, "status": "Failure"}, status=code)


def _forbidden(verb: str, resource: str, found: re.Match[str]) -> web.Response:
    group, namespace = found["group"] or "", found["namespace"]
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    what = f'cannot {verb} resource "{resource}" in API group "{group}" {where}'
    whole = f"{found['plural']}.{group}" if group else found["plural"]
    named = f'{whole} "{found["name"]}"' if found["name"] else whole
    return _status(403, "Forbidden", f'{named} is forbidden: User "{USER}" {what}')


def _discovery(path: str) -> web.Response:
    parts = path.strip("/").split("/")
    if parts == ["api"]:
        return web.json_response({"versions": ["v1"]})
    groups = {kind.group_version for kind in KINDS if kind.group_version[0]}
    if parts == ["apis"]:
        made = [
            {"name": group, "versions": [{"version": version}], "preferredVersion": {"version": version}}
            for group, version in sorted(groups)
        ]
        return web.json_response({"groups": made})
    resources = [
        {"name": kind.plural, "kind": kind.kind, "singularName": kind.kind.lower(), "namespaced": True}
        | {"verbs": ["get", "list", "watch", "create", "patch", "delete"]}
        for kind in (*KINDS, NAMESPACE)
        if parts in (["api", kind.api_version], ["apis", *kind.api_version.split("/")])
    ]
    return web.json_response({"resources": resources}) if resources else _status(404, "NotFound", "page not found")
