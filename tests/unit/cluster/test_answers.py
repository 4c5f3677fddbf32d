"""What comes in an API server's place: pages of proxies, answers cut off, lists in pages, rights that are missing."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from support.api_server import KUBECONFIG, PAGE
from tandem import counters
from tandem.cluster import client
from tandem.cluster.client import METADATA_EVENTS, METADATA_ONLY, Api
from tandem.cluster.kinds import CONFIGMAP, LEASE, POD, TOKEN_REVIEW
from tandem.errors import Expired, Forbidden, Transient


class Server:
    """Answers every request as `answer` does."""

    def __init__(self) -> None:
        self.answer: Callable[[web.Request], web.Response] = lambda _: web.Response()
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        self.bodies.append(await request.read())
        return self.answer(request)

    def says(self, body: bytes, status: int = 200, content_type: str = "application/json") -> None:
        self.answer = lambda _: web.Response(body=body, status=status, content_type=content_type)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def api(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    kubeconfig = tmp_path / "kubeconfig"
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig))
    async with TestServer(app) as running:
        kubeconfig.write_text(KUBECONFIG % str(running.make_url("/")).rstrip("/"))
        async with await Api.connect() as made:
            yield made


async def watched(api: Api, *of: str) -> list[Any]:
    namespace, selector, accept = of or ("ns", "", "application/json")
    return [event async for event in api.watch(POD, namespace, selector, "1", accept)]


OBJECT = {"metadata": {"name": "o", "namespace": "ns", "uid": "u"}}
CALLS: list[tuple[str, Callable[[Api], Awaitable[Any]]]] = [
    ("get", lambda api: api.get(CONFIGMAP, "ns", "o")),
    ("list", lambda api: api.list_objects(POD, "ns")),
    ("list of metadata", lambda api: api.list_at(POD, None, "", lambda obj: obj["metadata"]["uid"], METADATA_ONLY)),
    ("apply", lambda api: api.apply(CONFIGMAP, OBJECT)),
    ("create", lambda api: api.create(CONFIGMAP, OBJECT)),
    ("replace", lambda api: api.replace(LEASE, OBJECT)),
]
SEEN = {"metadata": {**OBJECT["metadata"], "resourceVersion": "7"}}
OURS = {"fieldManager": "tandem"}
WATCHED = {"watch": "true", "labelSelector": "a=b", "resourceVersion": "1", "allowWatchBookmarks": "true"}
JSON, APPLIES = "application/json", "application/apply-patch+yaml"
ONE = "/api/v1/namespaces/ns/configmaps/o"
ALL = ONE.removesuffix("/o")
# The call, its method and path, what it asks for, of which type, and what it sends.
SENT: list[tuple[Callable[[Api], Awaitable[Any]], str, dict[str, str], tuple[str, str], Any]] = [
    (lambda api: api.get(CONFIGMAP, "ns", "o"), f"GET {ONE}", {}, (JSON, JSON), None),
    (
        lambda api: api.list_objects(CONFIGMAP, "ns", "a=b"),
        f"GET {ALL}",
        {"labelSelector": "a=b", "limit": "500"},
        (JSON, JSON),
        None,
    ),
    (
        lambda api: api.list_at(POD, None, "a=b", lambda obj: obj, METADATA_ONLY),
        "GET /api/v1/pods",
        {"labelSelector": "a=b", "limit": "500"},
        (JSON, METADATA_ONLY),
        None,
    ),
    (
        lambda api: api.events("ns", "u"),
        "GET /api/v1/namespaces/ns/events",
        {"fieldSelector": "involvedObject.uid=u", "limit": "500"},
        (JSON, JSON),
        None,
    ),
    (
        lambda api: watched(api, "ns", "a=b", METADATA_EVENTS),
        "GET /api/v1/namespaces/ns/pods",
        WATCHED,
        (JSON, METADATA_EVENTS),
        None,
    ),
    (
        lambda api: api.apply(CONFIGMAP, OBJECT, "status"),
        f"PATCH {ONE}/status",
        {**OURS, "force": "true"},
        (APPLIES, JSON),
        OBJECT,
    ),
    (lambda api: api.create(CONFIGMAP, OBJECT), f"POST {ALL}", OURS, (JSON, JSON), OBJECT),
    (lambda api: api.create_once(CONFIGMAP, OBJECT), f"POST {ALL}", OURS, (JSON, JSON), OBJECT),
    (lambda api: api.replace(CONFIGMAP, OBJECT), f"PUT {ONE}", OURS, (JSON, JSON), OBJECT),
    (
        lambda api: api.delete(CONFIGMAP, SEEN),
        f"DELETE {ONE}",
        {},
        (JSON, JSON),
        {"propagationPolicy": "Background", "preconditions": {"uid": "u", "resourceVersion": "7"}},
    ),
]


@pytest.mark.parametrize(("ask", "line", "query", "types", "body"), SENT, ids=[row[1] for row in SENT])
async def test_what_is_sent(
    server: Server,
    api: Api,
    ask: Callable[[Api], Awaitable[Any]],
    line: str,
    query: dict[str, str],
    types: tuple[str, str],
    body: Any,
) -> None:
    answer = {"metadata": {"name": "o", "resourceVersion": "1"}, "items": []}
    server.says(json.dumps(answer).encode() if query.keys().isdisjoint({"watch"}) else b"")
    await ask(api)
    (request,) = server.requests
    asked = dict(request.query)
    assert 240 <= int(asked.pop("timeoutSeconds", 300)) <= 300, "watches do not all end at once"
    assert (f"{request.method} {request.path}", asked) == (line, query)
    assert (request.headers["Content-Type"], request.headers["Accept"]) == types
    assert (json.loads(server.bodies[0]) if server.bodies[0] else None) == body


NO_ANSWERS = [
    (PAGE, "text/html", "a proxy's login page"),
    (b"", "application/json", "nothing"),
    (b'{"metadata": {"resourceVersion": "1"}, "items": [{"metad', "application/json", "cut off"),
    (b"[" * 20_000, "application/json", "nested without end"),
    (b"\xff\xfe{}", "application/json", "no text"),
    (b'["items"]', "application/json", "a list"),
    (b"null", "application/json", "null"),
    (b'{"login": "https://sso"}', "application/json", "an object of another service"),
    (b'{"metadata": "x", "items": "y"}', "application/json", "words"),
    (b'{"metadata": {"resourceVersion": "1"}, "items": [{}, 3]}', "application/json", "items that are none"),
]


@pytest.mark.parametrize(("call", "ask"), CALLS, ids=[row[0] for row in CALLS])
@pytest.mark.parametrize(("body", "content_type", "why"), NO_ANSWERS, ids=[row[2] for row in NO_ANSWERS])
async def test_what_is_no_answer_of_an_api_server_is_tried_again(
    server: Server,
    api: Api,
    call: str,
    ask: Callable[[Api], Awaitable[Any]],
    body: bytes,
    content_type: str,
    why: str,
) -> None:
    server.says(body, content_type=content_type)
    with pytest.raises(Transient, match="the answer is not that of a Kubernetes API server"):
        await ask(api)


@pytest.mark.parametrize("body", [PAGE, b"[" * 20_000, b'{"status": "granted"}'])
async def test_a_review_that_is_none_is_tried_again(server: Server, api: Api, body: bytes) -> None:
    server.says(body)
    with pytest.raises(Transient, match="is not that of a Kubernetes API server"):
        await api.review(TOKEN_REVIEW, {})


async def test_a_review_is_its_status(server: Server, api: Api) -> None:
    server.says(b'{"status": {"authenticated": true}}')
    assert await api.review(TOKEN_REVIEW, {"token": "t"}) == {"authenticated": True}
    sent = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "t"}}
    assert json.loads(server.bodies[0]) == sent
    server.says(b"{}")
    assert await api.review(TOKEN_REVIEW, {"token": "t"}) == {}


VERSIONS: list[tuple[bytes, int, tuple[int, int] | None, str]] = [
    (b'{"major": "1", "minor": "36"}', 200, (1, 36), "as Kubernetes answers"),
    (b'{"major": "1", "minor": "37+"}', 200, (1, 37), "as providers do"),
    (b'{"major": "", "minor": ""}', 200, None, "a build without a version"),
    (b"{}", 403, None, "who may not ask"),
]


@pytest.mark.parametrize(("body", "status", "wanted", "reason"), VERSIONS, ids=[row[3] for row in VERSIONS])
async def test_versions(
    server: Server, api: Api, body: bytes, status: int, wanted: tuple[int, int] | None, reason: str
) -> None:
    server.says(body, status)
    assert await api.version() == wanted, reason


async def test_a_login_page_is_no_sign_of_life(server: Server, api: Api) -> None:
    server.says(PAGE, content_type="text/html")
    with pytest.raises(Transient, match="begins with '<!doctype html> <html>"):
        await api.get(CONFIGMAP, "ns", "o")
    assert not api.answered_at
    server.says(json.dumps(OBJECT).encode())
    await api.get(CONFIGMAP, "ns", "o")
    assert api.answered_at > 0


EVENTS = [
    (PAGE, "a proxy's login page"),
    (b"[" * 20_000 + b"\n", "nested without end"),
    (b"[1]\n", "a list"),
    (b'{"object": {}}\n', "without a type"),
    (b'{"type": "ADDED"}\n', "without an object"),
    (b'{"type": "ADDED", "object": {"metadata": {}}}\n', "without a UID"),
    (b'{"type": "BOOKMARK", "object": {}}\n', "a bookmark of nothing"),
    (b'{"type": "ERROR", "object": "gone"}\n', "an error in words"),
    (
        b'{"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}\n',
        "the version is too old",
    ),
]


@pytest.mark.parametrize(("body", "why"), EVENTS, ids=[row[1] for row in EVENTS])
async def test_an_event_that_is_none_ends_the_watch(server: Server, api: Api, body: bytes, why: str) -> None:
    server.says(body)
    with pytest.raises(Transient):
        await watched(api)


async def test_a_watch_passes_events_on(server: Server, api: Api) -> None:
    added = {"type": "ADDED", "object": OBJECT}
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "2"}}}
    server.says(b"".join(json.dumps(each).encode() + b"\n" for each in (added, bookmark)) + b'{"type": "ADDED", "obj')
    assert await watched(api) == [added, bookmark], "what was cut off is told by the next list"


async def test_a_watch_that_is_silent_ends(server: Server, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection of which the other end is gone, without a word."""
    added = {"type": "ADDED", "object": OBJECT}

    async def one_event() -> AsyncIterator[bytes]:
        yield json.dumps(added).encode() + b"\n"
        await asyncio.sleep(20)

    monkeypatch.setattr(client, "WATCH_SILENT_SECONDS", 0.1)
    server.answer = lambda _: web.Response(body=one_event())
    seen = list[Any]()
    with pytest.raises(Transient):
        async with asyncio.timeout(10):
            async for event in api.watch(POD, "ns", "", "1"):
                seen.append(event)  # what came before the error
    assert seen == [added]


