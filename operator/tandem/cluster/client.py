"""A thin asynchronous client of raw JSON objects over `kubernetes.aio`, and the one place of API errors."""

import contextlib
import json
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NoReturn, TypedDict, TypeVar, Unpack

import aiohttp
import yaml
from kubernetes.aio import client, config
from kubernetes.aio.config import ConfigException, kube_config
from kubernetes.aio.config.kube_config import (
    _get_kube_config_loader_for_yaml_file,
)  # which user it takes: no other way

import tandem
from tandem import counters
from tandem.api.wire import Object
from tandem.cluster.clock import ServerClock
from tandem.cluster.kinds import EVENT, Kind
from tandem.errors import AlreadyExists, Expired, Forbidden, Refused, SettingsError, Transient
from tandem.names import FIELD_MANAGER

REQUEST_TIMEOUT_SECONDS = 30
JSON = "application/json"
APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
WATCH_SECONDS, WATCH_SILENT_SECONDS = 300, 120
FOR_PEOPLE = ("failed to create typed patch object", "failed to convert new object", "failed calling webhook")
"""What the API server answers with 500 though no later try helps by itself: an unknown field, a key that is there
twice or a quantity that is none in what is applied, and an admission webhook that is away."""
IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")
"""Fields of a kubeconfig's user by which kubectl acts as somebody else."""
UNUSABLE = (ConfigException, OSError, yaml.YAMLError, TypeError, ValueError)
"""What the client raises of a kubeconfig: it stumbles over one that is empty, or holds something else."""
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
METADATA_EVENTS = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PAGE = 500
"""Objects in a page of a list: about a megabyte of metadata, which takes some 10 ms to parse. Nothing else runs
meanwhile, in a thread of its own neither: the parser keeps the interpreter's lock."""
LIST_TRIES = 3
"""Lists from the start, where the API server gives up their version before the last page was read."""
RIGHT_MISSING = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)
"""How the API server answers 403 where RBAC grants no right; quotas and admission answer 403 in other words."""

T = TypeVar("T")


class _Sent(TypedDict, total=False):
    """What a request has in addition to method and path; types of content are JSON by default."""

    query: Mapping[str, str] | None
    body: Object | Sequence[Object]
    content_type: str
    accept: str


async def _configure(configuration: client.Configuration) -> None:
    try:
        config.load_incluster_config(client_configuration=configuration)
    except ConfigException:
        await config.load_kube_config(client_configuration=configuration)
        _refuse_impersonation()


def _refuse_impersonation() -> None:
    """Neither this client nor kopf impersonates another user: with the rights of the user that logs in it would do
    more than the kubeconfig allows."""
    user = _get_kube_config_loader_for_yaml_file(kube_config.KUBE_CONFIG_DEFAULT_LOCATION)._user
    asked = [field for field in IMPERSONATION if user and field in user]
    if asked:
        raise ConfigException(
            f"its user has {', '.join(asked)}, and Tandem does not impersonate: choose a context without"
        )


