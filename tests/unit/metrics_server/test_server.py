"""The server over real TLS on loopback: requests and answers, and those who may not have any."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cluster import pki
from tandem.http.listener import Listener
from tandem.metrics_server.authentication import Authenticator, RequestHeader
from tandem.metrics_server.authorization import Authorizer
from tandem.metrics_server.board import Board
from tandem.metrics_server.certificates import Certificate, renewed, utc_now
from tandem.metrics_server.gate import Gate
from tandem.metrics_server.server import application

from .conftest import FakeReviews, report

API = "/apis/custom.metrics.k8s.io/v1beta2"
RESOURCE = "speculativeinferenceservices.serving.tandem.dev"
HPA = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"


def metric(name: str = "llama", metric: str = "tandem_replicas_needed", resource: str = RESOURCE) -> str:
    return f"{API}/namespaces/team-a/{resource}/{name}/{metric}"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Server:
    """A server on loopback, and clients of it."""

    listener: Listener
    board: Board
    clock: Clock
    reviews: FakeReviews
    certificate: Certificate
    folder: Path

    def context(self, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        made = ssl.create_default_context(cadata=self.certificate.authorities.decode())
        if client:
            made.load_cert_chain(*client)
        return made

    async def get(
        self,
        path: str,
        headers: dict[str, str] | None = None,
        client: tuple[Path, Path] | None = None,
        method: str = "GET",
    ) -> tuple[int, Any]:
        url = f"https://127.0.0.1:{self.listener.port}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method, url, headers=headers, ssl=self.context(client), server_hostname="metrics.ns.svc"
            ) as answer,
        ):
            text = await answer.text()
            return answer.status, json.loads(text) if text.startswith("{") else text

    def issue(self, authority: str, name: str) -> tuple[Path, Path]:
        """Certificate and key of a client."""
        return pki.issue(pki.load_authority(self.folder, authority), f"{authority}-{name}", pki.Identity(name))


@pytest.fixture
async def server(reviews: FakeReviews, tmp_path: Path) -> AsyncIterator[Server]:
    certificate = renewed(None, ["metrics.ns.svc"], utc_now())
    assert certificate is not None
    authority = pki.load_authority(tmp_path, "front-proxy-ca").path.read_text()
    clock = Clock()
    board = Board(120, clock)
    board.post([report(), report("idle", load=None), report("other", "team-b")])
    authenticator = Authenticator(reviews)
    authenticator.request_header = RequestHeader(authority, ("front-proxy",))
    gate = Gate(authenticator, Authorizer(reviews))
    listener = Listener(application(board, gate), "127.0.0.1", 0)
    await listener.listen(certificate.context(authority))
    reviews.allowed = {
        (HPA, "team-a/llama/tandem_replicas_needed"),
        (HPA, "team-a/idle/tandem_replicas_needed"),
        (HPA, "team-a/gone/tandem_replicas_needed"),
        (HPA, "team-a/*/tandem_replicas_needed"),
        (HPA, "team-a/llama/no_such_metric"),
        (HPA, API),
        *(("alice", path) for path in ("/v1/services", "/v1/services/team-a", "/v1/services/team-a/llama")),
        *(("alice", path) for path in ("/v1/services/team-a/gone", "/v1/nothing")),
    }
    yield Server(listener, board, clock, reviews, certificate, tmp_path)
    await listener.close()


HPA_TOKEN = {"Authorization": "Bearer hpa-token"}
ALICE = {"Authorization": "Bearer team-a-token"}

ANSWERS: list[tuple[str, str, dict[str, str], int, str]] = [
    # why, path, headers, status, what the answer contains
    ("an autoscaler's question", metric(), HPA_TOKEN, 200, '"2500m"'),
    ("of all services in a namespace, those that are known", metric("*"), HPA_TOKEN, 200, '"llama"'),
    ("held: nothing is known", metric("idle"), HPA_TOKEN, 404, "is not known now"),
    ("no such service", metric("gone"), HPA_TOKEN, 404, "is not known now"),
    ("no such metric", metric(metric="no_such_metric"), HPA_TOKEN, 404, "there are tandem_replicas_needed, "),
    ("labels that metrics do not have", metric() + "?metricLabelSelector=a%3Db", HPA_TOKEN, 400, "leave it out"),
    ("an empty selector is none", metric() + "?metricLabelSelector=", HPA_TOKEN, 200, '"2500m"'),
    ("discovery", API, HPA_TOKEN, 200, "APIResourceList"),
    ("another user", metric(), ALICE, 403, f'User "alice" cannot get resource "{RESOURCE}/tandem_replicas_needed"'),
    ("another's path", "/v1/services", HPA_TOKEN, 403, 'path "/v1/services"'),
    ("all reports", "/v1/services", ALICE, 200, '"team-b"'),
    ("of a namespace", "/v1/services/team-a", ALICE, 200, '"desiredReplicas"|"load"'),
    ("one", "/v1/services/team-a/llama", ALICE, 200, '"acceptanceRate": 0.8123'),
    ("one that is not known", "/v1/services/team-a/gone", ALICE, 404, "there is no report of service team-a/gone"),
    ("no such path", "/v1/nothing", ALICE, 404, "Not Found"),
    ("nobody", metric(), {}, 401, "bearer token"),
    ("an expired token", metric(), {"Authorization": "Bearer old"}, 401, "bearer token"),
    ("a user's name without the API server's certificate", metric(), {"X-Remote-User": HPA}, 401, "bearer token"),
    ("no way around by dots", "/v1/services/team-a%2F..%2Fteam-b", ALICE, 403, "cannot get path"),
]


async def test_too_many_strangers_are_asked_to_wait(server: Server) -> None:
    strangers = [{"Authorization": f"Bearer stranger-{each}"} for each in range(12)]
    codes = [(await server.get(metric(), each))[0] for each in strangers]
    assert codes == [401] * 10 + [429] * 2
    code, body = await server.get(metric(), strangers[-1])
    assert (code, body["reason"], body["code"]) == (429, "TooManyRequests", 429)
    assert (await server.get(metric(), HPA_TOKEN))[0] == 429, "not known yet, and of the same address"


@pytest.mark.parametrize(("path", "headers", "status", "part"), [a[1:] for a in ANSWERS], ids=[a[0] for a in ANSWERS])
async def test_answers(server: Server, path: str, headers: dict[str, str], status: int, part: str) -> None:
    code, body = await server.get(path, headers)
    assert code == status, body
    assert any(wanted in json.dumps(body, ensure_ascii=False).replace('\\"', '"') for wanted in part.split("|")), body
    if status >= 400:
        assert (body["kind"], body["code"]) == ("Status", status)


async def test_a_namespace_is_told_alone(server: Server) -> None:
    _, body = await server.get("/v1/services/team-a", ALICE)
    assert [item["name"] for item in body["items"]] == ["idle", "llama"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
async def test_nothing_but_reading(server: Server, method: str) -> None:
    code, _ = await server.get("/v1/services", ALICE, method=method)
    assert code == 405


async def test_old_figures_steer_nobody(server: Server) -> None:
    server.clock.now = 121
    assert (await server.get(metric(), HPA_TOKEN))[0] == 404
    assert (await server.get("/v1/services/team-a/llama", ALICE))[0] == 404
    assert (await server.get("/v1/services", ALICE))[1] == {"items": []}


async def test_the_api_server_away_is_not_the_askers_fault(server: Server) -> None:
    server.reviews.down = True
    code, body = await server.get(metric(), HPA_TOKEN)
    assert (code, body["reason"]) == (503, "ServiceUnavailable")


async def test_an_api_server_that_never_answers_is_not_waited_for(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(kind: Any, spec: dict[str, Any]) -> dict[str, Any]:
        return await asyncio.Future()

    monkeypatch.setattr("tandem.metrics_server.gate.REVIEW_SECONDS", 0.05)
    monkeypatch.setattr(server.reviews, "review", never)
    async with asyncio.timeout(60):
        assert (await server.get(metric(), HPA_TOKEN))[0] == 503


async def test_judgements_are_asked_for_once_within_seconds(server: Server) -> None:
    for _ in range(5):
        assert (await server.get(metric(), HPA_TOKEN))[0] == 200
    assert [kind for kind, _ in server.reviews.asked] == ["TokenReview", "SubjectAccessReview"]


async def test_what_is_asked_of_the_api_server_is_what_rbac_knows(server: Server) -> None:
    await server.get(metric(), HPA_TOKEN)
    spec = server.reviews.asked[-1][1]
    assert spec == {
        "user": HPA,
        "uid": "",
        "groups": ["hpas"],
        "extra": {},
        "resourceAttributes": {
            "verb": "get",
            "group": "custom.metrics.k8s.io",
            "version": "v1beta2",
            "resource": RESOURCE,
            "namespace": "team-a",
            "name": "llama",
            "subresource": "tandem_replicas_needed",
        },
    }


# --- certificates of clients ----------------------------------------------------------------------
async def test_the_api_server_speaks_for_the_autoscaler(server: Server) -> None:
    proxy = server.issue("front-proxy-ca", "front-proxy")
    assert (await server.get(metric(), {"X-Remote-User": HPA}, proxy))[0] == 200
    assert (await server.get(metric(), {"X-Remote-User": "mallory"}, proxy))[0] == 403


async def test_another_name_of_that_authority_does_not(server: Server) -> None:
    other = server.issue("front-proxy-ca", "kubelet")
    assert (await server.get(metric(), {"X-Remote-User": HPA}, other))[0] == 401


async def test_another_authority_does_not_even_connect(server: Server) -> None:
    forged = server.issue("forged-ca", "front-proxy")
    with pytest.raises(aiohttp.ClientError):
        await server.get(metric(), {"X-Remote-User": HPA}, forged)


async def test_new_certificates_are_taken_while_connections_live(server: Server) -> None:
    context = server.context()
    connector = aiohttp.TCPConnector(ssl=context, limit=1)
    async with aiohttp.ClientSession(connector=connector) as session:
        url = f"https://127.0.0.1:{server.listener.port}{metric()}"
        async with session.get(url, headers=HPA_TOKEN, server_hostname="metrics.ns.svc") as answer:
            assert answer.status == 200
        server.certificate = renewed(None, ["metrics.ns.svc"], utc_now()) or server.certificate
        other = pki.load_authority(server.folder, "next-proxy-ca").path.read_text()
        await server.listener.listen(server.certificate.context(other))
        async with session.get(url, headers=HPA_TOKEN, server_hostname="metrics.ns.svc") as answer:
            assert answer.status == 200, "the connection of before goes on"
    assert (await server.get(metric(), HPA_TOKEN))[0] == 200, "new ones see the new certificate"
    before = server.issue("front-proxy-ca", "front-proxy")
    with pytest.raises(aiohttp.ClientError):
        await server.get(metric(), {"X-Remote-User": HPA}, before)


# --- hostile requests -----------------------------------------------------------------------------
def raw(server: Server, request: bytes) -> bytes:
    """The first line of what the server says to these bytes."""
    with (
        socket.create_connection(("127.0.0.1", server.listener.port), 5) as plain,
        server.context().wrap_socket(plain, server_hostname="metrics.ns.svc") as secured,
    ):
        secured.settimeout(30)
        try:
            secured.sendall(request)
            return secured.recv(4096).split(b"\r\n")[0]
        except OSError:
            return b"closed"


HOSTILE: list[tuple[str, bytes]] = [
    ("a path of 1 MiB", b"GET /v1/services/" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("a header of 1 MiB", b"GET /v1/services HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * (1 << 20) + b"\r\n\r\n"),
    (
        "100,000 headers",
        b"GET /v1/services HTTP/1.1\r\nHost: x\r\n"
        + b"".join(b"X-Remote-Extra-%d: a\r\n" % i for i in range(100_000))
        + b"\r\n",
    ),
    ("a token that is no text", b"GET /v1/services HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\xfe\r\n\r\n"),
    ("no HTTP", b"\x00\x01\x02\r\n\r\n"),
    ("smuggling", b"GET /v1/services HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"),
]


@pytest.mark.parametrize("request_bytes", [h[1] for h in HOSTILE], ids=[h[0] for h in HOSTILE])
async def test_hostile_requests_end_with_400_and_harm_nobody(server: Server, request_bytes: bytes) -> None:
    said = await asyncio.to_thread(raw, server, request_bytes)
    assert said.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400", b"HTTP/1.1 401", b"closed")), said
    assert server.reviews.asked == [], "nobody is asked about it"
    assert (await server.get(metric(), HPA_TOKEN))[0] == 200


@pytest.mark.parametrize("name", ["..", "a" * 4000, "%00", "%F0%9F%98%80", "llama%0d%0aX: y", "%2e%2e%2f"])
async def test_strange_names_are_names(server: Server, name: str) -> None:
    code, body = await server.get(metric(name), HPA_TOKEN)
    assert code in (400, 403, 404), body