class Pages:
    """A list of `count` objects in pages; tokens of a version that `expire` are answered with 410."""

    def __init__(self, count: int, expire: int = 0) -> None:
        self.count, self.expire, self.version = count, expire, 1
        self.limits: list[int] = []

    def __call__(self, request: web.Request) -> web.Response:
        limit, token = int(request.query["limit"]), request.query.get("continue", "")
        self.limits.append(limit)
        version, _, start = (token or f"{self.version}:0").partition(":")
        if token and self.expire:
            self.expire -= 1
            self.version += 1
            gone = {
                "kind": "Status",
                "code": 410,
                "reason": "Expired",
                "message": "the continue parameter is too old",
            }
            return web.json_response(gone, status=410)
        end = min(int(start) + limit, self.count)
        items = [{"metadata": {"uid": str(n), "name": f"o{n}"}} for n in range(int(start), end)]
        meta = {"resourceVersion": version, "continue": f"{version}:{end}" if end < self.count else ""}
        return web.json_response({"metadata": meta, "items": items})


async def listed(api: Api) -> tuple[list[str], str]:
    return await api.list_at(POD, None, "", lambda obj: str(obj["metadata"]["uid"]), METADATA_ONLY)


async def test_lists_come_in_pages(server: Server, api: Api) -> None:
    server.answer = pages = Pages(2 * client.PAGE + 1)
    assert await listed(api) == ([str(n) for n in range(2 * client.PAGE + 1)], "1")
    assert pages.limits == [client.PAGE] * 3
    assert len(await api.list_objects(POD, None)) == 2 * client.PAGE + 1
    server.answer = Pages(0)
    assert await listed(api) == ([], "1")