class Api:
    """Requests to one API server. Use as an asynchronous context manager, or `close()` it."""

    def __init__(self, api_client: Any) -> None:
        self._client = api_client
        self._clock = ServerClock()
        self.answered_at = 0.0
        """Monotonic time of the last answer, whatever it was, but a page of somebody else's; 0 before the first."""

    @classmethod
    async def connect(cls) -> "Api":
        """Connect with the pod's service account, else with the current kubeconfig.

        Raises:
            SettingsError: there is neither, or it cannot be used.
        """
        configuration = client.Configuration()
        try:
            await _configure(configuration)
            api_client = client.ApiClient(configuration)  # reads the authority's certificate
        except UNUSABLE as error:
            raise SettingsError(
                "cannot connect to a cluster: there is no pod's service account and no kubeconfig that can be used"
                f" ({' '.join(str(error).split())}); set KUBECONFIG"
            ) from error
        api_client.user_agent = f"tandem/{tandem.__version__}"
        return cls(api_client)

    async def __aenter__(self) -> "Api":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def now(self) -> str:
        """The time by the API server's clock, as the times of all objects are; RFC 3339."""
        return self._clock.now()

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """The object, or None when there is none."""
        path = kind.path(namespace, name)
        try:
            return await self._object("GET", path)
        except Refused as error:
            if error.status == 404:
                return None
            raise

    async def list_objects(self, kind: Kind, namespace: str | None, selector: str = "") -> list[Object]:
        """The objects of a kind by label selector, whole, with `apiVersion` and `kind` set."""
        named = {"apiVersion": kind.api_version, "kind": kind.kind}
        return (await self.list_at(kind, namespace, selector, lambda item: {**named, **item}))[0]

    async def list_at(
        self, kind: Kind, namespace: str | None, selector: str, take: Callable[[Object], T], accept: str = JSON
    ) -> tuple[list[T], str]:
        """What `take` makes of each object, and the resourceVersion that they are of: to watch from.

        The list comes in pages, of which one at a time is held: so `take` decides what a list of thousands costs.
        Where the API server forgets the list's version before the last page was read, it begins anew.
        """
        for _ in range(LIST_TRIES - 1):
            with contextlib.suppress(Expired):
                return await self._list(kind.path(namespace), selector, take, accept)
        return await self._list(kind.path(namespace), selector, take, accept)

    async def version(self) -> tuple[int, int] | None:
        """Major and minor version of Kubernetes; None where the API server does not show it.

        Providers write a minor version such as `37+`.
        """
        try:
            shown = await self._request("GET", "/version")
        except Refused:
            return None
        found = [re.match(r"\d+", str(shown.get(part, ""))) for part in ("major", "minor")]
        major, minor = (int(number[0]) if number else None for number in found)
        return (major, minor) if major is not None and minor is not None else None

    async def exists(self, kind: Kind, namespace: str | None) -> None:
        """Ask for one object of a kind. Raises what a list of them would."""
        await self._request("GET", kind.path(namespace), query={"limit": "1"}, accept=METADATA_ONLY)

    async def events(self, namespace: str, uid: str) -> list[Object]:
        """The Kubernetes Events about the object of that UID, as many as a page holds."""
        path, query = EVENT.path(namespace), {"fieldSelector": f"involvedObject.uid={uid}", "limit": str(PAGE)}
        return _page(path, await self._request("GET", path, query=query))[0]

    async def _list(self, path: str, selector: str, take: Callable[[Object], T], accept: str) -> tuple[list[T], str]:
        taken, token = list[T](), ""
        while True:
            query = {"labelSelector": selector, "limit": str(PAGE), "continue": token}
            reply = await self._request("GET", path, query=query, accept=accept)
            items, version, token = _page(path, reply)
            taken += map(take, items)
            if not token:
                return taken, version

    async def apply(self, kind: Kind, manifest: Object, subresource: str = "") -> Object:
        """Server-side apply as field manager `tandem`, taking over fields that others wrote."""
        meta = manifest["metadata"]
        path = kind.path(meta.get("namespace"), meta["name"], subresource)
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._object("PATCH", path, query=query, body=manifest, content_type=APPLY)

    async def replace_managers(self, kind: Kind, live: Object, entries: Sequence[Object]) -> Object:
        """Set who owns which fields of `live` (managedFields), as it was seen; nothing else of it changes."""
        meta = live["metadata"]
        body = [
            {"op": "replace", "path": "/metadata/managedFields", "value": list(entries)},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
        ]
        path, query = kind.path(meta["namespace"], meta["name"]), {"fieldManager": FIELD_MANAGER}
        return await self._object("PATCH", path, query=query, body=body, content_type=JSON_PATCH)

    async def create(self, kind: Kind, manifest: Object) -> Object:
        """Create an object that must not exist yet."""
        path = kind.path(manifest["metadata"]["namespace"])
        return await self._object("POST", path, query={"fieldManager": FIELD_MANAGER}, body=manifest)

    async def review(self, kind: Kind, spec: Object) -> Object:
        """Ask the API server for a judgement (TokenReview, SubjectAccessReview); its `status`."""
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}
        reply = await self._request("POST", kind.path(None), body=body)
        status: Object = reply.get("status") or {}
        if not isinstance(status, dict):
            raise _no_answer("POST", kind.path(None), json.dumps(reply).encode())
        return status

    async def watch(
        self, kind: Kind, namespace: str | None, selector: str, version: str, accept: str = JSON
    ) -> AsyncIterator[Object]:
        """Events after resourceVersion `version`, `{"type": ..., "object": ...}`, until the API server ends it.

        Bookmarks, about one a minute, are passed on: a watch that is silent for longer than
        `WATCH_SILENT_SECONDS` is dead.

        Raises:
            Transient, Refused: as the other requests do; also when the watch is cut, or the version is too old.
        """
        query = {"watch": "true", "labelSelector": selector, "resourceVersion": version}
        query |= {
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(round(WATCH_SECONDS * random.uniform(0.8, 1.0))),
        }
        path = kind.path(namespace)
        limits = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=WATCH_SILENT_SECONDS)
        response = await self._send("GET", path, limits, query=query, accept=accept)
        try:
            if response.status >= 400:
                _fail("GET", path, response.status, await response.read())
            async for line in _lines(response.response.content):
                yield _event(path, line)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Transient(f"watch {path}: {error or type(error).__name__}") from error
        finally:
            response.response.close()

    async def create_once(self, kind: Kind, manifest: Object) -> bool:
        """Create an object unless one of its name exists; whether it did."""
        try:
            await self.create(kind, manifest)
        except AlreadyExists:
            return False
        return True

    async def replace(self, kind: Kind, obj: Object) -> Object:
        """Replace an object; refused when its resourceVersion is not the newest."""
        path = kind.path(obj["metadata"]["namespace"], obj["metadata"]["name"])
        return await self._object("PUT", path, query={"fieldManager": FIELD_MANAGER}, body=obj)

    async def delete(self, kind: Kind, live: Object) -> None:
        """Delete the object as it was seen; one that is gone, changed, or is another by now, is left alone."""
        meta = live["metadata"]
        seen = {field: meta[field] for field in ("uid", "resourceVersion")}
        body = {"propagationPolicy": "Background", "preconditions": seen}
        try:
            await self._request("DELETE", kind.path(meta["namespace"], meta["name"]), body=body)
        except Refused as error:
            if error.status != 404:
                raise

    async def _object(self, method: str, path: str, **sent: Unpack[_Sent]) -> Object:
        reply = await self._request(method, path, **sent)
        if not _is_object(reply, "name"):
            raise _no_answer(method, path, json.dumps(reply).encode())
        return reply

    async def _request(self, method: str, path: str, **sent: Unpack[_Sent]) -> Object:
        response = await self._send(method, path, REQUEST_TIMEOUT_SECONDS, **sent)
        try:
            data = await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Transient(f"{method} {path}: {error or type(error).__name__}") from error
        counters.API_REQUESTS.labels(method, str(response.status)).inc()
        if response.status >= 400:
            self.answered_at = time.monotonic()
            _fail(method, path, response.status, data)
        reply = _parsed(method, path, data)
        self.answered_at = time.monotonic()
        self._clock.heard(response.getheader("Date"))
        return reply

    async def _send(
        self, method: str, path: str, limits: float | aiohttp.ClientTimeout, **sent: Unpack[_Sent]
    ) -> Any:
        headers = {"Content-Type": sent.get("content_type", JSON), "Accept": sent.get("accept", JSON)}
        params = [(key, value) for key, value in (sent.get("query") or {}).items() if value]
        try:
            request = await self._client.param_serialize(
                method,
                path,
                query_params=params,
                header_params=headers,
                body=sent.get("body"),
                auth_settings=["BearerToken"],
            )
            method, url, headers, body, _ = request
            return await self._client.call_api(method, url, headers, body, _request_timeout=limits)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Transient(f"{method} {path}: {error or type(error).__name__}") from error


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length: those of a watch hold whole objects."""
    rest = b""
    async for data, _ in stream.iter_chunks():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line


def _parsed(method: str, path: str, data: bytes) -> Object:
    """An answer's JSON object. Anything else comes from a proxy, or was cut off: Transient."""
    try:
        reply = json.loads(data)
    except (ValueError, RecursionError):
        reply = None
    if not isinstance(reply, dict):
        raise _no_answer(method, path, data)
    return reply


def _no_answer(method: str, path: str, data: bytes) -> Transient:
    beginning = " ".join(data[:120].decode("utf-8", "replace").split())
    return Transient(
        f"{method} {path}: the answer is not that of a Kubernetes API server; it begins with {beginning!r}:"
        " check for a proxy in front of it, such as one with a login page"
    )


def _is_object(found: object, field: str) -> bool:
    """Whether it is an object whose metadata has `field`, as whatever the API server sends of one has."""
    meta = found.get("metadata") if isinstance(found, dict) else None
    return isinstance(meta, dict) and isinstance(meta.get(field), str)


def _page(path: str, reply: Object) -> tuple[list[Object], str, str]:
    """Objects of a page, the list's resourceVersion, and the token of the next page; empty at the last one."""
    items = reply.get("items") or []
    whole = isinstance(items, list) and all(_is_object(item, "uid") for item in items)
    if not (whole and _is_object(reply, "resourceVersion")):
        raise _no_answer("GET", path, json.dumps(reply).encode())
    meta = reply["metadata"]
    return items, meta["resourceVersion"], str(meta.get("continue") or "")


def _event(path: str, line: bytes) -> Object:
    """An event of a watch. Raises Transient where it is none, or is the end of the watch."""
    event = _parsed("watch", path, line)
    kind, obj = event.get("type"), event.get("object")
    if kind == "ERROR" and isinstance(obj, dict):
        raise Transient(f"watch {path}: {obj.get('message', 'ended')}")
    if not isinstance(kind, str) or not _is_object(obj, "resourceVersion" if kind == "BOOKMARK" else "uid"):
        raise _no_answer("watch", path, line)
    return event


def _fail(method: str, path: str, status: int, data: bytes) -> NoReturn:
    """Raise the error that an answer is."""
    error = _error(method, path, status, data)
    if isinstance(error, Forbidden):
        counters.FORBIDDEN.labels(error.verb, error.resource).inc()
    raise error


def _error(method: str, path: str, status: int, data: bytes) -> Exception:
    """4xx are for people (`Refused`), except those that only say: not now (`Transient`); 5xx the other way round."""
    reason = ""
    try:
        reply = json.loads(data)
        message, reason = reply.get("message") or "", reply.get("reason", "")
    except (ValueError, AttributeError, RecursionError):
        message = data[:200].decode("utf-8", "replace")
    message, reason = str(message), str(reason)
    text = f"{method} {path}: {status}: {message}"
    if reason == "AlreadyExists":
        return AlreadyExists(text)
    if status == 410:
        return Expired(text)
    if status == 403 and (right := RIGHT_MISSING.search(message)):
        return Forbidden(**right.groupdict())
    later = status in (401, 408, 409, 410, 429) or status >= 500
    if later and not (status == 500 and any(text in message for text in FOR_PEOPLE)):
        return Transient(text)
    return Refused(status, text)