async def test_what_is_listed_says_what_it_is(server: Server, api: Api) -> None:
    """The API server leaves that out of the items of a list."""
    server.answer = Pages(1)
    (found,) = await api.list_objects(POD, "ns")
    assert (found["apiVersion"], found["kind"], found["metadata"]["uid"]) == ("v1", "Pod", "0")


async def test_a_list_whose_version_is_forgotten_begins_anew(server: Server, api: Api) -> None:
    """Else it would be of two versions, and a watch from the second would miss what happened between them."""
    server.answer = Pages(client.PAGE + 1, expire=2)
    assert await listed(api) == ([str(n) for n in range(client.PAGE + 1)], "3")
    server.answer = Pages(client.PAGE + 1, expire=99)
    with pytest.raises(Expired):
        await listed(api)


async def test_one_object_says_whether_a_kind_can_be_listed(server: Server, api: Api) -> None:
    server.answer = pages = Pages(9)
    await api.exists(POD, None)
    assert pages.limits == [1]


async def test_what_is_deleted_is_what_was_seen(server: Server, api: Api) -> None:
    """Neither another object of that name, nor one that was changed since."""
    server.says(b'{"message": "gone"}', 404)
    await api.delete(POD, {"metadata": {**OBJECT["metadata"], "resourceVersion": "7"}})
    assert json.loads(server.bodies[0])["preconditions"] == {"uid": "u", "resourceVersion": "7"}


def forbidden_count() -> float:
    samples = [sample for family in counters.FORBIDDEN.collect() for sample in family.samples]
    return sum(sample.value for sample in samples if sample.name.endswith("_total"))


USER = 'User "system:serviceaccount:t:operator"'
FORBIDDEN = [
    # As k8s.io/apiserver 1.36 answers.
    (
        f'poddisruptionbudgets.policy is forbidden: {USER} cannot list resource "poddisruptionbudgets" in API group'
        ' "policy" at the cluster scope',
        "system:serviceaccount:t:operator may not list poddisruptionbudgets.policy in all namespaces: run helm",
    ),
    (
        f'services "s" is forbidden: {USER} cannot patch resource "services" in API group "" in the namespace "a"',
        "system:serviceaccount:t:operator may not patch services in namespace a: run helm upgrade",
    ),
]


@pytest.mark.parametrize(("message", "told"), FORBIDDEN)
async def test_a_right_that_is_missing_is_named(server: Server, api: Api, message: str, told: str) -> None:
    status = {"kind": "Status", "reason": "Forbidden", "message": message, "code": 403}
    server.says(json.dumps(status).encode(), 403)
    before = forbidden_count()
    with pytest.raises(Forbidden) as raised:
        await api.list_objects(POD, None)
    with pytest.raises(Forbidden):
        await watched(api)
    assert str(raised.value).startswith(told)
    assert forbidden_count() == before + 2


@pytest.mark.parametrize(
    "message",
    ['pods "p" is forbidden: exceeded quota: q', 'pods "p" is forbidden: violates PodSecurity "restricted:latest"'],
)
async def test_other_refusals_are_no_missing_right(server: Server, api: Api, message: str) -> None:
    server.says(json.dumps({"message": message}).encode(), 403)
    with pytest.raises(Exception, match="forbidden") as raised:
        await api.create(POD, OBJECT)
    assert not isinstance(raised.value, Forbidden)
